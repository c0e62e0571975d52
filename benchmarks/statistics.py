"""Errors of private statistics beside OpenDP's: the same query, records, epsilon and delta, as if one machine had all.

python -m benchmarks.statistics            exit 1 if an error is larger than was asked
python -m benchmarks.statistics --draws N  more draws of the noise; the default takes about a minute

OpenDP has the strongest form that its library offers for our neighbours (one record less): numbers are moved to the
middle of their range, the number of all records is public, and its Gaussian is found by a search for the smallest
scale. Its Laplace noise is beside it: for a single count or sum alone that is smaller, and no secure sum can share it.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.config.experiment import parse
from sottovoce.federation.stages.answers import SurveyAnswers
from sottovoce.federation.stages.tally import SurveyTally
from sottovoce.models import Shard
from sottovoce.models.units import CentreGrid
from sottovoce.privacy.noise.randomness import Randomness

RECORDS, SITES, EPSILON, DELTA = 20_000, 30, 1.0, 1e-6
BINS, LOW, HIGH = 20, 18.0, 90.0
ALLOWED = {"epsilon": 1.05, "epsilon_server": math.sqrt(1.5)}
Array = np.ndarray[Any, Any]

SCHEMA = f"""
[columns.age]
kind = "number"
minimum = {LOW}
maximum = {HIGH}
missing = "refuse"
[columns.sick]
kind = "category"
categories = ["no", "yes"]
"""
QUERIES = {
    "count": {"columns": ["sick"], "what": ["categories"]},
    "sum": {"columns": ["age"], "what": ["mean"]},
    "mean": {"columns": ["age"], "what": ["mean"]},
    "histogram": {"columns": ["age"], "what": ["histogram"], "bins": BINS},
    "median": {"columns": ["age"], "what": ["quantiles"], "bins": 72, "quantiles": [0.5]},
}


class Errors(NamedTuple):
    """Root mean squared errors of one query: ours at either target, OpenDP's Gaussian, and its best pure one."""

    outsiders: float
    server: float
    gaussian: float
    pure: float


def records() -> tuple[Array, Array]:
    rng = np.random.default_rng(27)
    return np.clip(rng.normal(48, 15, RECORDS), LOW, HIGH).round(1), rng.random(RECORDS) < 0.2


def ours(query: str, target: str, folder: Path, draws: int) -> float:
    """Return our error, over real draws of all sites' shares of the noise."""
    parts = gather(
        parse(
            {
                "data": {"source": str(folder / "site_*.csv"), "schema": str(folder / "schema.toml")},
                "statistics": QUERIES[query],
                "privacy": {"unit": "record", target: EPSILON, "delta": DELTA},
            }
        )
    )
    plan, tally = protect(parts).plan, parts.scheme
    if plan is None or not isinstance(tally, SurveyTally):
        raise SystemExit("no plan was solved")
    grid, codes = CentreGrid(*plan.unit_grid), parts.dataset.x_train
    totals = []
    for site in range(SITES):
        mine = codes[parts.partition.records(site)]
        totals.append(tally.total(Shard(mine, np.zeros(len(mine), np.int64)), grid))
    errors = []
    exact = read(query, tally, np.sum(totals, axis=0) / grid.steps, plan, grid)
    for _ in range(draws):
        words = np.zeros(tally.length, np.uint64)
        for total in totals:
            words += plan.protect_total(total, cohort=SITES, randomness=Randomness.system())
        words &= np.uint64((1 << plan.grid.bits) - 1)  # type: ignore[union-attr]
        released = plan.recover(words.astype(np.uint32), cohort=SITES, survivors=SITES, randomness=Randomness.system())
        errors.append(read(query, tally, released.total, plan, grid) - exact)
    return rms(errors)


def read(query: str, tally: SurveyTally, released: Array, plan: Any, grid: CentreGrid) -> Array:
    """Return the answer as one array."""
    answers = SurveyAnswers.read(tally, released, plan.stddev(), grid, RECORDS, quantiles=(0.5,), threshold=-math.inf)
    cells = answers.sums[0].cells[0]
    if query == "count":
        return cells[1:2]
    if query in ("sum", "mean"):
        total = (cells / RECORDS + 1) / 2 * (HIGH - LOW) + LOW
        return total * RECORDS if query == "sum" else total
    if query == "histogram":
        return cells
    below = np.maximum.accumulate(np.cumsum(np.pad(cells, (1, 0))))
    return np.array([np.interp(below[-1] / 2, below, np.linspace(LOW, HIGH, len(below)))])


def theirs(query: str, ages: Array, sick: Array, draws: int) -> tuple[float, float]:
    """Return OpenDP's errors: with Gaussian noise at (epsilon, delta), and with Laplace noise at epsilon alone."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "idealized-numerics")
    integers = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    half, middle = (HIGH - LOW) / 2, (HIGH + LOW) / 2
    # Whole tenths: OpenDP charges sums of floats for their rounding, twice as much here.
    total = integers >> dp.t.then_clamp((round(-10 * half), round(10 * half))) >> dp.t.then_sum()
    tenths = np.rint(10 * (ages - middle)).astype(int).tolist()
    if query == "median":
        return _median(dp, ages, draws)
    made: dict[str, tuple[Any, list[Any], float]] = {
        "count": (integers >> dp.t.then_count(), [1] * int(sick.sum()), 1.0),
        "sum": (total, tenths, 0.1),
        "mean": (total, tenths, 0.1 / RECORDS),
        "histogram": (
            integers >> dp.t.then_count_by_categories(list(range(BINS)), null_category=False, MO=dp.L2Distance[float]),
            np.clip((ages - LOW) / (HIGH - LOW) * BINS, 0, BINS - 1).astype(int).tolist(),
            1.0,
        ),
    }
    transformation, data, scale = made[query]

    def approximate(noise: float) -> Any:
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(transformation >> dp.m.then_gaussian(noise)), DELTA)

    most = 100.0 * max(1.0, float(transformation.map(1)))
    noise = dp.binary_search_param(approximate, d_in=1, d_out=(EPSILON, DELTA), T=float, bounds=(most / 100, most))
    gaussian = _noise(transformation, dp.m.then_gaussian(noise), data, draws) * scale
    pure = float(transformation.map(1)) / EPSILON  # of the histogram one cell changes, so both norms are 1
    return gaussian, _noise(transformation, dp.m.then_laplace(pure), data, draws) * scale if query != "histogram" else (
        math.sqrt(2) * pure
    )


def _noise(transformation: Any, measurement: Any, data: list[Any], draws: int) -> float:
    """Return the error of a measurement of an exact answer, which is computed once."""
    exact = transformation(data)
    space = transformation.output_domain, transformation.output_metric
    measure = space >> measurement
    return rms([np.atleast_1d(measure(exact)) - np.atleast_1d(exact) for _ in range(draws)])


def _median(dp: Any, ages: Array, draws: int) -> tuple[float, float]:
    """Return the error of OpenDP's own quantile, which is pure, at both places."""
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    candidates = np.linspace(LOW, HIGH, 7201).tolist()

    def make(scale: float) -> Any:
        return space >> dp.m.then_private_quantile(dp.max_divergence(), candidates, 0.5, scale)

    scale = dp.binary_search_param(make, d_in=1, d_out=EPSILON, T=float, bounds=(1e-3, 1e6))
    measure, data, exact = make(scale), ages.tolist(), float(np.median(ages))
    error = rms([np.array([measure(data) - exact]) for _ in range(min(draws, 100))])
    return error, error


def rms(errors: list[Array]) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def main() -> int:
    """Print the table; return 1 if an error is larger than was asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.statistics", description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2000)
    draws = parser.parse_args().draws
    ages, sick = records()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "schema.toml").write_text(SCHEMA)
        for site, rows in enumerate(np.array_split(np.arange(RECORDS), SITES)):
            lines = [f"{ages[row]},{'yes' if sick[row] else 'no'}" for row in rows]
            (folder / f"site_{site:02d}.csv").write_text("\n".join(["age,sick", *lines]) + "\n")
        found: dict[str, Errors] = {}
        for query in QUERIES:
            mine = [ours(query, target, folder, draws if query != "median" else draws // 10) for target in ALLOWED]
            found[query] = Errors(*mine, *theirs(query, ages, sick, draws))
    return show(found)


def show(found: dict[str, Errors]) -> int:
    print(f"{RECORDS:,} records at {SITES} sites, epsilon {EPSILON:g}, delta {DELTA:g}; root mean squared errors")
    head = ("ours", "OpenDP", "ratio", "asked", "ours", "ratio", "asked", "OpenDP")
    print(f"{'':12}{'--- epsilon, against outsiders ---':^44}{'--- epsilon_server ---':^33}{'pure':>10}")
    print(f"{'':12}" + "".join(f"{word:>11}" for word in head))
    worst = 0
    for query, (outsiders, server, gaussian, pure) in found.items():
        asked = query != "median"
        ratios = tuple(error / gaussian if gaussian else math.inf for error in (outsiders, server))
        late = asked and any(ratio > limit for ratio, limit in zip(ratios, ALLOWED.values(), strict=True))
        worst |= late
        limits = [f"{limit:.3f}" if asked else "reported" for limit in ALLOWED.values()]
        numbers = [f"{outsiders:.4g}", f"{gaussian:.4g}", f"{ratios[0]:.3f}", limits[0]]
        numbers += [f"{server:.4g}", f"{ratios[1]:.3f}", limits[1], f"{pure:.4g}"]
        print(f"{query:12}" + "".join(f"{number:>11}" for number in numbers) + "  MISSED" * late)
    return int(worst)


if __name__ == "__main__":
    sys.exit(main())
