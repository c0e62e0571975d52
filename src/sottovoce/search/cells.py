"""Run the settings of a search: each setting and seed is one run folder, a cell.

A cell is the file's own experiment with public records dealt to its clients, and public train records that no client
holds in the place of the test records. A finished cell is read, not repeated.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sottovoce.assembly.overrides import Given
from sottovoce.config.experiment import Experiment, parse, with_settings
from sottovoce.config.names import GRIDS
from sottovoce.config.tables import GeneralTable
from sottovoce.core.errors import InputError, PrivacyError, RunError
from sottovoce.data import origin
from sottovoce.runs.folder import Record, RunFolder
from sottovoce.search.axes import Axis
from sottovoce.search.grid import Point
from sottovoce.search.proxy import Proxy
from sottovoce.search.runner import Campaign

Tables = Mapping[str, Any]
Settings = dict[str, Any]  # `table.key` to value


class Step(NamedTuple):
    """What is told of a search as it goes: each round of a cell, and at its end the score, or why it cannot be run."""

    run: int
    settings: Settings
    seed: int
    rounds: int
    record: Record | None = None
    score: float | None = None
    reason: str | None = None
    best: Settings | None = None  # so far: of the settings with the most seeds that of the best mean
    best_score: float | None = None


@dataclass
class SearchRuns:
    """The runs of a search, below one folder."""

    tables: Tables  # of the file
    axes: list[Axis]
    proxy: Proxy
    folder: Path
    seeds: list[int]
    workers: int | None = None
    observe: Callable[[Step], None] = lambda step: None
    metric: str = "accuracy"  # that scores; known after the first run
    reasons: dict[Point, str] = field(default_factory=dict)  # why a setting cannot be run
    problem: InputError | PrivacyError | None = None  # the first of these
    _scores: dict[Point, list[float]] = field(default_factory=dict)

    def start(self, experiment: Experiment) -> Point:
        """Return the point that is nearest to the file's own values."""
        return tuple(axis.nearest(_value(experiment.tables(), axis.path)) for axis in self.axes)

    def check_values(self, start: Point) -> None:
        """Raise if a value is wrong by itself: neither alone nor with one other key changed does it make a run."""
        for place, axis in enumerate(self.axes):
            for value in range(len(axis.values)):
                point = (*start[:place], value, *start[place + 1 :])
                problem = self._problem(point)
                if problem is not None and all(map(self._problem, self._beside(point, place))):
                    raise problem

    def play(self, point: Point, number: int) -> float | None:
        """Run a setting with the n-th seed and return its score; None, with the reason kept, if it cannot be run."""
        seed, done = self.seeds[number], sum(map(len, self._scores.values()))
        step = Step(done + 1, self.settings(point), seed, 0)
        try:
            experiment, given = self.cell(point, seed)
            path = self.folder / experiment.experiment.name
            RunFolder.check(path, resume=True)
            campaign = Campaign(self.folder, ("model.npz", "model-best.npz"))
            step = step._replace(rounds=experiment.experiment.rounds)

            def told(record: Record) -> None:
                self.observe(self._with_best(step._replace(record=record)))

            outcome = campaign.play(experiment, told, given)
            if outcome.problem is not None:
                raise outcome.problem
        except (InputError, PrivacyError) as error:
            self.problem = self.problem or error
            self.reasons[point] = str(error)
            self.observe(self._with_best(step._replace(reason=str(error))))
            return None
        summary = outcome.summary or {}
        self.metric = str(summary["selected_by"])
        score = summary[f"{self.metric}_final"]
        if score is None:
            raise RunError(f"{path} ended without a measurement; delete it and go on")
        self._scores.setdefault(point, []).append(float(score))
        self.observe(self._with_best(step._replace(score=float(score))))
        return float(score)

    def settings(self, point: Point) -> Settings:
        """Return the values of a point by the names of their keys."""
        return {axis.name: axis.values[place] for axis, place in zip(self.axes, point, strict=True)}

    def changed(self, point: Point) -> dict[str, Any]:
        """Return the file's tables with the values of a point, and without its grids."""
        values = {axis.path: axis.values[place] for axis, place in zip(self.axes, point, strict=True)}
        return with_settings({name: table for name, table in self.tables.items() if name not in GRIDS}, values)

    def cell(self, point: Point, seed: int) -> tuple[Experiment, Given]:
        """Return the file's experiment with a setting and a seed, and the public records that it runs on.

        `[scheme] public` that names the clients' own data would be a slice of their records, and is one of the dealt
        records here; if it names the public data, its records are those that were set aside.
        """
        tables = self.changed(point)
        data, scheme, general = (dict(tables.get(name, {})) for name in ("data", "scheme", "experiment"))
        for key in ("label", "id", "person", "split", "schema", "source", "partition"):
            data.pop(key, None)
        data |= {"source": self.proxy.source, "partition": self.proxy.partition}
        general |= {"name": self._name(point, seed), "seed": seed}
        general.pop("chosen_on", None)  # by an earlier search; the records of this one are public anyway
        if not general.get("patience"):
            general["evaluate_every"] = general.get("rounds", GeneralTable().rounds)
        shared = False
        if isinstance(scheme.get("public"), str):
            named = origin(scheme["public"], data.get("folder"))
            shared = named.same_as(self.proxy.origin)
            if named.same_as(self.proxy.private):
                del scheme["public"]
        tables |= {"data": data, "scheme": scheme, "experiment": general}
        if "privacy" in tables:  # public records are nobody's: nothing is spent
            spared = ("budget", "budget_epsilon", "budget_epsilon_server", "budget_delta", "population", "spent")
            tables["privacy"] = {key: value for key, value in tables["privacy"].items() if key not in spared}
        ideal = {"real": "ideal", "ballot": "ideal-ballot"}  # the same sums, without the cryptography
        if (secure := _value(tables, ("aggregation", "secure"))) in ideal:
            tables["aggregation"] = {**tables["aggregation"], "secure": ideal[secure]}
        if self.workers is not None:
            tables["engine"] = {**tables.get("engine", {}), "workers": self.workers}
        experiment = parse(tables, where="[tune]")
        public = self.proxy.public_slice(experiment.scheme.public_samples, seed) if shared else None
        return experiment, Given(dataset=self.proxy.dataset, public=public)

    def _name(self, point: Point, seed: int) -> str:
        told = "-".join(f"{axis.path[-1]}-{axis.values[place]}" for axis, place in zip(self.axes, point, strict=True))
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", told)
        return f"{plain[:80]}-{digest(self.settings(point))[:8]}-seed-{seed}"

    def _with_best(self, step: Step) -> Step:
        if not self._scores:
            return step
        best = max(self._scores, key=lambda point: (len(self._scores[point]), self._mean(point)))
        return step._replace(best=self.settings(best), best_score=self._mean(best))

    def _mean(self, point: Point) -> float:
        return sum(self._scores[point]) / len(self._scores[point])

    def _problem(self, point: Point) -> InputError | PrivacyError | None:
        try:
            self.cell(point, self.seeds[0])
        except (InputError, PrivacyError) as error:
            return error
        return None

    def _beside(self, point: Point, kept: int) -> Iterator[Point]:
        """Yield the points that differ in one other axis than the kept one."""
        for place, axis in enumerate(self.axes):
            for value in range(len(axis.values)):
                if place != kept and value != point[place]:
                    yield (*point[:place], value, *point[place + 1 :])


def digest(document: Any) -> str:
    """Return the SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, default=str).encode()).hexdigest()


def _value(tables: Tables, path: tuple[str, ...]) -> Any:
    found: Any = tables
    for step in path:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
