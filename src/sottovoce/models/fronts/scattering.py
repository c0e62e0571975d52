"""Scattering: moduli of wavelet transforms, averaged over small squares."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.errors import InputError
from sottovoce.models.base import Shape
from sottovoce.models.fronts.filters import mirrored, morlet, thinning
from sottovoce.models.fronts.front import mapped
from sottovoce.models.fronts.projection import Projection

LANES: Final = 16
Floats = NDArray[np.float32]


class Bank(NamedTuple):
    """All that `scatter` needs beside images; kernels are (orientations, size, size), their size a multiple of 3."""

    real: Floats
    imaginary: Floats
    halves: tuple[Floats, Floats]  # rows and columns: to half the size
    places: tuple[Floats, Floats]  # from the whole image to the places
    places_of_half: tuple[Floats, Floats]  # from half the size to the places
    margins: tuple[NDArray[np.int64], NDArray[np.int64]]
    margins_of_half: tuple[NDArray[np.int64], NDArray[np.int64]]


def woven(x: NDArray[Any], scale: float) -> Floats:
    """Return images (records, height, width) times `scale` as planes (blocks, height, width * LANES); a rest is 0."""
    records, height, width = x.shape
    blocks = -(-records // LANES)
    planes = np.zeros((blocks * LANES, height, width), np.float32)
    np.multiply(x, np.float32(scale), out=planes[:records])
    lanes = planes.reshape(blocks, LANES, height, width).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(lanes).reshape(blocks, height, width * LANES)


def scatter(planes: Floats, bank: Bank, out: Floats) -> None:
    """Fill `out` (blocks, 1 + 2 L + L^2, rows, columns * LANES) with orders 0, 1 and 2 of planes (blocks, ...)."""
    if (library := native.library()) is None:
        for plane, found in zip(planes, out, strict=True):
            _scatter(plane, bank, found)
        return
    blocks, height, width = planes.shape
    parts = (bank.real, bank.imaginary, *bank.halves, *bank.places, *bank.places_of_half)
    real, imaginary, *matrices = (np.ascontiguousarray(part, np.float32) for part in parts)
    margins = [np.ascontiguousarray(part, np.int64) for part in (*bank.margins, *bank.margins_of_half)]
    failed = library.scatter(
        *(native.place(planes), blocks, height, width // LANES),
        *(native.place(real), native.place(imaginary), *real.shape[:2]),
        *(native.place(matrices[0]), native.place(matrices[1]), len(matrices[0]), len(matrices[1])),
        *(native.place(part) for part in matrices[2:]),
        *(len(matrices[2]), len(matrices[3])),
        *(native.place(part) for part in margins),
        native.place(out),
    )
    if failed:
        raise MemoryError("no memory for the scattering of images")


def _scatter(plane: Floats, bank: Bank, found: Floats) -> None:
    waves = list(zip(bank.real, bank.imaginary, strict=True))
    count = len(waves)
    found[0] = _thin(plane, bank.places)
    half = _frame(_thin(plane, bank.halves), bank.margins_of_half)
    whole = _frame(plane, bank.margins)
    for angle, wave in enumerate(waves):
        found[1 + count + angle] = _thin(_modulus(half, *wave), bank.places_of_half)
        first = _modulus(whole, *wave)
        found[1 + angle] = _thin(first, bank.places)
        later = _frame(_thin(first, bank.halves), bank.margins_of_half)
        for other, second in enumerate(waves):
            found[1 + (2 + angle) * count + other] = _thin(_modulus(later, *second), bank.places_of_half)


def _modulus(framed: Floats, real: Floats, imaginary: Floats) -> Floats:
    """Return |framed * (real + i imaginary)|; three taps are added before they are added to the rest."""
    size = len(real)
    height, length = framed.shape[0] - size + 1, framed.shape[1] - (size - 1) * LANES
    sums = np.zeros((2, height, length), np.float32)
    for down in range(size):
        for right in range(0, size, 3):
            x, y, z = (
                framed[down : down + height, place * LANES : place * LANES + length]
                for place in range(right, right + 3)
            )
            for total, taps in zip(sums, (real[down], imaginary[down]), strict=True):
                total += taps[right] * x + taps[right + 1] * y + taps[right + 2] * z
    cosine, sine = sums
    return np.asarray(np.sqrt(cosine * cosine + sine * sine))


def _thin(plane: Floats, matrices: tuple[Floats, Floats]) -> Floats:
    """Return rows * plane * columns^T, added one after the other."""
    rows, columns = matrices
    lines = np.zeros((len(rows), plane.shape[1]), np.float32)
    for row, pixels in enumerate(plane):
        lines += rows[:, row, None] * pixels
    lanes = lines.reshape(len(rows), -1, LANES)
    out = np.zeros((len(rows), len(columns), LANES), np.float32)
    for other in range(columns.shape[1]):
        out += columns[:, other, None] * lanes[:, None, other]
    return out.reshape(len(rows), -1)


def _frame(plane: Floats, margins: tuple[NDArray[np.int64], NDArray[np.int64]]) -> Floats:
    """Return a plane with its margins."""
    rows, columns = margins
    return plane.reshape(len(plane), -1, LANES)[rows][:, columns].reshape(len(rows), -1)


_ORIENTATIONS: Final = 8  # L
_CHANNELS: Final = 1 + 2 * _ORIENTATIONS + _ORIENTATIONS**2
_STEP: Final = 4  # 2^J pixels from one place to the next
_KERNEL: Final = 9  # pixels of a wave: 2.5 of its longer standard deviations to either side
_SIGMA, _FREQUENCY, _SLANT = 0.8, 0.75 * math.pi, 0.5  # of the finest wave, in pixels
_BLUR: Final = 0.8  # before an image is halved
_WINDOW: Final = 1.6  # standard deviation of the average over a square
_SMALLEST: Final = 8
_MOST_BYTES: Final = 2**30  # of the coefficients that a projection is fitted on


def usual_dims(shape: Shape) -> int:
    """Return how many features are usual for images of a shape: 400, or half of the coefficients of a small one.

    >>> usual_dims((28, 28, 1)), usual_dims((8, 8, 1))
    (400, 162)
    """
    coefficients = _CHANNELS * math.prod(-(-size // _STEP) for size in shape[:2]) * math.prod(shape[2:])
    return max(1, min(400, coefficients // 2))


@final
@dataclass(frozen=True, eq=False)
class Scattering:
    """Front for images of any size and number of channels: J = 2 scales, L = 8 orientations, orders 0 to 2.

    For each channel of an image x, with waves psi_j,l of orientation l at scale j = 0, 1 (`filters.morlet`, sigma 0.8
    2^j, xi = 3 pi / 4 2^-j, slant 0.5) and a Gaussian phi of sigma 1.6, read at one of 4 x 4 pixels:

        order 0    x * phi                                      1 channel
        order 1    |x * psi_j,l| * phi                          2 L = 16
        order 2    ||x * psi_0,l| * psi_1,m| * phi              L^2 = 64

    (Bruna and Mallat 2013, "Invariant scattering convolution networks"; Tramèr and Boneh 2021, "Differentially private
    learning needs better features", saw what it does under privacy.) Convolutions are spatial, edges are mirrored, and
    scale 1 is computed on an image that was blurred (sigma 0.8) and halved. These 81 channels x places are projected to
    `dims` features of one length (`projection.py`).

    What is public, and why: the waves are formulas. The projection was measured on public records and travels in the
    set-up. No client's record has any part in either.
    """

    input_shape: Shape
    input_scale: float
    dims: int = 400
    projection: Projection | None = None

    name: ClassVar[str] = "scattering"
    parallel: ClassVar[bool] = True

    @classmethod
    def make(cls, input_shape: Shape, dtype: str, *, input_scale: float, dims: int | None, seed: int) -> Self:
        """Return the front for stored records of a shape and type, not yet fitted."""
        return cls(input_shape, input_scale, dims or usual_dims(input_shape))

    def __post_init__(self) -> None:
        if len(self.input_shape) != 3 or min(self.input_shape[:2]) < _SMALLEST:
            raise InputError(
                f"front 'scattering' reads images (height, width, channels) of {_SMALLEST} x {_SMALLEST} or more, and "
                f'these records have shape {self.input_shape}; use front = "fourier" for rows of numbers, "hashed" '
                'for texts, or "none"'
            )
        if not 1 <= self.dims <= self.channels * self.places:
            raise InputError(
                f"[model] projection.dims must be at most the {self.channels * self.places} coefficients of front "
                f"'scattering' on images of shape {self.input_shape}, got {self.dims}"
            )

    @property
    def channels(self) -> int:
        """Count the channels of the coefficients."""
        return _CHANNELS * self.input_shape[2]

    @property
    def places(self) -> int:
        """Count the squares over which coefficients are averaged."""
        return math.prod(-(-size // _STEP) for size in self.input_shape[:2])

    @property
    def width(self) -> int:
        """Count the features of a record."""
        return self.dims

    def coefficients(self, x: NDArray[Any], scale: float | None = None) -> Floats:
        """Return the scattering coefficients (records, channels, places) of stored images."""
        scale = self.input_scale if scale is None else scale
        channels = [self._of_channel(x[..., channel], scale) for channel in range(self.input_shape[2])]
        return channels[0] if len(channels) == 1 else np.concatenate(channels, 1)

    def fitted(self, public: NDArray[Any], scale: float, threads: int = 1) -> Self:
        """Return a copy whose projection was measured on public images, stored in units of `scale`."""
        size = 4 * self.channels * self.places
        if len(public) * size > _MOST_BYTES:
            raise InputError(
                f"[model] projection.samples must be at most {_MOST_BYTES // size} for images of shape "
                f"{self.input_shape}, got {len(public)}: more would need too much memory"
            )
        shape = (self.channels, self.places)
        found = mapped(lambda x: self.coefficients(x, scale), public, shape, threads, self.memory)
        return replace(self, projection=Projection.fit(found, self.dims))

    @property
    def memory(self) -> int:
        """Count the bytes that the features of one record need on the way."""
        return 8 * self.channels * self.places

    def features(self, x: NDArray[Any]) -> Floats:
        """Return the features of stored images."""
        return self.known.features(self.coefficients(x))

    def probe_features(self, x: NDArray[Any]) -> Floats:
        """Return the first of what the projection would read."""
        return self.coefficients(x).reshape(len(x), -1)[:, : self.width]

    def payload(self) -> bytes:
        """Return the projection as it travels."""
        return self.known.payload()

    def told(self, payload: bytes) -> tuple[Self, bytes]:
        """Return a client's copy, with the projection that the set-up carries, and the rest of the set-up."""
        known, rest = Projection.read(payload, channels=self.channels, places=self.places, dims=self.dims)
        return replace(self, projection=known), rest

    @property
    def measured(self) -> bool:
        """Tell whether it has numbers that are measured on public records."""
        return True

    @property
    def most_bytes(self) -> int:
        """Return the bytes of the longest payload that `told` takes."""
        return Projection.most_bytes(self.channels, self.places, self.dims)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the projection's numbers by name, for a file."""
        return self.known.arrays()

    @property
    def known(self) -> Projection:
        """Return the projection, or say that there is none yet."""
        if self.projection is None:
            raise InputError("front 'scattering' has no projection yet: fit it on public images, or read a set-up")
        return self.projection

    @cached_property
    def bank(self) -> Bank:
        """Return the waves and windows for images of this shape."""
        waves = [
            morlet(_KERNEL, math.pi * number / _ORIENTATIONS, sigma=_SIGMA, frequency=_FREQUENCY, slant=_SLANT)
            for number in range(_ORIENTATIONS)
        ]
        bank = np.array(waves) * (_SLANT / (2 * math.pi * _SIGMA**2))
        height, width, _ = self.input_shape
        small, narrow = -(-height // 2), -(-width // 2)
        reach = _KERNEL // 2
        return Bank(
            real=np.ascontiguousarray(bank.real, np.float32),
            imaginary=np.ascontiguousarray(bank.imag, np.float32),
            halves=(thinning(height, 2, _BLUR), thinning(width, 2, _BLUR)),
            places=(thinning(height, _STEP, _WINDOW), thinning(width, _STEP, _WINDOW)),
            places_of_half=(thinning(small, _STEP // 2, _WINDOW / 2), thinning(narrow, _STEP // 2, _WINDOW / 2)),
            margins=(mirrored(height, reach), mirrored(width, reach)),
            margins_of_half=(mirrored(small, reach), mirrored(narrow, reach)),
        )

    def _of_channel(self, x: NDArray[Any], scale: float) -> Floats:
        planes = woven(x, scale)
        rows, columns = (-(-size // _STEP) for size in self.input_shape[:2])
        out = np.empty((len(planes), _CHANNELS, rows, columns * LANES), np.float32)
        scatter(planes, self.bank, out)
        lanes = out.reshape(len(planes), _CHANNELS, rows * columns, LANES).transpose(0, 3, 1, 2)
        return lanes.reshape(-1, _CHANNELS, rows * columns)[: len(x)]
