"""Gabor filters as the first layers of the papers' CNN, whose architecture stays exactly what it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Vector
from sottovoce.models.fronts.filters import gaussian, morlet
from sottovoce.models.fronts.front import mapped
from sottovoce.models.fronts.projection import LENGTH, Projection
from sottovoce.models.network import Conv2d, Flatten, Linear, MaxPool, Network

_ORIENTATIONS: Final = 7
_SIZE: Final = 5
_SIGMA, _FREQUENCY, _SLANT = 0.8, 0.75 * math.pi, 0.5
_BLUR: Final = 4 * _ORIENTATIONS  # the channel of conv1 that only blurs
_UNITS: Final = 512  # of fc1

Floats = NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class Gabor:
    """Front that is the lower part of the papers' CNN itself: it fills w_0 of conv1, conv2 and fc1.

        conv1    7 orientations x 4 phases (cosine, sine and their negatives) of 5 x 5 Morlet waves (sigma 0.8,
                 xi = 3 pi / 4, slant 0.5; mean removed, length 1); a blur (Gaussian, sigma 0.8); a delta;
                 the delta less the blur, and its negative
        conv2    of each orientation the sum of its four phases, and of the blur: blurred, and filtered by the 7
                 cosine waves, whose absolute values sum to 2
        fc1      256 products of a separable projection (`projection.py`) of the 64 x places outputs, each once as it
                 is and once negated, times one factor that gives the 512 outputs a mean length of 1 / 0.3 on the
                 public images

    Biases are 0 but for those of fc1, which hold the means. A colour image is read as the mean of its channels. The
    last layer starts as ever. With `[scheme] train = "head"` nothing else trains.

    What is public, and why: the waves are formulas. The projection was measured on public images and travels in the
    set-up. No client's record has any part in either.
    """

    network: Network
    dims: int | None = None  # None: as many as fit
    projection: Projection | None = None

    name: ClassVar[str] = "gabor"

    def __post_init__(self) -> None:
        match self.network.layers:
            case (Conv2d(32, 5), MaxPool(2), Conv2d(64, 5), MaxPool(2), Flatten(), Linear(512), Linear()):
                pass
            case _:
                raise InputError(
                    f"front 'gabor' fills the first layers of model 'cnn', and {self.network.name!r} has others; set "
                    '[model] name = "cnn" without width, or front = "scattering"'
                )
        most = min(_UNITS // 2, 64 * self.places)
        if not 1 <= self.width <= most:
            raise InputError(
                f"[model] projection.dims must be at most {most} for front 'gabor' on images of shape "
                f"{self.network.input_shape}: fc1 has two units for each, got {self.dims}"
            )

    @property
    def width(self) -> int:
        """Count the products that fc1 computes."""
        return min(_UNITS // 2, 64 * self.places) if self.dims is None else self.dims

    @property
    def places(self) -> int:
        """Count the places of conv2's outputs, after pooling."""
        return math.prod(self.network.shapes[4][:2])

    def coefficients(self, x: NDArray[Any], scale: float | None = None) -> Floats:
        """Return the pooled outputs of conv2 (records, 64, places) on stored images, by the structure of its filters.

        The network itself gives the same up to rounding; here a sum of phases is filtered once and not four times.
        """
        scale = self.network.input_scale if scale is None else scale
        grey = x.astype(np.float32).mean(3) * np.float32(scale)
        first = _pooled(_filtered(grey[..., None], _first_filters()))[:, :, :, 0]
        waves = first[..., :_BLUR].reshape(*first.shape[:3], _ORIENTATIONS, 4).sum(4)
        maps = np.concatenate([waves, first[..., _BLUR : _BLUR + 1]], 3)
        second = _pooled(_filtered(maps, _second_filters()))
        return np.ascontiguousarray(second.reshape(len(x), self.places, -1).transpose(0, 2, 1))

    def fitted(self, public: NDArray[Any], scale: float, threads: int = 1) -> Self:
        """Return a copy whose projection was measured on public images, stored in units of `scale`."""
        found = mapped(lambda x: self.coefficients(x, scale), public, (64, self.places), threads)
        projection = Projection.fit(found, self.width)
        # The outputs of a pair are y and 0, or 0 and -y: their length is that of the products.
        length = float(np.sqrt((projection.raw(found).astype(np.float64) ** 2).sum(1)).mean())
        factor = projection.factor * np.float32(LENGTH / length)
        return replace(self, projection=replace(projection, factor=factor))

    def fill(self, start: Vector) -> None:
        """Write conv1, conv2 and fc1 into w_0 of the network."""
        if self.projection is None:
            raise InputError("front 'gabor' has no projection yet: fit it on public images, or read a set-up")
        tensors = self.network.layout.views(start)
        channels = self.network.input_shape[2]
        tensors["0.kernel"][...] = (_first_filters() / channels)[:, :, None, :]
        tensors["2.kernel"][...] = _spread(_second_filters())
        for name in ("0.bias", "2.bias", "5.bias"):
            tensors[name][...] = 0
        kernel, bias, pairs = tensors["5.kernel"], tensors["5.bias"], self.projection.pairs
        kernel[...] = 0
        factor = self.projection.factor
        # Outputs of conv2 are flattened place by place, the channel fastest.
        axes = self.projection.places[pairs[:, 1]][:, :, None] * self.projection.channels[pairs[:, 0]][:, None, :]
        rows = (axes.reshape(self.width, -1) * factor[:, None]).T
        kernel[:, : 2 * self.width : 2], kernel[:, 1 : 2 * self.width : 2] = rows, -rows
        centre = self.projection.centre * factor
        bias[: 2 * self.width : 2], bias[1 : 2 * self.width : 2] = -centre, centre

    def payload(self) -> bytes:
        """Return the projection as it travels; the waves are formulas and do not."""
        return b"" if self.projection is None else self.projection.payload()

    def told(self, payload: bytes) -> tuple[Self, bytes]:
        """Return a client's copy, with the projection that the set-up carries, and the rest of the set-up."""
        known, rest = Projection.read(payload, channels=64, places=self.places, dims=self.width)
        return replace(self, projection=known), rest

    @property
    def most_bytes(self) -> int:
        """Return the bytes of the longest payload that `told` takes."""
        return Projection.most_bytes(64, self.places, self.width)


def _waves() -> NDArray[np.complex128]:
    angles = (math.pi * number / _ORIENTATIONS for number in range(_ORIENTATIONS))
    return np.array([morlet(_SIZE, angle, sigma=_SIGMA, frequency=_FREQUENCY, slant=_SLANT) for angle in angles])


def _first_filters() -> Floats:
    """Return conv1's filters, (5, 5, 32)."""
    filters = []
    for wave in _waves():
        cosine, sine = (part / np.linalg.norm(part) for part in (wave.real, wave.imag))
        filters += [cosine, -cosine, sine, -sine]
    blur, delta = gaussian(_SIZE, _SIGMA), np.zeros((_SIZE, _SIZE))
    delta[_SIZE // 2, _SIZE // 2] = 1
    return np.stack([*filters, blur, delta, delta - blur, blur - delta], 2).astype(np.float32)


def _second_filters() -> Floats:
    """Return the eight filters that conv2 applies to each of eight maps, (5, 5, 8)."""
    cosines = [wave.real * (2 / np.abs(wave.real).sum()) for wave in _waves()]
    return np.stack([gaussian(_SIZE, _SIGMA), *cosines], 2).astype(np.float32)


def _spread(filters: Floats) -> Floats:
    """Return conv2's kernel, (5, 5, 32, 64): output 8 m + k is filter k of map m."""
    kernel = np.zeros((_SIZE, _SIZE, 32, 64), np.float32)
    for number in range(_ORIENTATIONS):
        kernel[:, :, 4 * number : 4 * number + 4, 8 * number : 8 * number + 8] = filters[:, :, None, :]
    kernel[:, :, _BLUR, 8 * _ORIENTATIONS :] = filters
    return kernel


def _filtered(maps: Floats, filters: Floats) -> Floats:
    """Return ReLU of every filter on every map, (records, height, width, maps, filters), the size kept by zeros."""
    margin = _SIZE // 2
    padded = np.pad(maps, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (_SIZE, _SIZE), (1, 2))
    flat = windows.reshape(*maps.shape, _SIZE * _SIZE) @ filters.reshape(_SIZE * _SIZE, -1)
    return np.asarray(np.maximum(flat, 0))


def _pooled(maps: Floats) -> Floats:
    """Return the largest of each 2 x 2 square; a rest at the border is dropped."""
    height, width = maps.shape[1] // 2, maps.shape[2] // 2
    squares = maps[:, : 2 * height, : 2 * width].reshape(len(maps), height, 2, width, 2, *maps.shape[3:])
    return np.asarray(squares.max((2, 4)))
