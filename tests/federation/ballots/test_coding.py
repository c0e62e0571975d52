"""Messages as ballots, and counted votes as messages."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sottovoce.core.errors import RunError, WireError
from sottovoce.core.streams import Seeds
from sottovoce.federation.aggregation.ballots.coding import BallotForm, Ballots, BallotSum, rotate, rotate_back
from sottovoce.federation.coding import Terms
from sottovoce.privacy import PrivacyPlan
from sottovoce.schemes.packed_signs import expand, pack_signs

TERMS = Terms(0, 1.0)


def ballots(form: BallotForm, length: int = 300, noise: float = 0.5) -> Ballots:
    plan = PrivacyPlan.solve(
        clients=50,
        sample_rate=0.5,
        rounds=3,
        delta=1e-3,
        length=length,
        clip_norm=1.0,
        noise_multiplier=noise,
        noise_by="aggregators",
    )
    return Ballots(plan, Seeds(5), form)


@pytest.mark.parametrize("form", ["stochastic", "rotated"])
def test_a_ballot_is_the_message_on_average(form: BallotForm) -> None:
    coding = ballots(form)
    message = np.random.default_rng(1).normal(0, 0.3 / math.sqrt(300), 300).astype(np.float32)
    votes = np.zeros(300)
    for client in range(2000):
        votes += expand(coding.words(message, TERMS, 1, client), 300)

    mean = coding.decode(votes / 2000, 1).values
    # Each value is off by at most c / sqrt(2000) in one deviation; six of them never in 300 values.
    assert np.abs(mean - message).max() < 6 / math.sqrt(300 * 2000)


def test_a_message_beyond_the_bound_saturates_and_nothing_more() -> None:
    coding = ballots("stochastic")
    far = np.full(300, 1e6, np.float32)

    assert expand(coding.words(far, TERMS, 1, 0), 300).tolist() == [1] * 300
    assert expand(coding.words(-far, TERMS, 1, 0), 300).tolist() == [-1] * 300


def test_every_ballot_is_one_clip_norm_long_in_every_form() -> None:
    for form in ("sign", "stochastic", "rotated"):
        coding = ballots(form)
        votes = expand(coding.words(np.ones(300, np.float32), TERMS, 2, 3), 300)
        length = float(np.linalg.norm(coding.decode(votes, 2).values))
        assert length == pytest.approx(1.0, rel=1e-5)


def test_zeros_are_voted_on_by_a_fair_coin() -> None:
    coding = ballots("sign")
    votes = [expand(coding.words(np.zeros(300, np.float32), TERMS, 1, client), 300) for client in range(40)]

    assert abs(np.mean(votes)) < 6 / math.sqrt(300 * 40)


def test_a_rotation_keeps_lengths_is_undone_and_is_new_in_every_round() -> None:
    values = np.random.default_rng(2).normal(size=301).astype(np.float32)
    signs = pack_signs(np.random.default_rng(3).normal(size=301).astype(np.float32), np.random.default_rng(0))

    turned = rotate(values, signs)

    assert np.linalg.norm(turned) == pytest.approx(np.linalg.norm(values), rel=1e-5)
    np.testing.assert_allclose(rotate_back(turned, signs), values, atol=1e-5)
    coding = ballots("rotated")
    wanted = np.ones(300, np.float32)
    cast = [coding.aimed(wanted, round_).tobytes() for round_ in range(5)]
    assert len(set(cast)) == 5


def test_the_rotation_is_public_and_the_coins_are_the_clients_own() -> None:
    message = np.full(300, 0.01, np.float32)
    first, second = ballots("rotated"), ballots("rotated")

    assert first.words(message, TERMS, 4, 9).tobytes() == second.words(message, TERMS, 4, 9).tobytes()
    assert first.words(message, TERMS, 4, 9).tobytes() != first.words(message, TERMS, 4, 10).tobytes()


def test_both_noises_are_on_an_opened_count_and_differ() -> None:
    coding = ballots("stochastic")
    total = np.zeros(300, np.int32)

    opened = coding.open(total, TERMS, 10, 1).values / coding.plan.step()

    leader, helper = coding.leader_noise(1), coding.helper_noise(1)
    np.testing.assert_allclose(opened, leader + helper, atol=1e-3)
    assert (leader != helper).any() and (leader != coding.leader_noise(2)).any()


@pytest.mark.parametrize("change", [b"", b"x"])
def test_a_ballot_of_another_length_is_not_counted(change: bytes) -> None:
    fold = BallotSum(10)
    tally = fold.empty()
    payload = bytes(fold.payload_size)[:-1] if not change else bytes(fold.payload_size) + change

    with pytest.raises(WireError, match="146 bytes"):
        fold.add(tally, payload)
    assert tally.count == 0


def test_bits_after_the_last_vote_are_refused() -> None:
    fold = BallotSum(10)
    tally = fold.empty()

    with pytest.raises(WireError, match="must be zero"):
        fold.add(tally, bytes([0, 4]) + bytes(144))
    assert tally.count == 0


def test_a_diverged_client_casts_no_ballot() -> None:
    with pytest.raises(RunError, match="not finite"):
        ballots("rotated").words(np.full(300, np.nan, np.float32), TERMS, 1, 0)


def test_an_aggregator_that_takes_its_own_noise_off_still_faces_the_others() -> None:
    """The variance of 4,000 draws is 2.2 % off in one of three cases; 2/3 and 3/2 of it are ten times as far."""
    coding = ballots("stochastic", length=4000, noise=2.0)
    opened = np.rint(coding.open(np.zeros(4000, np.int32), TERMS, 10, 1).values / coding.plan.step())
    each = 2.0**2 * 4000 / 2 + 4

    for own in (coding.leader_noise(1), coding.helper_noise(1)):
        assert abs(float((opened - own).var()) / each - 1) < 0.13
