"""A plan tells what a run costs from shapes alone, and the same as the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runs.small import small

from sottovoce.config.experiment import parse
from sottovoce.core.errors import DataError, InputError
from sottovoce.planning import plan as shapes
from sottovoce.planning.plan import plan
from sottovoce.runs.loop import run
from sottovoce.secagg.ballots import ballot_size

PRIVATE = {"epsilon": 8.0, "delta": 0.01, "clip_norm": 1.0}
REAL = {"secure": "real"}


@pytest.fixture
def nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise DataError("a plan read records")

    monkeypatch.setattr("sottovoce.assembly.parts.load", refuse)
    monkeypatch.setattr("sottovoce.assembly.public.load", refuse)


@pytest.mark.usefixtures("nothing_is_read")
@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"privacy": PRIVATE},
        {"data": {"source": "fashion-mnist", "clients": 6000}, "model": {"name": "cnn"}},
        {"data": {"source": "imdb", "clients": 100}, "model": {"name": "logistic", "front": "hashed"}},
        {
            "data": {"source": "fashion-mnist", "clients": 600},
            "scheme": {"name": "fl-top", "ratio": 0.01, "public": "mnist"},
            "privacy": {"epsilon": 8.0, "delta": 1e-3, "clipping": "public"},
        },
    ],
)
def test_a_plan_needs_no_record(tables: dict[str, Any]) -> None:
    told = plan(small(**tables))

    assert told["bytes_up_per_client_round"] > 0 and "records_per_client" not in told["estimated"]


@pytest.mark.usefixtures("nothing_is_read")
def test_owners_that_only_the_file_knows_are_not_made_up() -> None:
    with pytest.raises(DataError, match="a plan read records"):
        plan(small(data={"source": "digits", "partition": "by-id"}))


@pytest.mark.usefixtures("nothing_is_read")
def test_sizes_that_depend_on_labels_are_estimated_where_the_data_is_missing() -> None:
    told = plan(small(data={"source": "digits", "partition": "dirichlet", "concentration": 1.0}))

    assert "records_per_client" in told["estimated"]


def test_sizes_that_depend_on_labels_are_those_of_the_data_where_it_is_there() -> None:
    assert plan(small(data={"partition": "dirichlet", "concentration": 1.0}))["estimated"] == []


def test_a_clip_norm_that_only_a_run_measures_is_null() -> None:
    tables = {
        "scheme": {"public": "leaves"},
        "data": {"source": "digits"},
        "privacy": {"epsilon": 8.0, "delta": 0.01, "clipping": "public"},
    }
    told = plan(small(**tables))

    assert told["privacy"]["clip_norm"] is told["privacy"]["noise_stddev"] is None
    assert told["noise_multiplier"] > 0


def test_the_real_protocol_costs_the_same_whether_the_file_asks_for_it_or_not() -> None:
    ideal, real = (plan(small(privacy=PRIVATE, aggregation={"secure": how})) for how in ("ideal", "real"))

    for way in ("up", "down"):
        assert ideal[f"real_bytes_{way}_per_client_round"] == real[f"bytes_{way}_per_client_round"]
        assert real[f"real_bytes_{way}_per_client_round"] == real[f"bytes_{way}_per_client_round"]
    assert real["phases"] == real["bytes_per_client_phase"] == ideal["phases"]
    assert ideal["bytes_up_per_client_round"] < ideal["real_bytes_up_per_client_round"]


def test_clients_that_follow_the_model_are_sent_what_a_later_round_sends() -> None:
    ideal, real = (
        plan(small(scheme={"name": "sign-sgd"}, cohort={"sample_rate": 1}, aggregation={"secure": how}))
        for how in ("none", "real")
    )

    assert ideal["real_bytes_down_per_client_round"] == real["bytes_down_per_client_round"]


def test_session_keys_cost_what_a_run_with_them_does() -> None:
    everyone = {"cohort": {"sample_rate": 1}, "privacy": PRIVATE}
    fresh = plan(small(**everyone, aggregation=REAL))
    standing = plan(small(**everyone, aggregation={**REAL, "key_life": "session"}))

    told = fresh["if_session_keys"]
    assert told["up"] == standing["bytes_up_per_client_round"] < fresh["bytes_up_per_client_round"]
    assert told["down"] == standing["bytes_down_per_client_round"]
    assert told["enrolment"] == standing["bytes_enrolment_per_client"]
    assert standing["real_bytes_down_per_client_round"] == standing["bytes_down_per_client_round"]


def test_ballots_are_a_bit_a_value_and_need_a_second_server() -> None:
    told = plan(small(privacy=PRIVATE))["if_ballots"]

    assert told["up"] == ballot_size(650) == 82 + 144
    assert told["built"] is True and "does not collude" in told["needs"]


def test_masks_that_cannot_be_had_are_null_with_the_reason() -> None:
    told = plan(small(cohort={"sample_rate": "1/20"}))

    assert told["phases"] is told["real_bytes_up_per_client_round"] is None
    assert "one client" in told["real_refused"]


def test_devices_are_told_side_by_side_or_as_the_file_names_them() -> None:
    usual = plan(small())
    asked = plan(small(devices={"profile": "pi-wifi"}))

    assert len(usual["devices"]) > 4 and usual["joules_per_client"] is usual["seconds_simulated"] is None
    assert [device["name"] for device in asked["devices"]] == ["pi-wifi"]
    assert asked["joules_per_client"]["low"] < asked["joules_per_client"]["default"]
    assert asked["limits"]["joules"] == pytest.approx(asked["joules_per_client_run"]["high"], rel=1e-5)


def test_a_plan_of_a_private_run_tells_the_seconds_and_joules_that_the_run_publishes(tmp_path: Path) -> None:
    experiment = small(privacy=PRIVATE, devices={"profile": "phone-lte"})
    told, summary = plan(experiment), run(experiment, tmp_path / "run")

    assert told["seconds_simulated"] == pytest.approx(summary["seconds_simulated"], rel=1e-3)
    assert told["joules_per_client"] == summary["joules_per_client"]


def test_a_named_device_that_cannot_hold_the_model_is_refused_and_a_usual_one_is_shown() -> None:
    large = {"data": {"source": "fashion-mnist", "clients": 100}, "model": {"name": "cnn"}}

    fits = {device["name"]: device["fits"] for device in plan(small(**large))["devices"]}
    assert fits["phone-lte"] and not fits["sensor-nbiot"]
    with pytest.raises(InputError, match="does not fit sensor-nbiot"):
        plan(small(**large, devices={"profile": "sensor-nbiot"}))


def test_leaving_costs_noise_and_rounds() -> None:
    told = plan(small(privacy=PRIVATE, devices={"dropout": 0.4}))
    drop = told["dropouts"]

    assert drop["chance"] == pytest.approx(0.4)
    assert drop["epsilon_server_if_nobody_left"] < told["epsilon_server"]
    assert drop["noise_factor"] > 1
    assert 0.2 < drop["lost_rounds"] < 0.9, "7 of 10 must stay, and 6 are expected to"


def test_a_large_projection_is_fitted_on_fewer_records_and_said_to_be_estimated() -> None:
    tables = {"model": {"name": "logistic", "front": "scattering", "projection": {"dims": 40}}}
    told = plan(small(**tables))

    assert set(told["estimated"]) == {"bytes_setup_per_client", "projection.bytes"}
    assert "4,000 images" in told["projection"]["source"]
    few = {**tables, "model": {**tables["model"], "projection": {"dims": 40, "samples": shapes.PROJECTION_SAMPLE}}}
    assert plan(small(**few))["estimated"] == []


def test_the_accuracy_to_expect_falls_with_the_noise_and_is_a_band_below_the_plain_one() -> None:
    tables = {
        "data": {"source": "digits", "clients": 100},
        "model": {"name": "logistic", "front": "scattering"},
        "privacy": {"epsilon": 4.0, "delta": 1e-3},
    }
    told = plan(parse(tables), plain=0.95)["expected_accuracy"]
    less = plan(parse({**tables, "privacy": {"epsilon": 2.0, "delta": 1e-3}}), plain=0.95)["expected_accuracy"]

    assert told["low"] < told["default"] < told["high"] < told["plain"] == 0.95
    assert less["default"] < told["default"]
    assert plan(parse(tables))["expected_accuracy"] is None
