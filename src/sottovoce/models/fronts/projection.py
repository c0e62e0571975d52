"""Project the coefficients of a front to few features, along axes that were measured on public records.

Coefficients come as a matrix F of channels x places. A whole principal component analysis would need a matrix of
(channels * places)^2 numbers; the separable one has an axis a for channels and an axis b for places, and a feature is a
product of two:

    y = a^T D F b          with D = diag(1 / (s_c + 0.02 max s)), s_c the standard deviation of channel c
    f = (y - mean(y)) * var(y)^(-1/4)          for the products (a, b) of largest variance
    features = f / |f| / 0.3

The axes are the eigenvectors of the second moments of D (F - mean F), over channels and over places. The power -1/4 is
half way between leaving the variances as they are and making them equal. A head with a bias sees a constant 1 beside
features of length 1 / 0.3, which is a constant 0.3 beside features of length 1.

What is public, and why: axes, means and variances come from public records alone, real ones or synthetic ones. They
travel in the set-up as numbers: eigenvectors differ between machines in their signs, and where variances are nearly
equal in much more. Axes travel as float16, means and factors as float32, and everybody uses them as they travelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import native, wire
from sottovoce.core.errors import InputError, WireError
from sottovoce.core.vectors import Vector

LENGTH: Final = 1 / 0.3  # of a record's features
_SHRINKAGE: Final = 0.02  # of the largest standard deviation of a channel, added to each
_LEAST: Final = 1e-9  # variance, as a share of the largest, from which a product counts as one
_CHUNK: Final = 500  # records at once
_SIZES: Final = 2  # axes of channels and of places

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Projection:
    """A separable projection as everybody has it, after its numbers have travelled.

    Symbols: rows of `channels` = a^T D, rows of `places` = b, `pairs` = which row of each makes a feature, `centre` =
    mean(y), `factor` = var(y)^(-1/4), up to one factor for all.
    """

    channels: Floats
    places: Floats
    pairs: NDArray[np.int64]  # (features, 2)
    centre: Vector
    factor: Vector

    @classmethod
    def fit(cls, coefficients: Floats, dims: int) -> Self:
        """Measure the axes on coefficients (records, channels, places) of public records; keep `dims` products."""
        spread = coefficients.std((0, 2), dtype=np.float64)
        weight = 1 / (spread + _SHRINKAGE * spread.max()) if spread.max() > 0 else np.ones_like(spread)
        mean = coefficients.mean(0, dtype=np.float64) * weight[:, None]
        first, second = _moments(coefficients, weight, mean)
        along, across = _axes(first) * weight, _axes(second)
        variance = _products(coefficients, along, across)[1]
        kept = np.argsort(-variance, axis=None, kind="stable")[:dims]
        most = int(np.count_nonzero(variance > _LEAST * variance.max()))
        if dims > most:
            raise InputError(
                f"[model] projection.dims must be at most {most}, the products that vary in its source, got {dims}"
            )
        pairs = np.stack(np.unravel_index(kept, variance.shape), 1)
        used = [np.unique(pairs[:, side], return_inverse=True) for side in (0, 1)]
        (channels, tall), (places, wide) = (
            _half(axes[rows]) for axes, (rows, _) in zip((along, across), used, strict=True)
        )
        pairs = np.stack([inverse for _, inverse in used], 1)
        # Measured again, on the axes that travel: they are rounded, and divided by their largest values.
        means, variances = (found[pairs[:, 0], pairs[:, 1]] for found in _products(coefficients, channels, places))
        largest = tall[pairs[:, 0]] * wide[pairs[:, 1]]
        factor = np.sqrt(largest) * np.maximum(variances, np.finfo(np.float64).tiny) ** -0.25
        return cls(channels, places, pairs, means.astype(np.float32), (factor / factor.max()).astype(np.float32))

    @property
    def dims(self) -> int:
        """Count the features."""
        return len(self.pairs)

    def raw(self, coefficients: Floats) -> Floats:
        """Return f of every record, (records, features)."""
        chosen = np.empty((len(coefficients), self.dims), np.float32)
        project(coefficients, self.channels, np.ascontiguousarray(self.places.T), self.pairs, chosen)
        return np.asarray((chosen - self.centre) * self.factor)

    def features(self, coefficients: Floats) -> Floats:
        """Return the features of every record, all of one length."""
        return unit(self.raw(coefficients))

    def payload(self) -> bytes:
        """Return the numbers as they travel."""
        return b"".join(
            (
                wire.pack(np.array([len(self.channels), len(self.places)], np.uint32), bits=32),
                *(wire.pack(_words(axes), bits=16) for axes in (self.channels, self.places)),
                wire.pack(self.pairs.astype(np.uint32).reshape(-1), bits=16),
                wire.pack(np.concatenate([self.centre, self.factor])),
            )
        )

    @classmethod
    def read(cls, payload: bytes, *, channels: int, places: int, dims: int) -> tuple[Self, bytes]:
        """Return what `payload` wrote for coefficients of this shape, and the rest."""
        reader = _FrameReader(payload)
        rows = reader.take(_SIZES, 32)
        if not (1 <= rows[0] <= min(channels, dims) and 1 <= rows[1] <= min(places, dims)):
            raise WireError(f"set-up has {rows.tolist()} axes for {channels} channels and {places} places")
        along, across = (
            _floats(reader.take(int(count) * size, 16)).reshape(-1, size)
            for count, size in zip(rows, (channels, places), strict=True)
        )
        pairs = reader.take(2 * dims, 16).reshape(-1, 2).astype(np.int64)
        centre, factor = np.split(reader.take_floats(2 * dims), 2)
        if (pairs >= rows).any():
            raise WireError("set-up pairs an axis that it does not hold")
        if not all(np.isfinite(part).all() for part in (along, across, centre, factor)):
            raise WireError("set-up has a projection whose numbers are not finite")
        return cls(along, across, pairs, centre, factor), reader.rest

    @staticmethod
    def most_bytes(channels: int, places: int, dims: int) -> int:
        """Return the bytes of the longest payload that `read` takes for coefficients of this shape."""
        lengths = ((_SIZES, 32), (min(channels, dims) * channels, 16), (min(places, dims) * places, 16))
        return sum(wire.frame_size(*each) for each in (*lengths, (2 * dims, 16), (2 * dims, 32)))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the numbers by name, for a file."""
        return {name: getattr(self, name) for name in ("channels", "places", "pairs", "centre", "factor")}


def unit(features: Floats) -> Floats:
    """Return features of length 1 / 0.3; a record without any stays at zero."""
    length = np.sqrt(np.einsum("ij,ij->i", features, features))[:, None]
    return np.asarray(features * (np.float32(LENGTH) / np.where(length > 0, length, np.float32(1))))


class _FrameReader:
    """The frames of a payload, one after the other."""

    def __init__(self, payload: bytes) -> None:
        self.rest = payload

    def take(self, length: int, bits: int) -> NDArray[Any]:
        return wire.unpack(self._cut(wire.frame_size(length, bits)), length=length, bits=bits)

    def take_floats(self, length: int) -> Vector:
        return wire.unpack_floats(self._cut(wire.frame_size(length)), length=length)

    def _cut(self, size: int) -> bytes:
        frame, self.rest = self.rest[:size], self.rest[size:]
        return frame


def _moments(
    coefficients: Floats, weight: NDArray[np.float64], mean: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the second moments of the weighted coefficients over channels and over places."""
    _, channels, places = coefficients.shape
    first, second = np.zeros((channels, channels)), np.zeros((places, places))
    for start in range(0, len(coefficients), _CHUNK):
        part = coefficients[start : start + _CHUNK] * weight.astype(np.float32)[:, None] - mean.astype(np.float32)
        tall, wide = part.transpose(1, 0, 2).reshape(channels, -1), part.reshape(-1, places)
        first += tall @ tall.T
        second += wide.T @ wide
    return first / len(coefficients), second / len(coefficients)


def _axes(moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the eigenvectors as rows, that of the largest value first."""
    return np.asarray(np.linalg.eigh(moments)[1][:, ::-1].T)


def _products(
    coefficients: Floats, along: NDArray[Any], across: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and variance of every product, (axes of channels, axes of places)."""
    left, right = along.astype(np.float32), across.astype(np.float32)
    total, squares = np.zeros((2, len(left), len(right)))
    for start in range(0, len(coefficients), _CHUNK):
        found = np.matmul(np.matmul(left, coefficients[start : start + _CHUNK]), right.T).astype(np.float64)
        total += found.sum(0)
        squares += (found**2).sum(0)
    mean = total / len(coefficients)
    return mean, np.maximum(squares / len(coefficients) - mean**2, 0)


def _half(axes: NDArray[np.float64]) -> tuple[Floats, NDArray[np.float64]]:
    """Return rows divided by their largest value and rounded to float16, and these values.

    So no row is too large or too small for float16.
    """
    largest = np.abs(axes).max(1)
    return (axes / largest[:, None]).astype(np.float16).astype(np.float32), largest


def project(coefficients: Floats, channels: Floats, places: Floats, pairs: NDArray[np.int64], out: Floats) -> None:
    """Fill `out` with the products of each record; not by BLAS, whose rounding depends on the number of records."""
    records, depth, size = coefficients.shape
    if (library := native.library()) is not None:
        coefficients, channels = (np.ascontiguousarray(part, np.float32) for part in (coefficients, channels))
        pairs = np.ascontiguousarray(pairs, np.int64)
        room = np.empty(size + len(channels) * places.shape[1], np.float32)
        library.project(
            *(native.place(coefficients), records, depth, size),
            *(native.place(channels), len(channels), native.place(places), places.shape[1]),
            *(native.place(pairs), len(pairs), native.place(out), native.place(room)),
        )
        return
    lines = np.zeros((records, len(channels), size), np.float32)
    for channel in range(depth):
        lines += channels[:, channel, None] * coefficients[:, None, channel]
    products = np.zeros((records, len(channels), places.shape[1]), np.float32)
    for place in range(size):
        products += lines[:, :, place, None] * places[place]
    out[:] = products[:, pairs[:, 0], pairs[:, 1]]


def _words(axes: Floats) -> NDArray[np.uint32]:
    return axes.astype("<f2").view("<u2").astype(np.uint32).reshape(-1)


def _floats(words: NDArray[Any]) -> Floats:
    return words.astype("<u2").view("<f2").astype(np.float32)
