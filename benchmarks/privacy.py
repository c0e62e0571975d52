"""Measure the private path: draws, protecting, the ledger, the plan; opendp beside them in the same run."""

from __future__ import annotations

from benchmarks.measure import quiet_threads

quiet_threads()

import sys  # noqa: E402
import tempfile  # noqa: E402
from fractions import Fraction  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from time import perf_counter, process_time  # noqa: E402

import numpy as np  # noqa: E402

from benchmarks.table import Row, beside, missed, show  # noqa: E402
from sottovoce.core import wire  # noqa: E402
from sottovoce.privacy.accounting import distributions  # noqa: E402
from sottovoce.privacy.ledger import Ledger  # noqa: E402
from sottovoce.privacy.noise.randomness import Randomness  # noqa: E402
from sottovoce.privacy.noise.sampler import draw  # noqa: E402
from sottovoce.privacy.noise.table import Tables, centred_tables, fraction_tables  # noqa: E402
from sottovoce.privacy.plan.plan import PrivacyPlan  # noqa: E402

CNN = 1_663_370
DRAWS = 4_000_000
PEER_DRAWS = 20_000
PAPERS = {"clients": 6000, "sample_rate": 1 / 60, "rounds": 200, "delta": 1e-5}


def rows() -> list[Row]:
    return [
        *_sampler("std 4, one centre", 4.0, centred_tables(Fraction(16), (Fraction(0),)), spread=1),
        *_sampler("std 4, 256 centres", 4.0, fraction_tables(Fraction(16), 8), spread=10_000),
        *_sampler("std 199", 199.0, centred_tables(Fraction(199**2), (Fraction(1), Fraction(-1))), spread=2),
        beside("tables of 256 centres", partial(fraction_tables.__wrapped__, Fraction(16), 8), limit=500, repeats=5),
        *_protect(),
        _ledger(),
        _plan(),
    ]


def _sampler(name: str, stddev: float, tables: Tables, spread: int) -> list[Row]:
    """Return the time of one draw; 10 ns are a hundred million a second."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    peer = dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float), scale=stddev)
    zeros = [0] * PEER_DRAWS
    centres = np.random.default_rng(0).integers(0, spread, DRAWS).astype(np.int32)
    bits = Randomness.system().bits()
    draw(tables, centres, bits)
    best, peer_best = float("inf"), float("inf")
    for turn in range(9):
        began = process_time()
        draw(tables, centres, bits)
        best = min(best, process_time() - began)
        if turn < 2:
            began = process_time()
            peer(zeros)
            peer_best = min(peer_best, process_time() - began)
    ratio = (peer_best / PEER_DRAWS) / (best / DRAWS)
    return [Row(f"draw, {name} ({DRAWS / best / 1e6:.0f} million/s)", 1e9 * best / DRAWS, "ns", 10.0, "opendp", ratio)]


def _protect() -> list[Row]:
    """Time clip, grid, noise and pack of one message of the CNN."""
    rng = np.random.default_rng(0)
    update = (rng.standard_normal(CNN) * 1e-3).astype(np.float32)
    signs = np.where(update < 0, -1, 1).astype(np.int8)
    floats = PrivacyPlan.solve(**PAPERS, noise_multiplier=1.2244, clip_norm=0.61, length=CNN)
    ballots = PrivacyPlan.solve(**PAPERS, noise_multiplier=1.2244, form="signs", length=CNN)
    papers = PrivacyPlan.solve(**PAPERS, noise_multiplier=1.54, form="signs", grid="papers", length=CNN)

    def send(plan: PrivacyPlan, message: np.ndarray) -> bytes:
        return wire.pack(plan.protect(message, cohort=100, randomness=Randomness.system()), plan.bits)

    return [
        beside(f"clip, grid, noise, pack: floats, {floats.bits} bits", partial(send, floats, update), limit=60),
        beside(f"noise, pack: signs, {ballots.bits} bits", partial(send, ballots, signs), limit=60),
        beside(f"noise, pack: signs, step 1, {papers.bits} bits", partial(send, papers, signs), limit=60),
    ]


def _ledger() -> Row:
    """Time a charge by the clock: most of it is waiting for the disk."""
    waits = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Ledger(Path(folder) / "ledger.jsonl", digest="0" * 64, limit=10**6, deployment=True) as book,
    ):
        for round_ in range(1, 201):
            began = perf_counter()
            book.charge(round_)
            waits.append(perf_counter() - began)
    return Row("ledger charge, synced (median, wall)", 1e3 * float(np.median(waits)), "ms", 10.0)


def _plan() -> Row:
    """Time the whole plan at epsilon 1 by pld, nothing remembered from earlier ones; dp-accounting is imported."""
    best = float("inf")
    for _ in range(3):
        distributions.composed.cache_clear()
        distributions._one_round.cache_clear()
        began = process_time()
        PrivacyPlan.solve(**PAPERS, epsilon=1.0, clip_norm=0.61, length=CNN)
        best = min(best, process_time() - began)
    return Row("plan for epsilon 1 in 200 rounds, pld", 1e3 * best, "ms", 2000.0)


if __name__ == "__main__":
    measured = rows()
    show(measured)
    sys.exit(1 if missed(measured) else 0)
