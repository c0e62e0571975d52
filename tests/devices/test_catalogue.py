from dataclasses import fields

import pytest

from sottovoce.core.errors import InputError
from sottovoce.devices import MARKS, Availability, Compute, Frame, Link, Radio, known, profile

PARTS = {"link": Link, "radio": Radio, "compute": Compute, "availability": Availability}


@pytest.mark.parametrize("name", known())
def test_every_number_of_a_profile_has_a_mark_a_year_and_a_source(name: str) -> None:
    device = profile(name)
    wanted = {f"{part}.{field.name}" for part, kind in PARTS.items() for field in fields(kind)} - {"link.frame"}
    if device.link.frame is not None:
        wanted |= {f"frame.{field.name}" for field in fields(Frame)}

    assert set(device.sources) == wanted
    for origin in device.sources.values():
        assert origin.mark in MARKS
        assert 2000 <= origin.year <= 2026
        assert len(origin.text) > 20


@pytest.mark.parametrize("name", known())
def test_a_profile_is_named_as_its_file(name: str) -> None:
    assert profile(name).name == name


@pytest.mark.parametrize("name", known())
def test_a_number_without_a_source_is_marked_as_an_assumption(name: str) -> None:
    for origin in profile(name).sources.values():
        assert origin.mark == "A" or "nothing published" not in origin.text


def test_an_unknown_profile_is_refused_and_the_nearest_named() -> None:
    with pytest.raises(InputError, match="profile has no 'phone-lt'; did you mean 'phone-lte'"):
        profile("phone-lt")


def test_figures_of_2012_carry_their_year_in_the_name() -> None:
    assert [name for name in known() if profile(name).year == 2012] == ["phone-lte-2012", "phone-wifi-2012"]


def test_a_model_that_does_not_fit_a_sensor_is_refused() -> None:
    with pytest.raises(InputError, match=r"does not fit sensor-nbiot \(6.7 MB needed, 0.26 MB there\)"):
        profile("sensor-nbiot").require_fit(6.65)
    profile("phone-wifi").require_fit(6.65)
