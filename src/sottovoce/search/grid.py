"""Search a grid of settings with a limited number of runs; a pure function of the scores it is told.

1. *Explore*, each setting with the first seed. A grid that fits the budget is tried whole. Of a larger one, one key
   after another is searched with the others as they are best so far, from the file's own values on, until no key
   brings anything; then two keys at once are moved by one step, because a clip norm and a learning rate that are both
   too small hide each other. Each success starts the rounds over the keys again.
2. *Confirm*: the best few settings are run with more seeds, and half of them fall out each time (successive halving,
   Jamieson and Talwalkar 2016, with seeds as the resource: a private run cannot be judged halfway, because its noise
   and its schedule depend on its length). The best mean over all seeds is chosen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range

Point = tuple[int, ...]  # one place on each axis
Play = Callable[[Point, int], float | None]  # the score of a setting with the n-th seed; None: it cannot be run

_FINALISTS = 8  # at most so many settings are run with a second seed


@dataclass
class Trials:
    """What was tried, in order: the scores of each setting by seed, and how many runs that took."""

    play: Play
    budget: int
    scores: dict[Point, list[float | None]] = field(default_factory=dict)
    runs: int = 0
    whole: bool = False  # every setting of the grid was tried
    cut: bool = False  # the budget ended before the search did

    def try_out(self, point: Point, seed: int = 0, *, reserve: int = 0) -> None:
        """Run a setting with a seed, unless that was done or the budget, less the reserve, is spent.

        A setting that cannot be run costs nothing.
        """
        known = self.scores.setdefault(point, [])
        if len(known) > seed or None in known:
            return
        if self.runs >= self.budget - reserve:
            self.cut = True
            if not known:
                del self.scores[point]
            return
        score = self.play(point, seed)
        known.append(score)
        self.runs += score is not None

    def mean(self, point: Point) -> float:
        """Return the mean score of a setting; minus infinity if it has none or cannot be run."""
        scores = self.scores.get(point, [])
        known = [score for score in scores if score is not None]
        return math.fsum(known) / len(known) if known and len(known) == len(scores) else -math.inf

    def best(self) -> Point | None:
        """Return the setting with the best mean among those with the most seeds; the first tried of equal ones."""
        ranked = self.ranked()
        return ranked[0] if ranked else None

    def ranked(self) -> list[Point]:
        """Return the settings that could be run, those with the most seeds first, and the best mean first."""
        known = [point for point in self.scores if self.mean(point) > -math.inf]
        return sorted(known, key=lambda point: (-len(self.scores[point]), -self.mean(point)))


def search(sizes: Sequence[int], start: Point, play: Play, *, budget: int, seeds: int) -> Trials:
    """Spend at most `budget` runs on a grid with `sizes` values on its axes, and return all scores."""
    widths = rungs(budget, seeds)
    trials, reserve = Trials(play, budget), sum(widths)
    if math.prod(sizes) <= budget - reserve:
        trials.whole = True
        for point in itertools.product(*map(range, sizes)):
            trials.try_out(point, reserve=reserve)
    else:
        _explore(trials, sizes, start, reserve)
    for seed, width in enumerate(widths, start=1):
        for point in [point for point in trials.ranked() if len(trials.scores[point]) == seed][:width]:
            trials.try_out(point, seed)
    return trials


def rungs(budget: int, seeds: int) -> list[int]:
    """Return how many settings are run with the second, third, ... seed; at most half of the budget goes there.

    >>> rungs(30, 3), rungs(30, 5), rungs(8, 3)
    ([4, 2], [8, 4, 2, 2], [2, 2])
    """
    in_range("budget", budget, low=1)
    in_range("seeds", seeds, low=1)
    most = min(_FINALISTS, 2 ** (seeds - 1))
    while most >= 2:
        widths = [max(2, most >> place) for place in range(seeds - 1)]
        if 2 * sum(widths) <= budget:
            return widths
        most //= 2
    if seeds == 1:
        return []
    raise InputError(
        f"budget must be at least {4 * (seeds - 1)} for {seeds} seeds, got {budget}: two finalists alone need "
        f"{2 * (seeds - 1)} runs, and that is to be at most half; raise it, or ask for fewer seeds"
    )


def _explore(trials: Trials, sizes: Sequence[int], start: Point, reserve: int) -> None:
    trials.try_out(start, reserve=reserve)
    best, moved = start, True
    while moved:
        moved = False
        for axis in range(len(sizes)):
            found = _best_of(trials, best, _line(best, axis, sizes[axis]), reserve)
            moved, best = moved or found != best, found
        if not moved:
            found = _best_of(trials, best, _diagonals(best, sizes), reserve)
            moved, best = found != best, found


def _best_of(trials: Trials, best: Point, candidates: Iterator[Point], reserve: int) -> Point:
    """Try candidates and return the best of them; the one we have stays if none is better."""
    for point in candidates:
        trials.try_out(point, reserve=reserve)
        if trials.mean(point) > trials.mean(best):
            best = point
    return best


def _line(point: Point, axis: int, size: int) -> Iterator[Point]:
    """Yield the points that differ in one axis, the nearest first."""
    for value in sorted(range(size), key=lambda value: abs(value - point[axis])):
        yield (*point[:axis], value, *point[axis + 1 :])


def _diagonals(point: Point, sizes: Sequence[int]) -> Iterator[Point]:
    """Yield the points that are one step away on each of two axes."""
    for one, two in itertools.combinations(range(len(sizes)), 2):
        for first, second in itertools.product((-1, 1), repeat=2):
            moved = list(point)
            moved[one] += first
            moved[two] += second
            if 0 <= moved[one] < sizes[one] and 0 <= moved[two] < sizes[two]:
                yield tuple(moved)
