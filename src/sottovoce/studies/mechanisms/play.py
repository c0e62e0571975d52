"""Play one federation of logistic regressions whose clients add noise to the weights that they send."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.streams import Purpose, Seeds
from sottovoce.studies.mechanisms.minimiser import l2_sensitivity, minimise
from sottovoce.studies.mechanisms.noise import Noise, author_noise, right_noise
from sottovoce.studies.mechanisms.records import Records
from sottovoce.studies.mechanisms.settings import NOISELESS, Cell, Settings
from sottovoce.studies.mechanisms.sgd import LinearClassifier, fit_sgd

Values = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Iteration:
    """What one iteration came to, judged on the test records."""

    local: tuple[float, ...]  # accuracy of each client's own model, before its noise
    federated: tuple[float, ...]  # accuracy of the model that each client has received
    stddev: float  # of the noise on one weight, the largest of all clients'
    sensitivity: float  # that the noise was made for, the largest


class Player(Protocol):
    """How the clients of a mode fit, and what noise they add."""

    def fit(self, cell: Cell, client: int, iteration: int, received: LinearClassifier | None) -> LinearClassifier:
        """Return a client's own model."""
        ...

    def noise(self, cell: Cell, client: int, iteration: int, model: LinearClassifier) -> Noise | None:
        """Return a client's noise; None if it adds none."""
        ...

    def judge(self, model: LinearClassifier) -> float:
        """Return the accuracy of a client's own model on the test records."""
        ...


def make_player(settings: Settings, records: Records) -> Player:
    """Return the player of the settings' mode."""
    return Author(settings, records) if settings.mode == "printed" else Right(settings, records)


def play(settings: Settings, records: Records, cell: Cell, player: Player) -> Iterator[Iteration]:
    """Yield the iterations of one cell.

    In each, every client fits on its records, adds noise to a copy and sends it; the mean of all comes back.
    """
    seeds = Seeds(settings.seed)
    received: list[LinearClassifier | None] = [None] * cell.clients
    for iteration in range(1, settings.iterations + 1):
        local = [player.fit(cell, client, iteration, received[client]) for client in range(cell.clients)]
        added, stddev, sensitivity = [], 0.0, 0.0
        for client, model in enumerate(local):
            noise = player.noise(cell, client, iteration, model)
            if noise is None:
                added.append(np.zeros(model.weights.shape))
                continue
            rng = seeds.client(client).get(Purpose.NOISE, iteration)
            added.append(noise.sample(rng).reshape(model.weights.shape))
            stddev, sensitivity = max(stddev, noise.stddev), max(sensitivity, noise.sensitivity)
        mean = LinearClassifier(
            np.mean([model.weights + part for model, part in zip(local, added, strict=True)], axis=0),
            np.mean([model.intercepts for model in local], axis=0),
        )
        received = [
            mean._replace(weights=mean.weights - part / cell.clients) if settings.subtract_own_noise else mean
            for part in added
        ]
        accuracy = [_accuracy(model, records) for model in received[: None if settings.subtract_own_noise else 1]]
        yield Iteration(
            tuple(player.judge(model) for model in local),
            tuple(accuracy if settings.subtract_own_noise else accuracy * cell.clients),
            stddev,
            sensitivity,
        )


def _accuracy(model: LinearClassifier | None, records: Records) -> float:
    return 0.0 if model is None else model.accuracy(records.x_test, records.y_test)


@dataclass(frozen=True)
class Author:
    """The thesis: SGD from the received model, noise on the weights and none on the intercepts.

    Its base case ran with fresh data and from scratch, which is what its configuration does when cumulative is off.
    """

    settings: Settings
    records: Records

    def fit(self, cell: Cell, client: int, iteration: int, received: LinearClassifier | None) -> LinearClassifier:
        """Return a client's own model by SGD."""
        base = cell.mechanism == "base"
        x, y = self.records.of(client, iteration, cell.samples, self.settings.cumulative and not base)
        start = received if self.settings.warm_start and not base else None
        rng = Seeds(self.settings.seed).client(client).get(Purpose.BATCH, iteration)
        return fit_sgd(x, y, self.records.classes, start, rng)

    def noise(self, cell: Cell, client: int, iteration: int, model: LinearClassifier) -> Noise | None:
        """Return the author's noise."""
        if cell.mechanism in NOISELESS:
            return None
        count = cell.samples * (iteration if self.settings.cumulative else 1)
        epsilon, dim = cell.epsilons[client], model.weights.size
        return author_noise(cell.mechanism, epsilon, cell.clients, count, dim, self.settings.sensitivity)

    def judge(self, model: LinearClassifier) -> float:
        """Return the accuracy of a model."""
        return model.accuracy(self.records.x_test, self.records.y_test)


@dataclass(frozen=True)
class Right:
    """Right noise: minimisers of the regularised loss, all weights noised, all iterations charged.

    Guarantee: on real numbers, all that client c sends costs a record of its own at most `cell.epsilons[c]`
    (see `right_noise`). The fits do not depend on the noise, so all cells of one size share them.
    """

    settings: Settings
    records: Records
    _kept: dict[tuple[int, int, int, bool], LinearClassifier] = field(default_factory=dict)
    _judged: dict[int, float] = field(default_factory=dict)  # by the identity of a kept model

    def fit(self, cell: Cell, client: int, iteration: int, received: LinearClassifier | None) -> LinearClassifier:
        """Return a client's own model: the minimiser on its records."""
        cumulative = self._cumulative(cell)
        key = (client, iteration, cell.samples, cumulative)
        if key not in self._kept:
            x, y = self.records.of(client, iteration, cell.samples, cumulative)
            before = self._kept.get((client, iteration - 1, cell.samples, cumulative))
            weights = minimise(
                x.astype(np.float64),
                y,
                self.records.classes,
                self.settings.regulariser,
                self.settings.tolerance,
                None if before is None else before.weights.astype(np.float64),
            )
            self._kept[key] = LinearClassifier(weights, np.zeros(len(weights)))
        return self._kept[key]

    def noise(self, cell: Cell, client: int, iteration: int, model: LinearClassifier) -> Noise | None:
        """Return noise for all releases that a record is in: all iterations if data are kept, else one."""
        if cell.mechanism in NOISELESS:
            return None
        cumulative = self._cumulative(cell)
        count = cell.samples * (iteration if cumulative else 1)
        l2 = l2_sensitivity(count, self.settings.regulariser, self.settings.tolerance)
        releases = self.settings.iterations if cumulative else 1
        # Shares of one Laplace noise must have one scale, so the strictest client decides.
        epsilon = min(cell.epsilons) if cell.mechanism == "gamma-shares" else cell.epsilons[client]
        return right_noise(cell.mechanism, epsilon, self.settings.delta, releases, l2, model.weights.size, cell.clients)

    def judge(self, model: LinearClassifier) -> float:
        """Return the accuracy of a model that `fit` returned; each is judged once, for all cells."""
        if id(model) not in self._judged:
            self._judged[id(model)] = model.accuracy(self.records.x_test, self.records.y_test)
        return self._judged[id(model)]

    def _cumulative(self, cell: Cell) -> bool:
        return self.settings.cumulative and cell.mechanism != "base"
