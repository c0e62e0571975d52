"""Write fronts as torch modules, so that an exported graph reads stored records and not features."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from sottovoce.core.errors import InputError
from sottovoce.models.fronts import Front
from sottovoce.models.fronts.fourier import Fourier
from sottovoce.models.fronts.projection import LENGTH, Projection
from sottovoce.models.fronts.scattering import Bank, Scattering
from sottovoce.models.whitening import RowsFront, Whitening


class FrontGraph(nn.Module):
    """A front, and the whitening behind it, as operations of torch; its numbers are constants."""

    def __init__(self, front: Front, whitening: Whitening | None = None) -> None:
        super().__init__()
        make: Callable[[Any], nn.Module] | None = GRAPHS.get(type(front))
        if make is None:
            reason = "hashes tokens" if front.name == "hashed" else "is a function of Python"
            raise InputError(
                f"front {front.name!r} {reason}, which no graph holds; use --to npz, which has what a front needs, or "
                "sottovoce predict"
            )
        self.front = make(front)
        self.whitening = None if whitening is None else _Whiten(whitening)

    def forward(self, records: Tensor) -> Tensor:
        """Return the features of stored records."""
        features: Tensor = self.front(records.to(torch.float32))
        return features if self.whitening is None else self.whitening(features)


class _Constants(nn.Module):
    """A module whose buffers are given arrays."""

    def __init__(self, **arrays: NDArray[Any]) -> None:
        super().__init__()
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.array(array, order="C")))


class _Rows(_Constants):
    scale: Tensor

    def __init__(self, front: RowsFront) -> None:
        super().__init__(scale=np.array(front.input_scale, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) * self.scale


class _Fourier(_Constants):
    scale: Tensor
    directions: Tensor
    phases: Tensor

    def __init__(self, front: Fourier) -> None:
        scale = np.array(front.input_scale, np.float32)
        super().__init__(scale=scale, **front.arrays())
        self._length = LENGTH * math.sqrt(2 / front.dims)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cos((x * self.scale) @ self.directions + self.phases) * self._length


class _Scattering(_Constants):
    scale: Tensor
    waves: Tensor

    def __init__(self, front: Scattering) -> None:
        bank: Bank = front.bank
        pairs = {"half": bank.halves, "place": bank.places, "place_of_half": bank.places_of_half}
        frames = {"frame": bank.margins, "frame_of_half": bank.margins_of_half}
        matrices = {f"{name}_{axis}": each for name, both in pairs.items() for axis, each in enumerate(both)}
        margins = {f"{name}_{axis}": each for name, both in frames.items() for axis, each in enumerate(both)}
        waves = np.concatenate([bank.real, bank.imaginary])[:, None]
        super().__init__(scale=np.array(front.input_scale, np.float32), waves=waves, **matrices, **margins)
        self._angles = len(bank.real)
        self._project = _Project(front.known)

    def forward(self, x: Tensor) -> Tensor:
        channels = [self._coefficients(x[..., channel] * self.scale) for channel in range(x.shape[-1])]
        return self._project(torch.cat(channels, 1))  # type: ignore[no-any-return]

    def _coefficients(self, x: Tensor) -> Tensor:
        """Return orders 0, 1 and 2 of images (records, height, width): (records, channels, places)."""
        plane = x[:, None]
        half = self._framed(self._thinned(plane, "half"), "frame_of_half")
        first = self._moduli(self._framed(plane, "frame"))
        later = self._framed(self._thinned(first, "half"), "frame_of_half")
        later = later.flatten(0, 1)[:, None]  # the coefficients of every orientation as images
        second = self._thinned(self._moduli(later), "place_of_half")
        second = second.reshape(-1, self._angles**2, *second.shape[2:])
        orders = [
            self._thinned(plane, "place"),
            self._thinned(first, "place"),
            self._thinned(self._moduli(half), "place_of_half"),
            second,
        ]
        return torch.cat(orders, 1).flatten(2)

    def _moduli(self, framed: Tensor) -> Tensor:
        """Return |framed * wave| of one plane, for every wave."""
        both = functional.conv2d(framed, self.waves)
        cosine, sine = both[:, : self._angles], both[:, self._angles :]
        return torch.sqrt(cosine * cosine + sine * sine)

    def _thinned(self, planes: Tensor, name: str) -> Tensor:
        rows, columns = getattr(self, f"{name}_0"), getattr(self, f"{name}_1")
        return rows @ planes @ columns.t()  # type: ignore[no-any-return]

    def _framed(self, planes: Tensor, name: str) -> Tensor:
        rows, columns = getattr(self, f"{name}_0"), getattr(self, f"{name}_1")
        return planes.index_select(2, rows).index_select(3, columns)


class _Project(_Constants):
    """The projection of coefficients (records, channels, places) to features of one length."""

    channels: Tensor
    places: Tensor
    flat: Tensor
    centre: Tensor
    factor: Tensor

    def __init__(self, projection: Projection) -> None:
        arrays = projection.arrays()
        pairs = arrays.pop("pairs")
        super().__init__(**arrays, flat=pairs[:, 0] * len(projection.places) + pairs[:, 1])

    def forward(self, coefficients: Tensor) -> Tensor:
        products = (self.channels @ coefficients @ self.places.t()).flatten(1)
        return _unit((products.index_select(1, self.flat) - self.centre) * self.factor)


class _Whiten(_Constants):
    mean: Tensor
    matrix: Tensor
    tail: Tensor

    def __init__(self, whitening: Whitening) -> None:
        super().__init__(**whitening.arrays())
        self._dims = whitening.dims

    def forward(self, features: Tensor) -> Tensor:
        x = _unit(features.flatten(1)) - self.mean
        return _unit(torch.cat([x[:, : self._dims] @ self.matrix, x[:, self._dims :] * self.tail], 1))


def _unit(features: Tensor) -> Tensor:
    """Return features of length 1 / 0.3; a record without any stays at zero."""
    length = torch.sqrt((features * features).sum(1, keepdim=True))
    return features * (LENGTH / torch.where(length > 0, length, torch.ones_like(length)))


GRAPHS: Final[Mapping[type, Callable[[Any], nn.Module]]] = {
    RowsFront: _Rows,
    Fourier: _Fourier,
    Scattering: _Scattering,
}
