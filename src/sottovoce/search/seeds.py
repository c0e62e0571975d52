"""Play one experiment with several seeds, and tell mean and spread: one seed alone may be a lucky one."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError
from sottovoce.core.files import replace_file
from sottovoce.models import METRICS
from sottovoce.runs.folder import Record
from sottovoce.runs.loop import default_folder
from sottovoce.runs.population import totals
from sottovoce.search.sweep import sweep

MOST: Final = 100


def check_seeds(count: int) -> None:
    """Raise unless so many seeds have a spread."""
    if not 2 <= count <= MOST:
        raise InputError(f"seeds must be from 2 to {MOST}, got {count}: one seed has no spread; leave it out")


def run_seeds(
    experiment: Experiment,
    count: int,
    out: Path | str | None = None,
    *,
    observe: Callable[[str, Record], None] = lambda name, record: None,
) -> Record:
    """Play an experiment with `count` seeds, from its own on, one run folder each, and return mean and spread.

    Seeds that are finished are read, not repeated. The result is kept in `seeds.json` beside the folders.

    Guarantee: each seed is a run of its own, charged in full, also in a budget; the sum of all is told.
    """
    check_seeds(count)
    first = experiment.experiment.seed
    seeds = list(range(first, first + count))
    folder = Path(out) if out is not None else default_folder(experiment)
    grid = experiment.model_copy(update={"sweep": {"experiment": {"seed": seeds}}})
    told = {"name": experiment.experiment.name, "seeds": seeds, **over_seeds(sweep(grid, folder, observe=observe))}
    replace_file(folder / "seeds.json", json.dumps(told, indent=2) + "\n")
    return told


def over_seeds(summaries: Sequence[Record]) -> Record:
    """Return mean, spread, lowest and highest of the metrics of runs that differ in their seed, and what they cost.

    The spread is the standard deviation over seeds. A metric that some seed did not measure is null.
    """
    metrics = {}
    known = [name for name, each in METRICS.items() if each.summarised]
    own = dict.fromkeys(name for summary in summaries for name in summary.get("own_metrics", ()))
    for name in [f"{name}_{which}" for name in (*known, *own) for which in ("final", "best")]:
        values = [summary.get(name) for summary in summaries]
        if any(name in summary for summary in summaries):
            metrics[name] = _spread([value for value in values if value is not None], len(summaries))
    weak = [str(summary["verdict"]) for summary in summaries if summary.get("verdict")]
    sums = totals(summaries)
    return {
        "metrics": metrics,
        "weak_seeds": len(weak),
        "verdict": f"{len(weak)} of {len(summaries)} seeds: {weak[0]}" if weak else None,
        "private": any(summary["private"] for summary in summaries),
        "together": sums[0] if sums else None,
        "runs": list(summaries),
    }


def _spread(values: list[float], count: int) -> Record | None:
    if len(values) < count or not all(map(math.isfinite, values)):
        return None
    return {
        "mean": statistics.fmean(values),
        "spread": statistics.stdev(values) if count > 1 else 0.0,
        "lowest": min(values),
        "highest": max(values),
    }
