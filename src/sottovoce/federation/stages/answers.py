"""Read the answers to a survey off its noisy sums: values with intervals, and nothing else about the records.

An interval holds the value as it would be without noise, in the stated share of cases; it says nothing about how well
the records stand for other people. Noise on sums is known to everybody, so intervals are free: for counts they are
normal ones, for what is computed from several sums the noise is drawn again many times around them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Vector
from sottovoce.data.coded import CodedColumn
from sottovoce.federation.stages.discovery import WHOLE, learnt
from sottovoce.federation.stages.survey import Block, Query, Survey
from sottovoce.federation.stages.tally import SurveyTally
from sottovoce.models.units import CentreGrid

Record = dict[str, Any]
Doubles = NDArray[np.float64]

_DRAWS: Final = 1000  # of the noise, for one interval
_FEWEST: Final = 3.0  # a count below so many standard deviations of its noise, or below so many records, has no mean
_SEED: Final = 27  # the draws follow from what is published alone


@dataclass(frozen=True)
class Sums:
    """The sums of one block as numbers of units: a row a group, and the standard deviation of the noise in them."""

    block: Block
    cells: Doubles
    noise: Doubles  # of each cell of a group

    def drawn(self, group: int, rng: np.random.Generator) -> Doubles:
        """Return the cells of a group, first as they are and then with noise drawn anew around them."""
        again = self.cells[group] + self.noise * rng.standard_normal((_DRAWS, len(self.noise)))
        return np.concatenate([self.cells[group][None], again])


@dataclass(frozen=True)
class SurveyAnswers:
    """What the noisy sums of a survey tell."""

    survey: Survey
    sums: tuple[Sums, ...]
    units: int  # of all sites, which is public
    quantiles: tuple[float, ...] = (0.25, 0.5, 0.75)
    threshold: float = 3.0
    confidence: float = 0.95

    @classmethod
    def read(
        cls, tally: SurveyTally, released: Vector, stddev: float, grid: CentreGrid, units: int, **options: Any
    ) -> SurveyAnswers:
        """Read a released sum, in clip norms, with noise of a standard deviation of `stddev` in each value."""
        survey, found = tally.survey, []
        if not isinstance(survey, Survey):
            raise InputError("a run that learns a schema answers no questions")
        for block, span in survey.spans():
            steps = tally.steps(block, grid)
            worth = np.full(block.cells, steps.ones / grid.steps)
            if block.values:
                worth[block.cells - block.values + (block.query == "correlation") :] = steps.values / grid.steps
            cells = released[span].astype(np.float64).reshape(-1, block.cells)
            found.append(Sums(block, cells / worth, stddev / worth))
        return cls(survey, tuple(found), units, **options)

    def told(self) -> list[Record]:
        """Return the answers, group by group."""
        return [self._group(number, words) for number, words in enumerate(self.survey.groups)]

    def queries(self) -> list[Record]:
        """Return what was asked, the share of the budget that each query had, and the noise in its cells."""
        return [
            {
                "query": self.survey.describe(sums.block),
                "budget_share": self.survey.share,
                "cells": sums.cells.size,
                "noise_stddev": float(sums.noise[0]),
            }
            for sums in self.sums
        ]

    def _group(self, group: int, words: Sequence[str]) -> Record:
        by = {self.survey.columns[place].name: word for place, word in zip(self.survey.by, words, strict=True)}
        told: Record = {"group": by, "count": self._count(group)}
        told["columns"] = {
            self.survey.columns[place].name: self._column(group, place, self.survey.columns[place])
            for place in self.survey.asked
        }
        told["correlations"] = list(self._correlations(group))
        return told

    def _find(self, query: Query, place: int | None = None) -> Sums | None:
        fitting = (sums for sums in self.sums if sums.block.query == query)
        return next((sums for sums in fitting if place is None or sums.block.columns == (place,)), None)

    def _count(self, group: int) -> Record | None:
        if not self.survey.by:
            return {"value": self.units, "low": self.units, "high": self.units, "public": True}
        sums = self._find("count")
        return None if sums is None else self._counted(sums, group, 0)

    def _counted(self, sums: Sums, group: int, cell: int) -> Record:
        value, reach = float(sums.cells[group, cell]), self._normal * float(sums.noise[cell])
        return {"value": value, "low": max(0.0, value - reach), "high": min(float(self.units), max(0.0, value + reach))}

    @property
    def _normal(self) -> float:
        return NormalDist().inv_cdf((1 + self.confidence) / 2)

    def _column(self, group: int, place: int, column: CodedColumn) -> Record:
        if not column.numeric:
            return self._words(group, place, column)
        told: Record = {"kind": "number", "range": [column.low, column.high]}
        moments, histogram = self._find("moments", place), self._find("histogram", place)
        if moments is not None:
            told |= self._moments(moments, group, column)
        if histogram is not None:
            told |= self._histogram(histogram, group, column)
        return told

    def _words(self, group: int, place: int, column: CodedColumn) -> Record:
        sums = self._find("categories", place)
        if sums is None:
            return {"kind": "category"}
        floor = self.threshold * float(sums.noise[0])
        counts = {word: self._counted(sums, group, cell) for cell, word in enumerate(column.words)}
        missing = counts.pop(column.words[-1])
        shown = {word: count for word, count in counts.items() if count["value"] > floor}
        return {
            "kind": "category",
            "missing": missing,
            "categories": [{"category": word, **count} for word, count in shown.items()],
            "threshold": floor,
            "not_shown": [word for word in counts if word not in shown],
        }

    def _moments(self, sums: Sums, group: int, column: CodedColumn) -> Record:
        block = sums.block
        told: Record = {"missing": {"value": 0.0, "low": 0.0, "high": 0.0} if block.complete else None}
        if not block.complete:
            told["missing"] = self._counted(sums, group, 0)
        first = 0 if block.complete else 1
        if block.cells == first:
            return told
        rng = np.random.default_rng((_SEED, group, block.columns[0]))
        cells = sums.drawn(group, rng)
        present = self._sizes(group, rng) - (0 if block.complete else cells[:, 0])
        if present[0] < max(_FEWEST, _FEWEST * float(np.std(present))):
            return told | {"mean": None, "stddev": None, "reason": "too few records for the noise"}
        present = np.maximum(present, 1.0)
        mean = cells[:, first] / present
        told["mean"] = self._interval(column.value, mean, -1, 1)
        if block.second:
            variance = (cells[:, first + 1] / present + 1) / 2 - mean**2
            told["stddev"] = self._interval(lambda square: math.sqrt(square) * column.half, variance, 0, 1)
        return told

    def _sizes(self, group: int, rng: np.random.Generator) -> Doubles:
        """Return the size of a group, with noise drawn around it; without groups it is the public number of units."""
        sums = self._find("count") if self.survey.by else None
        return np.full(_DRAWS + 1, float(self.units)) if sums is None else sums.drawn(group, rng)[:, 0]

    def _interval(self, scale: Callable[[float], float], draws: Doubles, least: float, most: float) -> Record:
        """Return a value within its bounds, and the interval that reaches as far as new noise moves it."""
        reach = float(np.quantile(np.abs(draws[1:] - draws[0]), self.confidence))
        value = min(max(float(draws[0]), least), most)
        low, high = max(value - reach, least), min(value + reach, most)
        return {"value": scale(value), "low": scale(low), "high": scale(high)}

    def _histogram(self, sums: Sums, group: int, column: CodedColumn) -> Record:
        told: Record = {}
        edges = np.linspace(-1, 1, sums.block.cells + 1)
        if "histogram" in self.survey.what:
            bins = [self._counted(sums, group, cell) for cell in range(sums.block.cells)]
            told["histogram"] = {"edges": [column.value(edge) for edge in edges.tolist()], "bins": bins}
        if "quantiles" not in self.survey.what:
            return told
        rng = np.random.default_rng((_SEED, group, sums.block.columns[0], 1))
        cells = sums.drawn(group, rng)
        sizes = cells.sum(axis=1)
        if sizes[0] < max(_FEWEST, _FEWEST * float(np.std(sizes))):
            return told | {"quantiles": None}
        below = np.maximum.accumulate(np.cumsum(np.pad(cells, ((0, 0), (1, 0))), axis=1), axis=1)
        told["quantiles"] = {}
        for share in self.quantiles:
            found = np.array([np.interp(share * row[-1], row, edges) for row in below])
            told["quantiles"][f"{share:g}"] = self._interval(column.value, found, -1, 1)
        return told

    def _correlations(self, group: int) -> Iterator[Record]:
        sums = self._find("correlation")
        if sums is None:
            return
        places = sums.block.columns
        cells = sums.drawn(group, np.random.default_rng((_SEED, group)))
        few = cells[0, 0] < max(_FEWEST, _FEWEST * float(sums.noise[0]))
        size, means = np.maximum(cells[:, 0], 1.0), cells[:, 1 : 1 + len(places)]
        pairs = {
            pair: cells[:, 1 + len(places) + number]
            for number, pair in enumerate(combinations_with_replacement(range(len(places)), 2))
        }

        def covariance(one: int, two: int) -> Doubles:
            return np.asarray(pairs[one, two] / size - means[:, one] * means[:, two] / size**2)

        for one, two in combinations(range(len(places)), 2):
            names = [self.survey.columns[places[place]].name for place in (one, two)]
            with np.errstate(invalid="ignore", divide="ignore"):
                found = covariance(one, two) / np.sqrt(covariance(one, one) * covariance(two, two))
            if few or not math.isfinite(found[0]):
                yield {"columns": names, "value": None, "low": -1.0, "high": 1.0}
                continue
            lost = ~np.isfinite(found)  # so much noise that nothing can be said
            found[lost] = 3.0  # further than any other value
            yield {"columns": names, **self._interval(float, found, -1, 1)}


def read_learnt(tally: SurveyTally, released: Vector, stddev: float, grid: CentreGrid) -> dict[str, Record]:
    """Return what each column is, by a released sum of a run that learns a schema."""
    survey = tally.survey
    if isinstance(survey, Survey):
        raise InputError("this run asked for statistics, and learnt no schema")
    columns = {}
    for (block, span), name in zip(survey.spans(), survey.names, strict=True):
        steps = tally.steps(block, grid)
        worth = np.full(block.cells, steps.values / grid.steps)
        worth[:WHOLE] = steps.ones / grid.steps
        cells = released[span].astype(np.float64) / worth
        columns[name] = learnt(cells, stddev / float(worth[0]), stddev / float(worth[-1]))
    return columns
