"""Attacks on records and persons as units: each party is given all that it sees, and asks for one record.

The server, another site and outsiders see words, sums, models and published files. None of it may depend on a secret
coin, on whether a record is no number, or on which of two records a site holds, but through the noisy sum.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.federation.units import drawn_units
from sottovoce.models import Shard
from sottovoce.privacy import PrivacyPlan
from sottovoce.runs.loop import run as play
from tests.federation.test_units import records, totals

PUBLISHED = ("config.toml", "rounds.jsonl", "summary.json", "environment.json", "ledger.jsonl", "model.npz")


def five(**changes: Any) -> Experiment:
    """Return five sites with the digits and secret coins."""
    tables: dict[str, dict[str, Any]] = {
        "experiment": {"rounds": 2, "evaluate_every": 2},
        "data": {"source": "digits", "clients": 5},
        "model": {"name": "logistic"},
        "privacy": {"unit": "record", "epsilon_server": 8.0, "delta": 1e-5, "unit_rate": "1/2"},
        "aggregation": {"threshold": 4},
        "engine": {"workers": 1},
    }
    for place, value in changes.items():
        table, _, key = place.partition("__")
        tables[table][key] = value
    return parse(tables)


def numbers(value: Any) -> set[float]:
    """Return every number in a document."""
    if isinstance(value, dict):
        return set().union(*(numbers(item) for item in value.values()), set())
    if isinstance(value, list):
        return set().union(*(numbers(item) for item in value), set())
    return {float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else set()


def test_no_file_and_no_line_tells_how_many_units_were_drawn(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        play(five(), tmp_path / "run")
    sizes = [len(part) for part in np.array_split(np.arange(1438), 5)]
    drawn = {
        (round_, site): drawn_units(sizes[site], 0.5, Seeds(1).client(site).get(Purpose.UNIT, round_)).size
        for round_ in (1, 2)
        for site in range(5)
    }
    counts = {float(count) for count in drawn.values()}
    counts |= {float(sum(count for (at, _), count in drawn.items() if at == round_)) for round_ in (1, 2)}
    told = "".join(capfd.readouterr()) + caplog.text

    for name in PUBLISHED[:-1]:
        text = (tmp_path / "run" / name).read_text("utf-8")
        if name.endswith(".json"):
            assert not counts & numbers(json.loads(text)), name
        elif name.endswith(".jsonl"):
            assert not counts & set().union(*(numbers(json.loads(line)) for line in text.splitlines())), name
    assert not [count for count in counts if f" {int(count)} " in told]


def test_no_count_of_units_is_in_a_file_of_the_run_folder_that_a_coin_decides(tmp_path: Path) -> None:
    """Two runs whose coins alone differ write the same public numbers: sizes, bytes, epsilons."""
    summaries = []
    for seed in (1, 2):
        play(five(experiment__seed=seed), tmp_path / str(seed))
        summaries.append(json.loads((tmp_path / str(seed) / "summary.json").read_text("utf-8")))

    for key in ("epsilon", "epsilon_server", "epsilon_site", "units", "unit_rate", "bytes_up_total"):
        assert summaries[0].get(key) == summaries[1].get(key), key


@pytest.mark.parametrize("spoilt", [np.nan, np.inf, 1e30])
def test_a_record_that_is_no_number_changes_nothing_but_its_own_part(spoilt: float) -> None:
    whole = records(30)
    broken = Shard(np.concatenate([whole.x, np.full((1, 12), spoilt, np.float32)]), np.append(whole.y, 0))
    radius = 3.2697682099238823 * 2**4

    moved = totals("fl-std", [broken]) - totals("fl-std", [whole])

    assert np.linalg.norm(moved.astype(float)) <= radius * (1 + 1e-9)
    if not math.isfinite(spoilt):
        assert not moved.any()


def test_what_others_hold_changes_no_coin() -> None:
    """A record more at the end of a site leaves the coins of all others as they were."""
    few = drawn_units(500, 0.3, np.random.default_rng(4))
    more = drawn_units(501, 0.3, np.random.default_rng(4))

    assert set(few.tolist()) == set(more.tolist()) - {500}


def test_twenty_random_plans_cost_what_dp_accounting_says() -> None:
    """The noise that each adversary cannot know, from the grid alone, given to dp-accounting directly."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    rng = np.random.default_rng(2026)
    for _ in range(20):
        sites = int(rng.integers(3, 12))
        colluders = int(rng.integers(0, max(1, sites // 4)))
        threshold = float(rng.choice([0.75, 0.8, 1.0]))
        rate = float(rng.choice([1.0, 1.0, 0.25]))
        rounds = int(rng.integers(5, 60))
        units = int(rng.integers(100 * sites, 20_000))
        delta = 0.2 / units
        plan = PrivacyPlan.solve(
            clients=sites,
            sample_rate=1,
            rounds=rounds,
            delta=delta,
            length=int(rng.integers(5, 300)),
            clip_norm=float(rng.uniform(0.1, 5)),
            threshold=threshold,
            colluders=colluders,
            unit="record",
            units=units,
            unit_rate=rate,
            noise_multiplier=float(rng.uniform(3, 40)),
        )
        grid = plan.grid
        assert grid is not None
        stay = sites if threshold == 1 else min(sites, int(threshold * sites + 1e-9) + 1)
        parts = {
            "epsilon": sites - colluders,
            "epsilon_server": max(1, stay - colluders),
            "epsilon_member": max(1, sites - 1 - colluders),
        }
        for name, shares in parts.items():
            left = math.sqrt(grid.variance * shares / sites - 4) / grid.radius  # less the rounding width of two steps
            account = PLDAccountant()
            event: Any = GaussianDpEvent(left)
            account.compose(event if rate == 1 else PoissonSampledDpEvent(rate, event), rounds)
            least = float(account.get_epsilon(delta))

            assert getattr(plan, name) == pytest.approx(least, rel=5e-3), (name, plan.request)
            assert getattr(plan, name) >= least * (1 - 2e-3)
