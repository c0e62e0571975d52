"""`make demo` runs with a least cohort that hides a client, and keeps its epsilon."""

from __future__ import annotations

from pathlib import Path

from sottovoce.assembly.protection import protect
from sottovoce.config.experiment import load
from sottovoce.planning.plan import gather_shapes
from sottovoce.search.sweep import layout


def test_the_demo_still_runs_with_a_least_cohort_above_three() -> None:
    runs = layout(load(Path(__file__).parents[2] / "experiments/demo.toml"))
    plans = [protect(gather_shapes(each)[0]).plan for each in runs if each.privacy is not None]

    assert len(plans) == 4
    for plan in plans:
        assert plan is not None
        assert plan.shares.floor >= 5
        assert plan.epsilon <= 8
