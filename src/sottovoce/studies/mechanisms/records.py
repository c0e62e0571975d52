"""Whose records are whose in the study, and in which form they are read."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.data import load
from sottovoce.studies.mechanisms.settings import Settings

Values = NDArray[np.floating[Any]]
Labels = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Records:
    """Train and test records as rows, and which of them a client has."""

    x_train: Values
    y_train: Labels
    x_test: Values
    y_test: Labels
    classes: int
    iterations: int

    def of(self, client: int, iteration: int, samples: int, cumulative: bool) -> tuple[Values, Labels]:
        """Return a client's records of an iteration, counted from 1: those that came so far, or the new ones.

        Client c owns iterations * samples records from c * iterations * samples on. Where the data set is too small
        for all clients, the count starts again at its beginning, and `holders` clients have the same record.
        """
        first = client * self.iterations * samples
        begin = first if cumulative else first + (iteration - 1) * samples
        places = np.arange(begin, first + iteration * samples) % len(self.y_train)
        return self.x_train[places], self.y_train[places]

    def holders(self, clients: int, samples: int) -> int:
        """Return how many clients have the same record, at most."""
        return math.ceil(clients * self.iterations * samples / len(self.y_train))


def load_records(settings: Settings) -> Records:
    """Load the data set in the form of a mode.

    "printed": train and test records in one row, each feature scaled to [0, 1] by its least and greatest value over
    all of them, the last `test_records` for judging. "right": the constant `centre` is taken from each value,
    each record scaled to unit length by itself, a constant feature added, and all divided by sqrt(2), so that the
    length is 1 and no record tells of another.
    """
    dataset = load(settings.data)
    shape = (-1, math.prod(dataset.shape))
    parts = [np.asarray(x, np.float64).reshape(shape) for x in (dataset.x_train, dataset.x_test)]
    labels = [np.asarray(y, np.int64) for y in (dataset.y_train, dataset.y_test)]
    tests = settings.test_records or len(labels[1])
    if tests > len(labels[1]):
        raise InputError(
            f"[study] test_records must be at most {len(labels[1])}, the test records of {settings.data}, got {tests}"
        )
    if settings.mode == "printed":
        x, y = np.concatenate(parts), np.concatenate(labels)
        low, high = x.min(0), x.max(0)
        x = ((x - low) / np.where(high > low, high - low, 1.0)).astype(np.float32)
        found = Records(x[:-tests], y[:-tests], x[-tests:], y[-tests:], dataset.classes, settings.iterations)
    else:
        x_train, x_test = (_unit(part * dataset.input_scale - settings.centre) for part in parts)
        judged = x_test[-tests:].astype(np.float32)  # accuracies need no more digits, and are most of the work
        found = Records(x_train, labels[0], judged, labels[1][-tests:], dataset.classes, settings.iterations)
    _warn(settings, found)
    return found


def _unit(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return records (x / ||x||, 1) / sqrt(2); an empty image stays zero."""
    lengths = np.sqrt((x * x).sum(1, keepdims=True))
    return np.hstack([x / np.where(lengths > 0, lengths, 1.0), np.ones((len(x), 1))]) / math.sqrt(2)


def _warn(settings: Settings, records: Records) -> None:
    most = max(settings.samples) * settings.iterations
    if most > len(records.y_train):
        raise InputError(
            f"[study] one client would have {most} records of {len(records.y_train)}; lower samples or iterations"
        )
    holders = records.holders(max(settings.clients), max(settings.samples))
    if holders > 1:
        logging.getLogger(__name__).warning(
            "%s has %d train records here, and %d clients want %d: up to %d clients have the same record",
            settings.data,
            len(records.y_train),
            max(settings.clients),
            max(settings.clients) * most,
            holders,
        )
