"""The evidence of one aggregator, by scores that are drawn here and never played."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sottovoce.studies.audit.ballots.federation import sum_of
from sottovoce.studies.audit.ballots.views import AggregatorView
from sottovoce.threats.audit.bounds import epsilon_of_mu
from sottovoce.threats.audit.noise import NoiseSample

LENGTH = 120
STDDEV = 30.0
DELTA = 1e-3


def view(**fields: Any) -> AggregatorView:
    return AggregatorView("leader", "helper", LENGTH, 1, 0.5, NoiseSample(STDDEV**2), **fields)


def ballots(rng: np.random.Generator, seats: int) -> np.ndarray:
    return (2 * rng.integers(0, 2, (seats, LENGTH)) - 1).astype(np.int8)


def played(rng: np.random.Generator, cast: np.ndarray, rounds: int, *, known: bool = False) -> AggregatorView:
    """Play rounds whose noise the auditor knows or does not."""
    evidence = view()
    there = np.arange(len(cast)) % 2 == 0
    for _ in range(rounds):
        noise = np.rint(rng.normal(0, STDDEV, LENGTH))
        evidence.take(cast, there, ["signs"] * len(cast), noise, noise * known)
    return evidence


def test_a_score_is_what_one_ballot_adds() -> None:
    evidence, cast = view(), ballots(np.random.default_rng(1), 4)
    there = np.array([True, False, True, False])

    scores = evidence.take(cast, there, ["plus", "signs", "signs", "signs"], np.zeros(LENGTH), np.zeros(LENGTH))

    assert scores.tolist() == pytest.approx([math.sqrt(LENGTH), 0, math.sqrt(LENGTH), 0])
    assert {name: len(found) for name, found in evidence.kinds.items()} == {"plus": 1, "signs": 1}


def test_the_bound_holds_although_all_scores_of_a_round_are_one() -> None:
    """Eight canaries with the same ballot are one measurement, and not eight.

    At confidence 0.9 more than 33 of 200 bounds are above the truth in one case of 650. As if all ballots were
    orthogonal, 57 are.
    """
    rng = np.random.default_rng(7)
    same = np.repeat(ballots(rng, 1), 8, axis=0)
    same[1::2] *= -1  # those that are out, so that the noise does not cancel
    truth = epsilon_of_mu(math.sqrt(LENGTH) / STDDEV, DELTA)

    above = sum(played(rng, same, 4).conditional(DELTA, 0.1) > truth for _ in range(200))

    assert above <= 33


@pytest.mark.parametrize(("known", "rounds", "near"), [(False, 2000, 0.85), (True, 100, 0.95)])
def test_the_bound_comes_near_the_truth_and_sooner_off_known_noise(known: bool, rounds: int, near: float) -> None:
    rng = np.random.default_rng(3)
    truth = epsilon_of_mu(math.sqrt(LENGTH) / STDDEV, DELTA)

    shown = played(rng, ballots(rng, 16), rounds, known=known).conditional(DELTA, 1e-3)

    assert near * truth < shown < truth


def test_known_noise_that_the_sum_does_not_hold_shows_no_more() -> None:
    """An auditor that takes off noise which is not there measures through it."""
    rng, cast = np.random.default_rng(4), ballots(np.random.default_rng(4), 16)
    evidence, there = view(), np.arange(16) % 2 == 0
    for _ in range(50):
        noise, other = (np.rint(rng.normal(0, STDDEV, LENGTH)) for _ in range(2))
        evidence.take(cast, there, ["signs"] * 16, noise, other)

    assert evidence.conditional(DELTA, 1e-3) < 0.9 * epsilon_of_mu(math.sqrt(LENGTH) / STDDEV, DELTA)
    assert evidence.rest.squares / evidence.rest.values == pytest.approx(2 * STDDEV**2, rel=0.1)


def test_votes_add_up_as_they_were_cast() -> None:
    cast = ballots(np.random.default_rng(5), 300)
    packed = [np.packbits(row > 0, bitorder="little") for row in cast]

    assert np.array_equal(sum_of(packed, LENGTH), cast.sum(axis=0, dtype=np.int64))
    assert not sum_of([], LENGTH).any()
