"""What the guarantee rests on and no sum, accuracy or epsilon shows: mistakes that no other test would see."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, chisquare, norm

from sottovoce.privacy.accounting import accountant
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.noise.randomness import Randomness
from sottovoce.privacy.plan.cohort import draw_cohort
from sottovoce.privacy.plan.plan import PrivacyPlan

FALSE_ALARM = 1e-6
SMALL: dict[str, Any] = {
    "clients": 100,
    "sample_rate": 0.2,
    "rounds": 5,
    "delta": 1e-3,
    "noise_multiplier": 2.0,
    "clip_norm": 0.5,
    "length": 1,
    "accountant": "moments",
}


def plan(**keys: Any) -> PrivacyPlan:
    return PrivacyPlan.solve(**{**SMALL, **keys})


def key(*path: int) -> Randomness:
    return Randomness.simulated(np.random.default_rng(path).bytes(32))


def signed(words: NDArray[np.uint32], bits: int | None) -> NDArray[np.float64]:
    assert bits is not None
    return np.where(words >= 2 ** (bits - 1), words - 2.0**bits, words)


def delta_of(epsilon: float, multiplier: float) -> float:
    """Return the exact delta of one Gaussian release (Balle and Wang 2018)."""
    mu = 1 / multiplier
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


# What one client may weigh.


def test_an_update_and_its_count_together_weigh_what_is_charged() -> None:
    """Measure both from 500 clients of norm S: mean over the cohort's noise is 1 / z, here within a fifth.

    The mean has a relative standard error of 1 per cent and the noise of 3, so false alarms are below FALSE_ALARM. A
    count of +-1 instead of +-1/2 would give 1.7 / z.
    """
    solved = plan(clipping="adaptive", count_stddev=1.25, clients=400, sample_rate=0.25)
    message = np.array([0.5], np.float32)
    words = [solved.protect(message, cohort=100, randomness=key(k), clip_norm=0.5) for k in range(500)]
    values = signed(np.array(words), solved.bits)
    moved = np.linalg.norm(values.mean(axis=0))
    noise = math.sqrt(100 * values.var(axis=0).mean())

    assert values.shape == (500, 2)
    assert 0.8 / 2.0 < moved / noise < 1.2 / 2.0


def test_a_count_is_one_for_each_client_below_the_norm() -> None:
    """Three quarters of 200 clients are short: the norm moves by exp(-lr (3/4 - 1/2)), give or take six deviations."""
    solved = plan(clipping="adaptive", count_stddev=2.0, clients=400, sample_rate=0.5, clip_lr=1.0)
    short, long = np.array([0.1], np.float32), np.array([9.0], np.float32)
    words = [
        solved.protect(long if k % 4 == 0 else short, cohort=200, randomness=key(k), clip_norm=0.5) for k in range(200)
    ]
    total = np.sum(words, axis=0, dtype=np.uint32)
    release = solved.recover(total, cohort=200, survivors=200, randomness=key(1, 1), clip_norm=0.5)

    assert math.log(release.clip_norm / 0.5) == pytest.approx(-0.25, abs=6 * 2.1 / 200)


# What is charged.


@pytest.mark.parametrize("before", [0, 1])
def test_the_server_is_charged_for_every_participation_that_a_client_may_make(before: int) -> None:
    """And for the releases before round 1: all of them are one Gaussian, whose delta is known exactly."""
    spent = (Event(noise_multiplier=2.0, sample_rate=0.2, rounds=1),) * before
    solved = plan(accountant="pld", max_participations=4, spent=spent)
    multiplier = 2.0 / math.sqrt(4 + before)

    assert solved.max_participations == 4
    assert 0.999e-3 < delta_of(solved.epsilon_server, multiplier) <= 1e-3


def test_a_part_of_delta_is_kept_for_what_the_gaussian_does_not_describe() -> None:
    """The lattice's distance from a Gaussian and cohorts that are cut cost delta too, so epsilon is that of less."""
    solved = plan(accountant="rdp")

    assert solved.epsilon > accountant.epsilon(solved.events(), delta=1e-3, accountant="rdp")
    of_server = [(2.0, solved.max_participations)]
    assert solved.epsilon_server > accountant.epsilon_server(of_server, delta=1e-3, accountant="rdp")


def test_under_fixed_size_sampling_nobody_ever_reaches_the_participation_cap() -> None:
    """There a client that sits out would tell on the others: all clients' chances together are a part of delta."""
    solved = plan(sampling="fixed", rounds=400)
    one = float(binom.sf(solved.max_participations, 400, 0.2)) * (1 + math.exp(solved.epsilon))

    assert solved.max_participations < 400
    assert solved.request.clients * one < 1e-5 * 1e-3


# Who takes part.


def test_clients_over_their_cap_are_cut_like_the_others_and_sit_out_afterwards() -> None:
    """Taken out before, they would make room for others, whose chance would then depend on them.

    All 100 are drawn, ten of them may take part, and the cap is ten: false alarms 1 in 10^13.
    """
    draws = np.full(100, 7, np.int32)
    draws[::10] = 0
    cohort = draw_cohort(
        draws,
        sampling="poisson",
        sample_rate=1.0,
        size=100,
        cohort_cap=10,
        max_participations=7,
        rng=np.random.default_rng(3),
    )

    assert cohort.clients.size < 10
    assert np.isin(cohort.clients, np.arange(0, 100, 10)).all()


def test_a_cohort_is_cut_to_a_uniformly_random_subset() -> None:
    """Chi-square over 50 clients at FALSE_ALARM (conservative: draws without replacement vary less)."""
    times = np.zeros(50)
    rng = np.random.default_rng(4)
    for _ in range(500):
        cohort = draw_cohort(
            np.zeros(50, np.int32),
            sampling="poisson",
            sample_rate=1.0,
            size=50,
            cohort_cap=10,
            max_participations=1000,
            rng=rng,
        )
        assert cohort.clients.size == 10
        times[cohort.clients] += 1

    assert chisquare(times).pvalue > FALSE_ALARM


# Where the noise comes from.


def test_noise_of_the_operating_system_is_new_every_time() -> None:
    keys = {Randomness.system().key for _ in range(50)}

    assert len(keys) == 50
    assert not any(Randomness.system().repeatable for _ in range(3))
    ones = int(np.unpackbits(np.frombuffer(b"".join(keys), np.uint8)).sum())
    assert abs(ones - 6400) < 5 * 57  # 12,800 fair bits: false alarms below FALSE_ALARM


def test_noise_does_not_repeat_within_a_message() -> None:
    """Correlate the first 20,000 values with those at every later power of two: 17 tests at FALSE_ALARM."""
    solved = plan(length=200_000)
    noise = signed(solved.protect(np.zeros(200_000, np.float32), cohort=20, randomness=key(8)), solved.bits)
    limit = norm.isf(FALSE_ALARM / 2) / math.sqrt(20_000)
    for shift in (1 << power for power in range(1, 18)):
        assert abs(np.corrcoef(noise[:20_000], noise[shift : shift + 20_000])[0, 1]) < limit


# What is on disk.


class Disk:
    """What would be left after a crash: the content of each file when it was last synchronised, and synced folders."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.content = b""
        self.folders: list[int] = []
        original = os.fsync

        def fsync(descriptor: int) -> None:
            original(descriptor)
            found = os.fstat(descriptor)
            if path.exists() and found.st_ino == path.stat().st_ino:
                self.content = path.read_bytes()
            self.folders.append(found.st_ino)

        monkeypatch.setattr(os, "fsync", fsync)


def test_a_charge_is_on_disk_when_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.jsonl"
    disk = Disk(monkeypatch, path)
    with Ledger(path, digest="ab" * 32, limit=5, deployment=True) as book:
        assert disk.content.count(b"\n") == 1
        assert tmp_path.stat().st_ino in disk.folders, "a file whose name is not on disk is lost with all it holds"
        for round_ in (1, 2, 3):
            book.charge(round_)
            assert disk.content == path.read_bytes()
            assert disk.content.count(b"\n") == 1 + round_


def test_a_torn_line_is_cut_off_and_counted_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, digest="ab" * 32, limit=5, deployment=True) as book:
        book.charge(1)
    path.write_bytes(path.read_bytes() + b'{"index": 2, "ki')
    disk = Disk(monkeypatch, path)
    with Ledger(path, digest="ab" * 32, limit=5, deployment=True) as book:
        assert book.spent == 2
        assert disk.content == path.read_bytes()
        assert b"torn" in disk.content
