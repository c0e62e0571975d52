"""All clients of a simulation as devices: which profile each has, and how fast its link and its processor are.

Nothing is kept for a client. What it has follows from its number and from a key of the world's streams, so that a
population of 10^9 takes no memory, and a client is the same in every round and on every engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.devices.catalogue import profile
from sottovoce.devices.device import Device

Floats = NDArray[np.float64]
Clients = NDArray[np.int64]

_KIND, _UP, _DOWN, _SPEED = range(4)  # what a client's numbers are for
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # SplitMix64
_WORD: Final = 2**64 - 1
_SUM: Final = 1e-6  # how far shares may be from a sum of one


def uniforms(keys: Sequence[int], clients: Clients) -> Floats:
    """Return numbers in (0, 1), one row a key and one column a client: SplitMix64 (Steele et al. 2014) of both.

    A named stream for each client would give as good numbers, and take a hundred times as long.
    """
    starts = np.array(keys, np.uint64)[:, None]
    word = clients.astype(np.uint64) * np.uint64(_GOLDEN) + starts  # modulo 2^64, as all that follows
    word = (word ^ (word >> np.uint64(30))) * np.uint64(_FIRST)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(_SECOND)
    word ^= word >> np.uint64(31)
    return ((word >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53


def _mixed(key: int, number: int) -> int:
    """Return another key for a number, by the same function on one word."""
    word = (key + (number + 1) * _GOLDEN) & _WORD
    word = (word ^ (word >> 30)) * _FIRST & _WORD
    word = (word ^ (word >> 27)) * _SECOND & _WORD
    return word ^ (word >> 31)


@dataclass(frozen=True)
class Fleet:
    """Some clients as columns: the number of each one's device, and its rates."""

    clients: Clients
    kinds: NDArray[np.intp]
    up_mbps: Floats
    down_mbps: Floats
    gflops: Floats

    def __getitem__(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Fleet:
        return Fleet(
            self.clients[chosen],
            self.kinds[chosen],
            self.up_mbps[chosen],
            self.down_mbps[chosen],
            self.gflops[chosen],
        )

    def __len__(self) -> int:
        return len(self.clients)


@dataclass(frozen=True)
class Population:
    """The devices that clients have, and the shares in which they have them."""

    devices: tuple[Device, ...]
    shares: tuple[float, ...]
    streams: Streams  # the world's
    drawn: bool = True  # rates are log-normal around the profile's; otherwise everyone has the profile's
    _fields: dict[tuple[str, str], Floats] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for device, share in zip(self.devices, self.shares, strict=True):
            if not 0 < share <= 1:
                raise InputError(f"the share of {device.name} must be in (0, 1], got {share:g}")
        if abs(sum(self.shares) - 1) > _SUM:
            names = ", ".join(f"{device.name} {share:g}" for device, share in self.pairs)
            raise InputError(f"the shares of the profiles must sum to 1, got {sum(self.shares):g} ({names})")

    @classmethod
    def of(cls, mix: str | Mapping[str, float], streams: Streams, *, drawn: bool = True) -> Population:
        """Return clients with one profile, or with a mix of them."""
        shares = {mix: 1.0} if isinstance(mix, str) else dict(mix)
        if not shares:
            raise InputError("a mix of profiles must name at least one")
        return cls(tuple(profile(name) for name in shares), tuple(shares.values()), streams, drawn)

    def fleet(self, clients: Clients) -> Fleet:
        """Return what some clients have."""
        clients = np.asarray(clients, np.int64)
        kinds = np.zeros(len(clients), np.intp)
        if len(self.devices) > 1:
            bounds = np.cumsum(self.shares)[:-1]
            kinds = np.searchsorted(bounds, uniforms([self.key(_KIND)], clients)[0], side="right")
        rates = np.array([self._field(part, name)[kinds] for part, name in _RATES])
        if self.drawn:
            sigmas = np.array([self._field(part, name)[kinds] for part, name in _SIGMAS])
            keys = [self.key(purpose) for purpose in (_UP, _DOWN, _SPEED)]
            from scipy.special import ndtri  # 14 MB, which nodes need not hold

            rates *= np.exp(sigmas * ndtri(uniforms(keys, clients)))
        return Fleet(clients, kinds, *rates)

    def device(self, client: int) -> Device:
        """Return one client's device, with its own rates."""
        one = self.fleet(np.array([client]))
        device = self.devices[int(one.kinds[0])]
        link = replace(device.link, up_mbps=float(one.up_mbps[0]), down_mbps=float(one.down_mbps[0]))
        return replace(device, link=link, compute=replace(device.compute, gflops=float(one.gflops[0])))

    def key(self, *path: int) -> int:
        """Return a key for numbers that differ from client to client."""
        key = self._start
        for number in path:
            key = _mixed(key, number)
        return key

    def column(self, part: str, name: str, fleet: Fleet) -> Floats:
        """Return a field of each client's profile."""
        return self._field(part, name)[fleet.kinds]

    @cached_property
    def _start(self) -> int:
        return int.from_bytes(self.streams.key(Purpose.DEVICE, size=8), "little")

    def _field(self, part: str, name: str) -> Floats:
        """Return a field of every device."""
        found = self._fields.get((part, name))
        if found is None:
            found = np.array([getattr(getattr(device, part), name) for device in self.devices], np.float64)
            self._fields[part, name] = found
        return found

    @property
    def pairs(self) -> list[tuple[Device, float]]:
        """Return the devices with their shares."""
        return list(zip(self.devices, self.shares, strict=True))


_RATES: Final = (("link", "up_mbps"), ("link", "down_mbps"), ("compute", "gflops"))
_SIGMAS: Final = (("link", "rate_sigma_up"), ("link", "rate_sigma_down"), ("compute", "speed_sigma"))
