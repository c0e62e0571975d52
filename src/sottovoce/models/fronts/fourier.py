"""Random Fourier features of tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.models.base import Shape
from sottovoce.models.fronts.projection import LENGTH

Floats = NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class Fourier:
    """Front for rows of numbers: cosines along random directions, after standardisation by public ranges.

        z = (x - centre) / spread                                            for each column
        features_i = sqrt(2 / dims) cos(w_i^T z + b_i) / 0.3                 w_i ~ N(0, I / h^2), b_i ~ U(0, 2 pi)

    Products of features approach the Gaussian kernel exp(-|z - z'|^2 / (2 h^2)) (Rahimi and Recht 2007), so that a
    linear head learns what is not linear in the table. h = `bandwidth`; by default the root of the number of columns.

    What is public, and why: `centre` and `spread` follow from the ranges in a schema, which nobody took from records (a
    column scaled to [0, 1] has 1/2 and 1/sqrt(12), those of a uniform number; one without a range is left as it is).
    Directions come from `seed` by formulas, so nothing travels; two machines may differ in the last bits of a cosine.
    """

    input_shape: Shape
    input_scale: float = 1.0
    dims: int = 400
    seed: int = 1
    bandwidth: float | None = None
    centre: tuple[float, ...] = ()  # one a column; empty: 0
    spread: tuple[float, ...] = ()  # one a column; empty: 1

    name: ClassVar[str] = "fourier"
    parallel: ClassVar[bool] = True

    @classmethod
    def make(
        cls, input_shape: Shape, dtype: str, *, input_scale: float, dims: int | None, seed: int, **keys: Any
    ) -> Self:
        """Return the front for stored records of a shape and type, not yet fitted."""
        if len(input_shape) == 1 and dtype.startswith(("uint", "int")):
            raise InputError(
                "front 'fourier' reads rows of numbers, and these records are rows of token ids; use front = \"hashed\""
            )
        return cls(input_shape, input_scale, dims or 400, seed, **keys)

    def __post_init__(self) -> None:
        if len(self.input_shape) != 1:
            raise InputError(
                f"front 'fourier' reads rows of numbers, and these records have shape {self.input_shape}; use front = "
                '"scattering" for images, or "none"'
            )

    @property
    def width(self) -> int:
        """Count the features of a record."""
        return self.dims

    @property
    def memory(self) -> int:
        """Count the bytes that the features of one record need on the way."""
        return 4 * self.dims

    def features(self, x: NDArray[Any]) -> Floats:
        """Return the features of rows."""
        directions, phases = self._waves
        angles = (x.astype(np.float32) * np.float32(self.input_scale)) @ directions + phases
        return np.asarray(np.cos(angles) * np.float32(LENGTH * math.sqrt(2 / self.dims)))

    def probe_features(self, x: NDArray[Any]) -> Floats:
        """Return `features`: nothing is fitted."""
        return self.features(x)

    def fitted(self, public: NDArray[Any], scale: float, threads: int = 1) -> Self:
        """Return itself: nothing is fitted."""
        return self

    def payload(self) -> bytes:
        """Return nothing: the directions follow from the seed in the configuration."""
        return b""

    def told(self, payload: bytes) -> tuple[Self, bytes]:
        """Return itself and the whole payload, of which nothing is needed."""
        return self, payload

    @property
    def measured(self) -> bool:
        """Tell whether it has numbers that are measured on public records."""
        return False

    @property
    def most_bytes(self) -> int:
        """Return 0: nothing travels."""
        return 0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return directions (columns, features), which include centre and spread, and phases."""
        directions, phases = self._waves
        return {"directions": directions, "phases": phases}

    @cached_property
    def _waves(self) -> tuple[Floats, Floats]:
        (columns,) = self.input_shape
        bandwidth = math.sqrt(columns) if self.bandwidth is None else self.bandwidth
        directions = _normal(self.seed, columns * self.dims).reshape(columns, self.dims) / bandwidth
        phases = 2 * math.pi * _uniform(self.seed, 1, self.dims)
        centre, spread = np.array(self.centre or [0.0] * columns), np.array(self.spread or [1.0] * columns)
        directions /= spread[:, None]
        phases = (phases - centre @ directions) % (2 * math.pi)
        return directions.astype(np.float32), phases.astype(np.float32)


def _uniform(seed: int, path: int, count: int) -> NDArray[np.float64]:
    """Return uniform numbers in (0, 1], from raw words, whose stream numpy never changes."""
    words = np.asarray(Streams(seed).get(Purpose.SETUP, path).bit_generator.random_raw(count))
    return np.asarray(((words >> np.uint64(11)) + np.uint64(1)) * 2.0**-53)


def _normal(seed: int, count: int) -> NDArray[np.float64]:
    """Return normal numbers by the method of Box and Muller."""
    uniform = _uniform(seed, 0, 2 * count)
    return np.asarray(np.sqrt(-2 * np.log(uniform[:count])) * np.cos(2 * math.pi * uniform[count:]))
