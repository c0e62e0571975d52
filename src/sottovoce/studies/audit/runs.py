"""The runs of the outsider's game, whatever is summed: first others that stand still, then others that train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.streams import Purpose, Seeds
from sottovoce.studies.audit.canaries import Canary
from sottovoce.studies.audit.one_run import Told
from sottovoce.studies.audit.options import ENOUGH, Options, number
from sottovoce.studies.audit.outsider import Outsider, coins

Still = Callable[[NDArray[np.bool_], Seeds, Told], NDArray[np.float64]]  # who is in, the run's seeds; canaries' scores
Train = Callable[[int], None]  # the run's seed; it hands its scores to the outsider itself


def runs_of(options: Options, canaries: Mapping[int, Canary]) -> int:
    """Return how many runs without training give enough canaries."""
    return options.seeds or int(np.clip(ENOUGH // len(canaries), 1, 8))


def play_runs(
    outsider: Outsider, canaries: Mapping[int, Canary], options: Options, base: int, still: Still, train: Train
) -> None:
    """Play runs without training, each with coins of its own, and, if there is time, runs with training."""
    runs, planned = runs_of(options, canaries), outsider.units.plan.rounds
    for run in range(runs):
        seeds = Seeds(number("still", base, run))
        present = coins(canaries, seeds.adversary.get(Purpose.SETUP))
        scores = still(present, seeds, partial(options.tell, f"run {run + 1} of {runs} without training"))
        outsider.take(scores, present, f"without training ({outsider.rounds} of {planned} rounds)")
    if not options.quick:
        for run in range(options.seeds or 1):
            train(number("trained", base, run) % 2**31)
