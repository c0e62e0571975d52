"""Name every random number by its owner, a purpose and a path; seeds make them in a simulation, a cipher elsewhere.

Who owns a stream decides who may know it. The *public* streams give what server and clients share (w_0, coordinate
sets), and their seed travels in the set-up. The *server's* give cohorts, made-up noise and session ids. Each *client's*
own give its batches, noise, masks and keys. The *adversary's* give what malicious clients draw together. The *world's*
deal records and decide who drops out or is malicious; no party of a real federation has them. The owners' seeds are
one-way functions of the experiment's seed, so that knowing the public one, or a client's own, tells nothing about
another.

Two streams with different names are independent, and a stream does not depend on what was drawn before from any
other: a client's batches are the same whichever worker trains it, and a resumed round repeats the lost one exactly.

In a deployment (`Secrets`) nobody may know or repeat what a party keeps to itself: the server's and the clients'
streams come from a key that the operating system drew for this process. Only what is public follows from the seed.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from enum import IntEnum, unique
from typing import Any, Final, NoReturn, Protocol

import numpy as np
from numpy.random import PCG64, Generator, SeedSequence
from numpy.random.bit_generator import ISpawnableSeedSequence

from sottovoce.core import cipher
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.validate import in_range


@unique
class Purpose(IntEnum):
    """What a stream of random numbers is for; published results depend on these values, so they never change."""

    INIT = 1  # w_0
    SPLIT = 2  # held-out and public records
    PARTITION = 3  # who owns which record
    COHORT = 4  # who is asked this round
    BATCH = 5  # which records a client's step sees, and its dropout units
    ENCODE = 6  # a client's random choices inside a scheme (sign of zero)
    DECODE = 7  # the server's random choices inside a scheme (ties)
    SELECT = 8  # coordinate sets and shuffles that server and clients share
    NOISE = 9  # privacy noise, in simulation only
    MASK = 10  # secure-aggregation secrets, in simulation only
    DROPOUT = 11  # who leaves when, in simulation
    PUBLIC = 12  # batches of public data
    SETUP = 13  # anything else the set-up draws
    ATTACK = 14  # who is malicious, and what malicious clients draw
    DEVICE = 15  # which device a client has, how fast it is, and when it fails
    BALLOT = 16  # rotations of ballots, which everybody knows, and the coins that round a client's
    UNIT = 17  # which of its records or persons a site takes into a round, in simulation only


_OFTEN: Final = frozenset((Purpose.BATCH, Purpose.NOISE))  # drawn by every client in every round: seeded by a hash


class _Hashed(ISpawnableSeedSequence):
    """The seed of a generator, as bytes that are uniform already: ten times as fast as numpy's own mixing."""

    def __init__(self, seed: bytes) -> None:
        self._words, self._children = np.frombuffer(seed, np.uint64), 0

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> Any:
        """Return the four words that PCG64 asks for."""
        if (n_words, np.dtype(dtype)) != (self._words.size, np.uint64):
            raise InputError(f"{self._words.size} words of 64 bits are here, not {n_words} of {np.dtype(dtype)}")
        return self._words

    def spawn(self, n_children: int) -> list[_Hashed]:
        """Return seeds of other streams; each call goes on where the last one stopped."""
        first, self._children = self._children, self._children + n_children
        names = (self._words.tobytes() + number.to_bytes(8, "little") for number in range(first, self._children))
        return [_Hashed(hashlib.sha256(name).digest()) for name in names]


class NamedStreams(Protocol):
    """All named streams of one owner."""

    def get(self, purpose: Purpose, *path: int) -> Generator:
        """Return a fresh generator for a name; asked twice, it starts anew."""
        ...

    def key(self, purpose: Purpose, *path: int, size: int = 32) -> bytes:
        """Return `size` bytes for a name."""
        ...


class Owners(Protocol):
    """The owners of randomness in a federation, each with its streams."""

    @property
    def seed(self) -> int:
        """Return the experiment's seed, which what is public follows from."""
        ...

    @property
    def public(self) -> Streams:
        """Return the streams that every party knows."""
        ...

    @property
    def world(self) -> Streams:
        """Return the streams of what happens to the parties in a simulation."""
        ...

    @property
    def adversary(self) -> Streams:
        """Return the streams that simulated malicious clients share."""
        ...

    @property
    def server(self) -> NamedStreams:
        """Return the server's streams."""
        ...

    @property
    def helper(self) -> NamedStreams:
        """Return the streams of the helper that counts ballots with the server."""
        ...

    def client(self, client: int) -> NamedStreams:
        """Return one client's own streams."""
        ...


@dataclass(frozen=True)
class Streams:
    """All named streams of one seed.

    >>> streams = Streams(7)
    >>> float(streams.get(Purpose.COHORT, 3).random()) == float(Streams(7).get(Purpose.COHORT, 3).random())
    True
    """

    seed: int

    def __post_init__(self) -> None:
        in_range("seed", self.seed, low=0)

    def sequence(self, purpose: Purpose, *path: int) -> SeedSequence:
        """Return the seed sequence of a name; spawn keys, because entropy lists collide ([7, 3] equals [7, 3, 0])."""
        return SeedSequence(self.seed, spawn_key=(int(purpose), len(path), *path))

    def get(self, purpose: Purpose, *path: int) -> Generator:
        """Return a fresh generator for a name; asked twice, it starts anew."""
        if purpose in _OFTEN:
            return Generator(PCG64(_Hashed(self._hash(32, purpose, path))))  # type: ignore[arg-type]
        return np.random.default_rng(self.sequence(purpose, *path))

    def key(self, purpose: Purpose, *path: int, size: int = 32) -> bytes:
        """Return `size` bytes for a name, to key a cipher in simulation."""
        if purpose in _OFTEN:
            return self._hash(size, purpose, path)
        words = self.sequence(purpose, *path).generate_state((size + 3) // 4, np.uint32)
        return words.astype("<u4").tobytes()[:size]

    def _hash(self, size: int, purpose: Purpose, path: tuple[int, ...]) -> bytes:
        name = f"sottovoce stream of {self.seed}: {purpose:d}, {path}"
        return hashlib.shake_256(name.encode()).digest(size)


@dataclass(frozen=True)
class Seeds:
    """The seeds of a simulation, one for each owner of randomness.

    Guarantee: an owner's seed is a SHA-256 hash of the experiment's seed and the owner; none follows from another.

    >>> Seeds(7).public.seed == Seeds(7).server.seed
    False
    """

    seed: int

    def __post_init__(self) -> None:
        in_range("seed", self.seed, low=0)

    @property
    def public(self) -> Streams:
        """Return the streams that every party knows; their seed has 64 bits and travels in the set-up."""
        return self._owned("public", size=8)

    @property
    def server(self) -> Streams:
        """Return the server's streams."""
        return self._owned("server")

    @property
    def helper(self) -> Streams:
        """Return the streams of the helper that counts ballots with the server."""
        return self._owned("helper")

    @property
    def world(self) -> Streams:
        """Return the streams of what happens to the parties: who owns which record, who drops out."""
        return self._owned("world")

    @property
    def adversary(self) -> Streams:
        """Return the streams that malicious clients share."""
        return self._owned("adversary")

    def client(self, client: int) -> Streams:
        """Return one client's own streams."""
        return self._owned(f"client {client}")

    def _owned(self, owner: str, size: int = 32) -> Streams:
        digest = hashlib.sha256(f"sottovoce streams of {self.seed}: {owner}".encode()).digest()
        return Streams(int.from_bytes(digest[:size], "little"))


@dataclass(frozen=True, eq=False)
class Secrets:
    """The streams of one process of a deployed federation: what its party keeps to itself comes from a secret key.

    Guarantee: the key is 32 bytes of the operating system's entropy, drawn when the object is made; it is never pickled
    or copied, does not show in a repr, and a forked process cannot use it. Names give independent streams: the key of
    each is HKDF-SHA256 of the process's key, the owner, the purpose and the path.

    >>> Secrets(7).server.key(Purpose.MASK, 1) == Secrets(7).server.key(Purpose.MASK, 1)
    False
    >>> Secrets(7).public == Seeds(7).public
    True
    """

    seed: int
    _key: bytes = field(init=False, repr=False, default_factory=lambda: os.urandom(cipher.KEY_SIZE))
    _process: int = field(init=False, repr=False, default_factory=os.getpid)

    @property
    def public(self) -> Streams:
        """Return the streams that every party knows."""
        return Seeds(self.seed).public

    @property
    def world(self) -> Streams:
        """Return the streams of a simulated world, from the seed: nothing of a deployment may depend on them."""
        return Seeds(self.seed).world

    @property
    def adversary(self) -> Streams:
        """Return the streams of simulated malicious clients, from the seed: a deployment simulates none."""
        return Seeds(self.seed).adversary

    @property
    def server(self) -> SecretStreams:
        """Return the server's streams."""
        return self._owned("server")

    @property
    def helper(self) -> SecretStreams:
        """Return the streams of a helper that counts ballots, in the helper's own process."""
        return self._owned("helper")

    def client(self, client: int) -> SecretStreams:
        """Return the streams of the client that this process acts for."""
        return self._owned(f"client {client}")

    def _owned(self, owner: str) -> SecretStreams:
        if os.getpid() != self._process:
            raise PrivacyError("a forked process would repeat its parent's random numbers; give it Secrets of its own")
        return SecretStreams(cipher.derive(self._key, salt=b"sottovoce secrets", info=owner.encode()))

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("the secrets of a process are never copied, written or sent")


@dataclass(frozen=True, eq=False)
class SecretStreams:
    """All named streams of one secret key; generators and keys of one name are independent of each other too."""

    _key: bytes = field(repr=False)

    def get(self, purpose: Purpose, *path: int) -> Generator:
        """Return a fresh generator for a name, with bits from AES-256-CTR; asked twice, it starts anew."""
        return cipher.generator(self._derived("generator", cipher.KEY_SIZE, purpose, path))

    def key(self, purpose: Purpose, *path: int, size: int = 32) -> bytes:
        """Return `size` bytes for a name."""
        return self._derived("key", size, purpose, path)

    def _derived(self, use: str, size: int, purpose: Purpose, path: tuple[int, ...]) -> bytes:
        info = f"{use} of {size} bytes: {purpose:d} {path}"
        return cipher.derive(self._key, salt=b"sottovoce streams", info=info.encode(), size=size)

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("the secrets of a process are never copied, written or sent")
