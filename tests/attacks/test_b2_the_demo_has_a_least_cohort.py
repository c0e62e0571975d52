"""`make demo` runs with a least cohort that hides a client, and keeps its epsilon."""

from __future__ import annotations

from pathlib import Path

from sottovoce.experiment.config import load
from sottovoce.experiment.protection import protect
from sottovoce.experiment.shapes import gather_shapes
from sottovoce.experiment.sweep import layout


def test_the_demo_still_runs_with_a_least_cohort_above_three() -> None:
    runs = layout(load(Path(__file__).parents[2] / "experiments/demo.toml"))
    plans = [protect(gather_shapes(each)[0]).plan for each in runs if each.privacy is not None]

    assert len(plans) == 4
    for plan in plans:
        assert plan is not None
        assert plan.shares.floor >= 5
        assert plan.epsilon <= 8
