"""Fix what one round of secure aggregation is about, before any message is sent.

Server and clients hold the same `Session`. Its digest goes into every signature, so two parties that disagree on any
field (threshold, modulus, cohort, registered keys, configuration) refuse each other's first message.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal, Protocol

from sottovoce.core.errors import InputError, SecAggError, WireError
from sottovoce.core.validate import in_range
from sottovoce.core.wire import Buffer
from sottovoce.secagg.graph import Degree, choose, ring_neighbours
from sottovoce.secagg.primitives import KEY

KeyLife = Literal["round", "session"]

SESSION_ID: Final = 16
DIGEST: Final = 32
MOST_CLIENTS: Final = 65_535
LONGEST: Final = 1 << 32
_MAGIC: Final = b"svs2"
_LIVES: Final[tuple[KeyLife, ...]] = ("round", "session")
_FIELDS = struct.Struct("<4s16sQ32sIIIIBBxxQI")


def run_digest(federation: bytes, run: bytes) -> bytes:
    """Return what stands in a session's context for one run of one federation.

    `federation` is the digest of the roster that the root signed, and `run` the id under which the run was joined.
    """
    return hashlib.sha256(b"sottovoce run" + hashlib.sha256(federation).digest() + run).digest()


def default_threshold(clients: int) -> int:
    """Return floor(2n/3) + 1: two different survivor sets, t signatures each, need a third of the cohort to lie."""
    return 2 * clients // 3 + 1


def check_threshold(threshold: int, clients: int, colluders: int = 0) -> None:
    """Raise unless `threshold` can serve a cohort of `clients`; for a configuration, before any cohort is drawn."""
    if threshold > clients:
        raise InputError(f"threshold must be at most the cohort of {clients} clients, got {threshold}")
    if 2 * threshold <= clients:
        raise InputError(f"threshold must be above half of the {clients} clients, got {threshold}")
    if not 0 <= colluders < 2 * threshold - clients:
        raise InputError(
            f"colluders must be at least 0 and below 2 * threshold - clients = {2 * threshold - clients}, or the "
            f"server could open two sums; got {colluders} with a threshold of {threshold} of {clients}"
        )


def check_modulus(bits: int, largest_sum: int) -> None:
    """Raise if a sum could reach 2^bits and wrap."""
    if largest_sum >= 1 << bits:
        raise InputError(
            f"bits must be at least {largest_sum.bit_length()} for sums up to {largest_sum}, or they wrap; got {bits}"
        )


class Extent(Protocol):
    """What the sizes of a session's messages follow from; a plan has it without anybody's key."""

    @property
    def clients(self) -> Sized:
        """Return whoever takes part."""
        ...

    @property
    def degree(self) -> Degree:
        """Return how many neighbours a client has and how many shares open its secrets."""
        ...

    @property
    def length(self) -> int:
        """Return the number of words of a vector."""
        ...

    @property
    def bits(self) -> int:
        """Return the bits of a word."""
        ...

    @property
    def key_life(self) -> KeyLife:
        """Return how long keys live."""
        ...


def packed_size(clients: int) -> int:
    """Return the bytes of `Session.pack` for so many clients: each is named."""
    return _FIELDS.size + 8 * clients


@dataclass(frozen=True, eq=False, kw_only=True)
class Session:
    """The terms of one secure sum: who takes part, of what, and how many must stay.

    `keys` are the registered Ed25519 public keys, known to every party from elsewhere: a server that may choose them
    can play every client. `run` says which run of which federation this is (`run_digest`), and `downlink` is the hash
    of what a client was sent to train from: both are part of the context and never announced, so what was signed in one
    run is nothing in another, and clients that were sent different models do not sum. `largest_sum`, where given, is
    checked against the modulus.
    """

    run: bytes
    session_id: bytes
    round: int
    config_digest: bytes
    clients: tuple[int, ...]
    keys: Mapping[int, bytes]
    bits: int
    length: int
    threshold: int = 0  # 0: floor(2n/3) + 1
    colluders: int = 0  # who may tell the server their noise; 2t > n + c is enforced
    graph_colluders: int | None = None  # whom a sparse graph is sized for; None: a third of the clients
    neighbours: int = 0  # 0: complete to 200 clients, the bound of `graph` above
    key_life: KeyLife = "round"  # "session": see `standing`
    downlink: bytes = b""
    largest_sum: int | None = None

    def __post_init__(self) -> None:
        clients = tuple(sorted(self.clients))
        if len(self.run) != DIGEST:
            raise InputError(f"run must be a digest of {DIGEST} bytes, got {len(self.run)}; a session is of one run")
        if len(self.session_id) != SESSION_ID:
            raise InputError(f"session_id must have {SESSION_ID} bytes, got {len(self.session_id)}")
        if len(self.config_digest) != DIGEST:
            raise InputError(f"config_digest must have {DIGEST} bytes, got {len(self.config_digest)}")
        if len(self.downlink) not in (0, DIGEST):
            raise InputError(f"downlink must be a hash of {DIGEST} bytes or none, got {len(self.downlink)}")
        in_range("round", self.round, low=0, high=(1 << 63) - 1)
        in_range("bits", self.bits, low=1, high=32)
        in_range("length", self.length, low=1, high=LONGEST)
        in_range("neighbours", self.neighbours, low=0, high=MOST_CLIENTS)
        in_range("threshold", self.threshold, low=0, high=MOST_CLIENTS)
        if len(set(clients)) != len(clients):
            raise InputError("clients must be distinct")
        if clients and not 0 <= clients[0] <= clients[-1] < 1 << 64:
            raise InputError("clients must be integers of 64 bits, at least 0")
        if self.largest_sum is not None:
            check_modulus(self.bits, self.largest_sum)
        threshold = self.threshold or default_threshold(len(clients))
        # A drawn cohort may be small by chance: that ends the round, not the run.
        fewest = max(2, threshold)
        if len(clients) < fewest:
            raise SecAggError(
                f"round {self.round}: {len(clients)} clients from the start, but at least {fewest} are needed; "
                "nothing was released"
            )
        if len(clients) > MOST_CLIENTS:
            raise InputError(f"clients must be at most {MOST_CLIENTS}, got {len(clients)}")
        check_threshold(threshold, len(clients), self.colluders)
        if self.graph_colluders is None:
            object.__setattr__(self, "graph_colluders", max(self.colluders, len(clients) // 3))
        in_range("graph_colluders", self.graph_colluders or 0, low=self.colluders, high=len(clients))
        for client in clients:
            if len(self.keys.get(client, b"")) != KEY:
                raise InputError(f"client {client} has no registered key of {KEY} bytes; register it first")
        object.__setattr__(self, "clients", clients)
        object.__setattr__(self, "threshold", threshold)
        object.__setattr__(self, "keys", {client: bytes(self.keys[client]) for client in clients})
        if self.degree.neighbours < len(clients) - 1 and self.key_life == "session":
            raise InputError("key_life 'session' needs the complete graph; set neighbours to the cohort's size")

    @cached_property
    def degree(self) -> Degree:
        """Return how many neighbours a client has and how many shares open its secrets."""
        return choose(len(self.clients), self.threshold, self.graph_colluders or 0, self.neighbours)

    @cached_property
    def context(self) -> bytes:
        """Return the digest of everything that the parties must agree on."""
        digest = hashlib.sha256(b"sottovoce secagg context v3" + self.pack())
        digest.update(self.run)
        digest.update(self.downlink.ljust(DIGEST, b"\0"))
        for client in self.clients:
            digest.update(self.keys[client])
        return digest.digest()

    def for_round(self, round_: int, clients: Iterable[int] | None = None, downlink: bytes = b"") -> Session:
        """Return the same terms for another round and its downlink, or for those of the clients that enrolled."""
        members = self.clients if clients is None else tuple(clients)
        return replace(self, round=round_, clients=members, downlink=downlink)

    def position(self, client: int) -> int:
        """Return a client's place in the cohort; someone else's message is refused."""
        place = self._places.get(client)
        if place is None:
            raise SecAggError(f"client {client} is not in this session")
        return place

    def around(self, position: int) -> frozenset[int]:
        """Return the neighbours of a place, as places."""
        order, rank = self._ring
        ring = ring_neighbours(rank[position], len(self.clients), self.degree.neighbours)
        return frozenset(order[place] for place in ring)

    @cached_property
    def _places(self) -> dict[int, int]:
        return {client: place for place, client in enumerate(self.clients)}

    @cached_property
    def _ring(self) -> tuple[list[int], list[int]]:
        """Order the clients by a hash of the whole context, and say where each one stands.

        Whoever picks the session id, the cohort or a key draws a new order of everyone with each try, and cannot add
        or leave out clients of an order that it knows; `graph` counts the tries.
        """
        seed = b"sottovoce secagg ring" + self.context
        hashes = [hashlib.sha256(seed + struct.pack("<Q", client)).digest() for client in self.clients]
        order = sorted(range(len(self.clients)), key=hashes.__getitem__)
        rank = [0] * len(order)
        for place, position in enumerate(order):
            rank[position] = place
        return order, rank

    def pack(self) -> bytes:
        """Return the session as bytes, without the keys: those must not come from the server."""
        fields = _FIELDS.pack(
            *(_MAGIC, self.session_id, self.round, self.config_digest),
            *(self.threshold, self.colluders, self.graph_colluders, self.neighbours, self.bits),
            *(_LIVES.index(self.key_life), self.length, len(self.clients)),
        )
        return fields + struct.pack(f"<{len(self.clients)}Q", *self.clients)

    @classmethod
    def unpack(cls, payload: Buffer, run: bytes, keys: Mapping[int, bytes], downlink: bytes = b"") -> Session:
        """Return the session that a server announces, with the run, the keys and the downlink that this client knows.

        It is consistent, and nothing more: `Policy.accept` says whether it is the one that was agreed on.
        """
        view = memoryview(payload).cast("B")
        if view.nbytes < _FIELDS.size:
            raise WireError(f"session is truncated: {view.nbytes} bytes, its fields alone take {_FIELDS.size}")
        magic, session_id, round_, digest, *numbers, length, count = _FIELDS.unpack(view[: _FIELDS.size])
        threshold, colluders, graph_colluders, neighbours, bits, life = numbers
        if magic != _MAGIC:
            raise WireError(f"session is foreign: it begins with {magic!r}, not {_MAGIC!r}")
        if count > MOST_CLIENTS or view.nbytes != _FIELDS.size + 8 * count:
            raise WireError(f"session of {count} clients has {view.nbytes} bytes, expected {_FIELDS.size + 8 * count}")
        clients = struct.unpack(f"<{count}Q", view[_FIELDS.size :])
        try:
            session = cls(
                **{
                    "run": run,
                    "session_id": session_id,
                    "round": round_,
                    "config_digest": digest,
                    "clients": clients,
                    "keys": keys,
                },
                **{"bits": bits, "length": length, "threshold": threshold, "colluders": colluders},
                graph_colluders=graph_colluders,
                neighbours=neighbours,
                downlink=downlink,
                key_life=_LIVES[min(life, 1)],
            )
        except InputError as error:
            raise SecAggError(f"the announced session is refused: {error}") from error
        if session.pack() != bytes(view):
            raise WireError("session is not in its canonical form")
        return session
