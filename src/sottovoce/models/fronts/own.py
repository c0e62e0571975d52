"""A user's own function as a front."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Self, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.models.base import Shape
from sottovoce.models.fronts.front import mapped
from sottovoce.models.fronts.projection import Projection

_RECORDS: Final = 3  # of a trial
_NEAR: Final = 1e-4  # of the largest feature: libraries round otherwise for one record than for three

Floats = NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class Own:
    """Front that is a function of the user's or of a package: stored records in, (records, features) out.

    The features are taken as they are; with `dims`, they are projected by public records (`projection.py`, one place).

    What is public, and why: the user vouches for it. A network that was trained on public data is public; one that saw
    the clients' records is not, and its features are outside every epsilon. The function is part of the program, like
    its code: nothing of it travels but the projection. That a record's features depend on no other record is tried out
    on made-up records before the run; it cannot be proven.
    """

    name: str  # module:function, or the name that a package gives it
    input_shape: Shape
    dtype: str
    input_scale: float = 1.0  # for whoever asks; the function gets records as they are stored
    dims: int | None = None
    projection: Projection | None = None

    parallel: ClassVar[bool] = False  # nobody knows what a user's function shares

    def __post_init__(self) -> None:
        if self.dims is not None and not 1 <= self.dims <= self.given:
            raise InputError(
                f"[model] projection.dims must be at most the {self.given} features of front {self.name!r}, got "
                f"{self.dims}"
            )

    @cached_property
    def given(self) -> int:
        """Count what the function gives for a record, after a trial on made-up records."""
        trial = np.random.default_rng(0).integers(1, 8, (_RECORDS, *self.input_shape)).astype(self.dtype)
        together = self._called(trial)
        alone = np.concatenate([self._called(trial[number : number + 1]) for number in range(_RECORDS)])
        if not np.allclose(together, alone, rtol=0, atol=_NEAR * max(1e-30, float(np.abs(together).max()))):
            raise InputError(
                f"front {self.name!r}: the features of a record change with the other records in the call, so that one "
                "client's records would show in another's; standardise by public numbers instead"
            )
        return int(together.shape[1])

    @property
    def width(self) -> int:
        """Count the features of a record."""
        return self.given if self.dims is None else self.dims

    @property
    def memory(self) -> int:
        """Count the bytes that the features of one record need on the way."""
        return 4 * self.given

    def coefficients(self, x: NDArray[Any]) -> Floats:
        """Return what the function gives (records, its features, 1) for stored records."""
        return self._called(x)[:, :, None]

    def features(self, x: NDArray[Any]) -> Floats:
        """Return the features of stored records."""
        return self._called(x) if self.dims is None else self._known.features(self.coefficients(x))

    def probe_features(self, x: NDArray[Any]) -> Floats:
        """Return the first of what the projection would read."""
        return self._called(x)[:, : self.width]

    def fitted(self, public: NDArray[Any], scale: float, threads: int = 1) -> Self:
        """Return a copy whose projection was measured on public records, if there is to be one."""
        if self.dims is None:
            return self
        # In the clients' units and type; one thread, as nobody knows what a user's function shares.
        values = public * (scale / self.input_scale)
        values = np.rint(values) if np.issubdtype(np.dtype(self.dtype), np.integer) else values
        found = mapped(self._called, values.astype(self.dtype), (self.given,), 1)
        return replace(self, projection=Projection.fit(found[:, :, None], self.dims))

    def payload(self) -> bytes:
        """Return the projection as it travels."""
        return b"" if self.dims is None else self._known.payload()

    def told(self, payload: bytes) -> tuple[Self, bytes]:
        """Return a client's copy, with the projection that the set-up carries, and the rest of the set-up."""
        if self.dims is None:
            return self, payload
        known, rest = Projection.read(payload, channels=self.given, places=1, dims=self.dims)
        return replace(self, projection=known), rest

    @property
    def measured(self) -> bool:
        """Tell whether it has numbers that are measured on public records."""
        return self.dims is not None

    @property
    def most_bytes(self) -> int:
        """Return the bytes of the longest payload that `told` takes."""
        return 0 if self.dims is None else Projection.most_bytes(self.given, 1, self.dims)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the projection's numbers by name."""
        return {} if self.dims is None else self._known.arrays()

    @property
    def _known(self) -> Projection:
        if self.projection is None:
            raise InputError(f"front {self.name!r} has no projection yet: fit it on public records, or read a set-up")
        return self.projection

    def _called(self, x: NDArray[Any]) -> Floats:
        try:
            found = np.asarray(self._function()(x))
        except InputError:
            raise
        except Exception as error:  # whatever a user's function raises
            told = (str(error).strip().splitlines() or [""])[0]
            raise InputError(f"front {self.name!r} fails: {type(error).__name__}: {told}") from error
        if found.ndim != 2 or len(found) != len(x) or found.dtype.kind not in "fiub" or not np.isfinite(found).all():
            raise InputError(
                f"front {self.name!r} must return finite numbers of shape ({len(x)}, features), got {found.dtype} of "
                f"shape {found.shape}"
            )
        return np.ascontiguousarray(found, np.float32)

    def _function(self) -> Callable[[NDArray[Any]], Any]:
        # Not kept: a function of a module that is imported is not always one that can be pickled.
        from sottovoce.models.fronts import FRONTS

        return FRONTS[self.name]
