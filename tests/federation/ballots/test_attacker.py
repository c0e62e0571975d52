"""An optimiser as attacker: hill climbing on the bytes of its message, with the opened sum as reward."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from sottovoce.core import wire
from sottovoce.federation.aggregation.ballots.coding import BallotForm, BallotSum
from sottovoce.federation.coding import Private, Terms
from sottovoce.federation.wrappers.conspiracy import Conspiracy
from sottovoce.schemes.packed_signs import expand
from sottovoce.threats.attacks import ATTACKS
from tests.federation.ballots.test_coding import ballots
from tests.secagg.ballots.stage import Stage, without_base_transfers


def climb(start: bytes, reward: Callable[[bytes], float], steps: int, often: int = 0) -> float:
    """Flip single bits, every second one in the first `often` bytes, and keep what is no worse; return the best."""
    rng = np.random.default_rng(3)
    best, value = bytearray(start), reward(start)
    for step in range(steps):
        tried = bytearray(best)
        tried[int(rng.integers(often if often and step % 2 else len(tried)))] ^= 1 << int(rng.integers(8))
        gained = reward(bytes(tried))
        if gained >= value:
            best, value = tried, gained
    return value


def test_the_best_message_against_ballots_is_one_vote_a_coordinate(monkeypatch: pytest.MonkeyPatch) -> None:
    without_base_transfers(monkeypatch)
    length = 24
    stage = Stage(length, clients=3, most=10**9)
    rounds = iter(range(1, 10**6))
    seen: list[int] = []

    def reward(payload: bytes) -> float:
        round_ = next(rounds)
        honest = {client: stage.message(round_, client, stage.votes(client)) for client in (0, 1)}
        votes = 2 * np.unpackbits(np.frombuffer(payload[:3], np.uint8), bitorder="little").astype(int) - 1
        message = stage.message(round_, 2, votes)
        flipped = payload[3:]  # whatever else it changes travels on top of its own valid message
        mixed = bytes(a ^ b for a, b in zip(message[3:], flipped, strict=True))
        counted = stage.count(round_, {**honest, 2: message[:3] + mixed}, refused={})
        added = counted - stage.votes(0) - stage.votes(1)
        seen.append(int(np.abs(added).max()))
        return float(added.sum())

    best = climb(bytes([0xFF, 0xFF, 0]) + bytes(144), reward, 250, often=3)

    assert max(seen) == 1
    assert best == length


@pytest.mark.parametrize("name", sorted(ATTACKS))
@pytest.mark.parametrize("form", ["sign", "stochastic", "rotated"])
def test_every_attack_comes_to_one_ballot_however_it_boosts(name: str, form: BallotForm) -> None:
    coding = ballots(form)
    attack = ATTACKS[name](**({"cohort": 10.0} if "cohort" in ATTACKS[name].__dataclass_fields__ else {}))
    conspiracy = Conspiracy(attack, boost=5000.0, data="digits", fraction=0.2, cohort=10.0)
    scene = SimpleNamespace(round=3, malicious=(1, 2))
    values = np.random.default_rng(1).normal(size=300).astype(np.float32) * 1e6

    words = conspiracy.words(scene, 1, values, coding, Terms(0, 1.0))  # type: ignore[arg-type]

    added = coding.decode(expand(words, 300), 3).values
    assert np.linalg.norm(added) == pytest.approx(1.0, rel=1e-5)  # one clip norm
    assert float(added @ values) > 0.5 * float(np.linalg.norm(values))  # and as far towards its aim as votes go


def test_any_ballot_is_as_long_as_any_other() -> None:
    fold = BallotSum(300)
    rng = np.random.default_rng(1)
    for _ in range(50):
        tally = fold.empty()
        packed = bytearray(rng.bytes(38))
        packed[-1] &= 0x0F
        fold.add(tally, bytes(packed) + bytes(144))
        assert set(np.abs(fold.total(tally)).tolist()) == {1}


def test_against_noisy_words_it_reaches_at_least_ten_deviations() -> None:
    """The same climber against today's private scheme: one client's words, the sum opened as the server does."""
    from sottovoce.core.streams import Seeds
    from sottovoce.privacy import PrivacyPlan

    plan = PrivacyPlan.solve(
        clients=50, sample_rate=0.5, rounds=3, delta=1e-3, length=6, clip_norm=1.0, noise_multiplier=1.0
    )
    coding = Private(plan, Seeds(5))
    terms = Terms(20, 1.0)
    honest = coding.fold.empty()
    for client in range(19):
        coding.fold.add(honest, coding.pack(coding.words(np.zeros(6, np.float32), terms, 1, client)))
    header = wire.HEADER
    base = coding.pack(np.zeros(6, np.uint32))

    def reward(payload: bytes) -> float:
        words = wire.unpack(_framed(base, payload, coding.bits), length=6, bits=coding.bits)
        total = coding.fold.empty()
        coding.fold.merge(total, honest)
        coding.fold.add(total, coding.pack(words.view(np.uint32)))
        return float(np.max(coding.open(coding.fold.total(total), terms, 20, 1).values)) / plan.stddev()

    best = climb(base[header:], reward, 400)

    assert best > 10


def _framed(base: bytes, body: bytes, bits: int) -> bytes:
    words = np.frombuffer(body + bytes(32), np.uint8)
    unpacked = np.unpackbits(words, bitorder="little")[: 6 * bits].reshape(6, bits)
    values = (unpacked.astype(np.uint64) << np.arange(bits, dtype=np.uint64)).sum(axis=1).astype(np.uint32)
    return wire.pack(values, bits=bits)
