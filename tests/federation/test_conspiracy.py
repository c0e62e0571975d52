"""What malicious clients put under the mask: nothing checks it, and nothing of it wraps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sottovoce.core.streams import Seeds
from sottovoce.federation.coding import Clear, FloatGrid, Private, SignGrid, Terms
from sottovoce.federation.wrappers.conspiracy import Conspiracy
from sottovoce.privacy import PrivacyPlan
from sottovoce.schemes.packed_signs import expand
from sottovoce.threats.attacks import EnergyAware, InBackdoor, QuarterModulus

LENGTH = 400
TERMS = Terms(60, 0.0)
PLAN: dict[str, Any] = {"clients": 600, "sample_rate": 0.1, "rounds": 10, "noise_multiplier": 2.0, "delta": 1e-4}


def scene(malicious: int = 1) -> Any:
    return SimpleNamespace(round=1, malicious=tuple(range(malicious)))


def plotting(attack: Any, **keys: Any) -> Conspiracy:
    usual: dict[str, Any] = {"boost": 1.0, "data": "mnist", "fraction": 0.1, "cohort": 60.0}
    return Conspiracy(attack, **{**usual, **keys})


def private(form: str, **keys: Any) -> Private:
    clip = {"clip_norm": 0.5} if form == "floats" else {}
    return Private(PrivacyPlan.solve(length=LENGTH, form=form, **clip, **PLAN, **keys), Seeds(3))


def opened(coding: Any, words: Any, terms: Terms = TERMS, senders: int = 1) -> Any:
    """Return the sum that a total stands for, with no noise made up."""
    if isinstance(coding, Private):
        bits = coding.bits
        signed = (words.astype(np.int64) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
        return signed * coding.plan.step()
    return coding.open(words, terms, senders, 1).values


def test_a_boosted_message_in_the_clear_is_the_message_times_the_boost_and_never_too_large_to_be_taken() -> None:
    message = np.linspace(-1, 1, LENGTH, dtype=np.float32)
    coding = Clear("floats", LENGTH, 60)
    words = plotting(InBackdoor(), boost=7.0).words(scene(), 0, message, coding, TERMS)
    huge = plotting(InBackdoor(), boost=1e9).words(scene(), 0, message, coding, TERMS)

    assert np.allclose(words, 7 * message)
    assert np.abs(huge).max() == 4096
    coding.fold.add(coding.fold.empty(), coding.pack(huge))


def test_a_sign_in_the_clear_cannot_be_boosted() -> None:
    message = np.random.default_rng(1).integers(0, 256, LENGTH // 8, np.uint8)

    assert np.array_equal(
        plotting(InBackdoor(), boost=50.0).words(scene(), 0, message, Clear("signs", LENGTH, 60), TERMS), message
    )


def test_under_a_secure_sum_of_votes_one_client_can_vote_many_times() -> None:
    message = np.random.default_rng(1).integers(0, 256, LENGTH // 8, np.uint8)
    coding = SignGrid(LENGTH, 60)
    words = plotting(InBackdoor(), boost=9.0).words(scene(), 0, message, coding, TERMS)

    votes = 2 * words.astype(np.int64) - 1
    signed = np.where(votes >= 64, votes - 128, votes)  # six bits
    assert np.array_equal(signed, 9 * expand(message, LENGTH))


def test_a_malicious_client_of_a_secure_float_sum_ignores_the_range() -> None:
    message = np.full(LENGTH, 3.0, np.float32)
    coding = FloatGrid(LENGTH, 60, 4.0)
    words = plotting(InBackdoor(), boost=10.0).words(scene(), 0, message, coding, TERMS)

    assert np.allclose(opened(coding, words), 30, rtol=1e-6)


@pytest.mark.parametrize("malicious", [1, 3])
def test_no_noise_no_clipping_and_no_wrap_in_a_private_run(malicious: int) -> None:
    coding = private("floats")
    message = np.random.default_rng(2).normal(0, 0.2, LENGTH).astype(np.float32)  # eight clip norms long
    words = plotting(InBackdoor(), boost=2.0).words(scene(malicious), 0, message, coding, TERMS)

    limit = (1 << coding.bits) // (4 * malicious)
    wanted = np.clip(2 * message, -limit * coding.plan.step(), limit * coding.plan.step())
    assert np.abs(opened(coding, words) - wanted).max() <= coding.plan.step() / 2 + 1e-9
    assert np.array_equal(words, plotting(InBackdoor(), boost=2.0).words(scene(malicious), 1, message, coding, TERMS))


def test_attackers_may_keep_clipping_and_noise() -> None:
    coding = private("floats")
    message = np.random.default_rng(2).normal(0, 0.2, LENGTH).astype(np.float32)
    keeping = plotting(InBackdoor(), skip_clipping=False, omit_noise=False)
    words = opened(coding, keeping.words(scene(), 0, message, coding, TERMS))
    honest = opened(coding, coding.words(message, TERMS, 1, 0))
    clipped = plotting(InBackdoor(), skip_clipping=False).words(scene(), 0, message, coding, TERMS)

    assert np.abs(words - honest).max() <= coding.plan.step() + 1e-9  # the same noise, centres rounded once more
    rounding = coding.plan.step() * np.sqrt(LENGTH) / 2
    assert np.linalg.norm(opened(coding, clipped)) == pytest.approx(0.5, abs=rounding)
    assert np.linalg.norm(message) > 0.5 + 2 * rounding


def test_signs_boosted_by_5000_stay_within_a_quarter_of_the_modulus() -> None:
    coding = private("signs")
    message = np.random.default_rng(1).integers(0, 256, LENGTH // 8, np.uint8)
    words = opened(coding, plotting(InBackdoor(), boost=5000.0).words(scene(2), 0, message, coding, TERMS))

    quarter = (1 << coding.bits) / 4 * coding.plan.step()
    assert np.array_equal(np.sign(words), expand(message, LENGTH))
    assert np.abs(words).max() <= quarter / 2
    assert np.abs(words).min() > quarter / 2 - 2 * coding.plan.step()


@pytest.mark.parametrize("form", ["floats", "signs"])
def test_a_quarter_of_the_modulus_in_every_value_shared_among_the_attackers(form: str) -> None:
    coding = private(form)
    rng = np.random.default_rng(1)
    if form == "signs":
        message = rng.integers(0, 256, LENGTH // 8, np.uint8)
    else:
        message = rng.normal(0, 1e-6, LENGTH).astype(np.float32)
    words = opened(coding, plotting(QuarterModulus()).words(scene(2), 0, message, coding, TERMS)) / coding.plan.step()

    assert np.allclose(np.abs(words), (1 << coding.bits) // 8)


@pytest.mark.parametrize("malicious", [1, 4])
def test_the_energy_aware_attacker_fills_the_room_that_the_guard_leaves(malicious: int) -> None:
    coding = private("floats")
    message = np.random.default_rng(5).normal(0, 1, LENGTH).astype(np.float32)
    words = opened(coding, plotting(EnergyAware()).words(scene(malicious), 0, message, coding, TERMS))

    variance = (coding.plan.stddev() / 0.5) ** 2
    radius = np.sqrt(2 * variance * np.sqrt(2 * LENGTH) + malicious * variance * LENGTH / 60)
    assert malicious * np.linalg.norm(words) / 0.5 == pytest.approx(radius, rel=0.02)


def test_under_adaptive_clipping_the_count_of_an_attacker_is_nothing() -> None:
    coding = private("floats", clipping="adaptive")
    words = plotting(InBackdoor()).words(scene(), 0, np.ones(LENGTH, np.float32), coding, Terms(60, 2.0))

    assert len(words) == LENGTH + 1
    assert words[-1] == 0
