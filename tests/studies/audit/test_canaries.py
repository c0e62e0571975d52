from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

from sottovoce.core.streams import Seeds
from sottovoce.federation.coding import Private, Terms
from sottovoce.privacy import PrivacyPlan
from sottovoce.studies.audit.canaries import Canaries, Canary, nothing
from sottovoce.studies.audit.units import UnitFormulas

LENGTH = 400


def plan(**keys: Any) -> PrivacyPlan:
    base = {"clients": 40, "sample_rate": 0.5, "rounds": 3, "delta": 1e-2, "length": LENGTH, "accountant": "rdp"}
    return PrivacyPlan.solve(**{**base, "noise_multiplier": 1.0, "clip_norm": 0.5, **keys})


PLANS = {
    "fixed": {},
    "adaptive": {"clipping": "adaptive", "count_stddev": 1.0},
    "signs": {"form": "signs", "clip_norm": 0.0},
    "continuous": {"mechanism": "gaussian"},
}


@pytest.mark.parametrize("form", ["dirac", "dense"])
@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_a_float_canary_has_the_norm_that_it_says(form: Any, scale: float) -> None:
    canary = Canary(7, form, scale)

    message = canary.message(plan(), 0.5)

    assert message.dtype == np.float32
    assert np.linalg.norm(message) == pytest.approx(0.5 * scale, rel=1e-6)
    assert canary.project(message) == pytest.approx(0.5 * scale, rel=1e-6), "it lies in its own direction"


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("form", ["dirac", "dense"])
def test_its_words_are_one_radius_from_those_of_nothing_on_average(kind: str, form: Any) -> None:
    """The mean of 300 rounds is within 6 standard deviations: a false alarm in one of 10^8."""
    coding = Private(plan(**PLANS[kind]), Seeds(3))
    units, terms, rounds = UnitFormulas(coding.plan), Terms(20, coding.plan.request.clip_norm), 300
    canary = Canary(5, "signs" if kind == "signs" else form, 10.0)
    message = canary.message(coding.plan, terms.clip_norm)
    length = coding.plan.request.length

    def mean(make: Any) -> np.ndarray:
        return np.mean([units.signed(make(round_)) for round_ in range(rounds)], axis=0)

    present = mean(lambda round_: coding.words(message, terms, round_, 1))
    absent = mean(lambda round_: nothing(coding, terms, round_, 2))
    near = 6 * math.sqrt(units.variance / 20 / rounds)
    assert abs(canary.project(present[:length]) - units.update_radius) < near + 0.01 * units.radius
    assert abs(canary.project(absent[:length])) < near
    if kind == "adaptive":
        assert abs(present[-1] + units.count_centre) < near
        assert abs(absent[-1]) < near


@pytest.mark.parametrize("kind", PLANS)
def test_still_clients_are_where_the_units_say(kind: str) -> None:
    """The same rate as above."""
    coding = Private(plan(**PLANS[kind]), Seeds(4))
    units, terms = UnitFormulas(coding.plan), Terms(20, coding.plan.request.clip_norm)
    signs = np.packbits(np.ones(LENGTH, np.uint8), bitorder="little")
    message = signs if kind == "signs" else np.zeros(LENGTH, np.float32)

    words = [units.signed(coding.words(message, terms, round_, 1)) for round_ in range(300)]

    error = np.mean(words, axis=0) - units.still()
    assert np.abs(error).max() < 7 * math.sqrt(units.variance / 20 / 300)


def test_update_and_count_together_make_the_radius() -> None:
    units = UnitFormulas(plan(**PLANS["adaptive"]))

    assert math.hypot(units.update_radius, units.count_centre) == pytest.approx(units.radius, rel=5e-3)
    assert math.hypot(units.update_radius, units.count_centre) <= units.radius


def test_canaries_travel_to_worker_processes() -> None:
    canaries = Canaries({3: Canary(1), 8: Canary(2, "dense")}, frozenset({8}))

    assert pickle.loads(pickle.dumps(canaries)) == canaries
