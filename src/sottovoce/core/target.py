"""What the labels of records are: class numbers, a number with a range, or several yes-or-no answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError

Kind = Literal["class", "number", "answers"]
SPREADS: Final = 4  # standard deviations that a public range is taken for

MOST_ANSWERS: Final = 63  # yes-or-no answers of a record: they fit the bits of one integer


@final
@dataclass(frozen=True)
class Target:
    """What a label is, and for numbers the scale on which a model learns them: (value - centre) / scale.

    `low` and `high` are the range of a number where it is public: labels beyond are cut off there.

    >>> Target.between(0, 200)
    Target(kind='number', centre=100.0, scale=50.0, low=0.0, high=200.0)
    """

    kind: Kind = "class"
    centre: float = 0.0
    scale: float = 1.0
    low: float | None = None
    high: float | None = None

    @classmethod
    def between(cls, low: float, high: float) -> Target:
        """Return the target of numbers in a public range."""
        if not (np.isfinite([low, high]).all() and low < high):
            raise DataError(
                f"the range of a label must be two finite numbers, the lower first, got {low:g} and {high:g}"
            )
        return cls("number", (low + high) / 2, (high - low) / SPREADS, float(low), float(high))

    @classmethod
    def fitted(cls, values: NDArray[Any]) -> Target:
        """Return the target of numbers whose scale is taken from the records themselves."""
        wide = np.asarray(values, np.float64)
        return cls("number", float(wide.mean()), float(wide.std()) or 1.0)

    @classmethod
    def of(cls, described: Mapping[str, Any] | None) -> Target:
        """Read what `describe` wrote; runs from before there were other kinds have classes."""
        try:
            return cls(**(described or {}))
        except TypeError as error:
            raise DataError(f"the description of the label is damaged: {error}") from None

    @property
    def usual_range(self) -> list[float]:
        """Return the range that stands for the scale, where none was declared."""
        half = self.scale * SPREADS / 2
        return [self.centre - half, self.centre + half]

    def describe(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return asdict(self)

    def stored(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return labels as they are stored: class numbers as they are, numbers as float32 within the range."""
        if self.kind != "number":
            return values
        wide = np.asarray(values, np.float64)
        if self.low is not None and self.high is not None:
            wide = np.clip(wide, self.low, self.high)
        return wide.astype(np.float32)

    def blank(self, records: int, classes: int) -> NDArray[Any]:
        """Return labels of records that are not there: each class in turn, or the middle."""
        if self.kind == "number":
            return np.full(records, self.centre, np.float32)
        if self.kind == "answers":
            return np.zeros((records, classes), np.uint8)
        return np.arange(records) % classes

    def check(self, where: str, y: NDArray[Any], classes: int) -> None:
        """Raise unless labels are what they should be."""
        if self.kind == "number":
            _check_numbers(where, y)
        elif self.kind == "answers":
            _check_answers(where, y, classes)
        else:
            _check_classes(where, y, classes)


CLASSES: Final = Target()  # the usual: class numbers


def _check_numbers(where: str, y: NDArray[Any]) -> None:
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.floating):
        raise DataError(f"{where} labels have type {y.dtype} and shape {y.shape}; regression needs one number a record")
    bad = int(np.count_nonzero(~np.isfinite(y)))
    if bad:
        raise DataError(f"{where} labels: {bad} of {len(y)} are NaN or infinite; remove these records")


def _check_answers(where: str, y: NDArray[Any], answers: int) -> None:
    if y.ndim != 2 or y.shape[1] != answers or not np.isin(y, (0, 1)).all():
        raise DataError(f"{where} labels have shape {y.shape}; each record needs {answers} answers of 0 or 1")


def _check_classes(where: str, y: NDArray[Any], classes: int) -> None:
    if y.ndim != 1:
        raise DataError(f"{where} labels have shape {y.shape}; each record needs one label")
    if not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"{where} labels have type {y.dtype}; they must be integer class numbers")
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= classes:
        raise DataError(f"{where} labels go from {low} to {high}; they must lie in [0, {classes - 1}]")
