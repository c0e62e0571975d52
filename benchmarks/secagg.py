"""Measure the secure sum: CPU of a client and of the server, bytes sent, and one mask beside Flower's.

A hundred clients on the complete graph, 13 bits, at the CNN's 1,663,370 parameters and at the 8,317 that FL-TOP keeps
of them. Everybody plays the whole protocol, every call is timed, and of the hundred clients the one that took least
counts: they all do the same work, and noise on a shared machine only ever adds.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Collection
from time import process_time
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.table import Row, beside, missed, show
from sottovoce.secagg import (
    PHASES,
    KeyedEntropy,
    Registrar,
    RoundClient,
    RoundServer,
    Session,
    StandingClient,
    StandingServer,
    masks,
    primitives,
    verifying_key,
)

CLIENTS = 100
BITS = 13
FULL = 1_663_370
KEPT = 8_317


T = TypeVar("T")


class Costs(NamedTuple):
    """Hold what one round took: milliseconds of CPU, and bytes of the busiest client."""

    client: float
    server: float
    up: int
    down: int


def rows() -> list[Row]:
    """Return every measurement that was asked for, and a few beside."""
    _round(KEPT)  # compiled
    small, full = min(_round(KEPT) for _ in range(3)), _round(FULL)
    dropped = _round(FULL, gone=range(0, CLIENTS, 10))
    standing = _standing_round(KEPT)
    packed_small, packed_full = -(-KEPT * BITS // 8), -(-FULL * BITS // 8)
    mask = _mask_row()
    return [
        mask,
        Row("the same, in percent of Flower's time", 100 / (mask.ratio or np.inf), "%", 100 / 30),
        Row("client, n = 1,663,370", full.client, "ms", 500),
        Row("server, n = 1,663,370, nobody dropped", full.server, "ms", 1000),
        Row("server, n = 1,663,370, 10 % dropped", dropped.server, "ms", 15_000),
        Row("client, n = 8,317", small.client, "ms", 40),
        Row("client, n = 8,317, keys of the session", standing.client, "ms"),
        Row("server, n = 8,317", small.server, "ms"),
        Row("bytes up, n = 1,663,370", full.up, "B", 1.05 * packed_full, "packed vector", packed_full / full.up),
        Row("bytes up, n = 8,317", small.up, "B", 2.0 * packed_small, "packed vector", packed_small / small.up),
        Row("bytes up, n = 8,317, keys of the session", standing.up, "B", None, "fresh keys", small.up / standing.up),
        Row("bytes down, n = 8,317, beside the model", small.down, "B"),
    ]


def _mask_row() -> Row:
    total = masks.new_sum(FULL, BITS)
    theirs, peer = _flower_mask()
    return beside(
        "one mask added, n = 1,663,370", lambda: masks.add_mask(total, bytes(32), 1), limit=2, peer=peer, theirs=theirs
    )


def _flower_mask() -> tuple[Callable[[], object] | None, str]:
    """Return Flower's way to expand a mask and add it, from its installed package."""
    try:
        from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition, parameters_mod
        from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
    except ImportError:
        return None, "flwr is not installed; add 'flwr>=1.41,<2' to an environment of its own"
    total = [np.zeros(FULL, np.int64)]
    modulus = 1 << BITS

    def work() -> object:
        mask = pseudo_rand_gen(bytes(32), modulus, [(FULL,)])
        return parameters_mod(parameters_addition(total, mask), modulus)

    return work, "flwr secaggplus"


def _session(length: int, **terms: object) -> tuple[Session, dict[int, bytes]]:
    signing = {client: hashlib.sha256(b"%d" % client).digest() for client in range(CLIENTS)}
    session = Session(
        run=bytes(32),
        session_id=bytes(16),
        round=0,
        config_digest=bytes(32),
        clients=tuple(signing),
        keys={client: verifying_key(key) for client, key in signing.items()},
        bits=BITS,
        length=length,
        **terms,  # type: ignore[arg-type]
    )
    return session, signing


class _Clock:
    """Add up the CPU time of named parties."""

    def __init__(self) -> None:
        self.spent: dict[object, float] = {}

    def __call__(self, party: object, work: Callable[[], T]) -> T:
        primitives.forget()  # a client alone has no neighbour in its process that verified before it
        began = process_time()
        result = work()
        self.spent[party] = self.spent.get(party, 0.0) + process_time() - began
        return result


def _round(length: int, gone: Collection[int] = ()) -> Costs:
    session, signing = _session(length)
    words = np.random.default_rng(1).integers(0, 1 << BITS, length, dtype=np.uint32)
    clock = _Clock()
    clients = {
        client: clock(client, lambda client=client, key=key: RoundClient(session, client, key, KeyedEntropy(key)))  # type: ignore[misc]
        for client, key in signing.items()
    }
    server = RoundServer(session)
    requests: dict[int, bytes] = dict.fromkeys(clients, b"")
    up, down = dict.fromkeys(clients, 0), dict.fromkeys(clients, 0)
    for phase in PHASES:
        for client, request in requests.items():
            down[client] += len(request)
            if phase == "mask" and client in gone:
                continue
            reply = clock(client, _call(clients[client], phase, request, words))
            up[client] += len(reply)
            clock("server", lambda: server.accept(phase, client, reply))  # noqa: B023
        requests = clock("server", lambda: server.close(phase))  # noqa: B023
    survivors = np.uint32(len(server.survivors))
    if not np.array_equal(server.total(), words * survivors & np.uint32((1 << BITS) - 1)):
        raise SystemExit("the sum is wrong: no time of it counts")
    quietest = min(clock.spent[client] for client in server.survivors)
    return Costs(quietest * 1e3, clock.spent["server"] * 1e3, max(up.values()), max(down.values()))


def _call(client: RoundClient, phase: str, request: bytes, words: NDArray[np.uint32]) -> Callable[[], bytes]:
    if phase == "advertise":
        return client.advertise
    if phase == "mask":
        return lambda: client.mask(request, words)
    return lambda: getattr(client, phase)(request)  # type: ignore[no-any-return]


def _standing_round(length: int) -> Costs:
    """Measure one round of a session, its enrolment not counted."""
    session, signing = _session(length, key_life="session")
    words = np.random.default_rng(1).integers(0, 1 << BITS, length, dtype=np.uint32)
    clients = {client: StandingClient(session, client, key, KeyedEntropy(key)) for client, key in signing.items()}
    registrar = Registrar(session)
    requests, _ = registrar.collect("advertise", {c: client.advertise() for c, client in clients.items()})
    for client, request in requests.items():
        clients[client].introduce(request)
    clock, server = _Clock(), StandingServer(registrar.round(1))
    up, down = 0, 0
    replies = {c: clock(c, lambda client=client: client.mask(1, words)) for c, client in clients.items()}  # type: ignore[misc]
    for phase in StandingServer.phases:
        up += len(replies[0])
        requests, _ = clock("server", lambda: server.collect(phase, replies))  # noqa: B023
        down += len(requests.get(0, b""))
        following = {"mask": "consistency", "consistency": "unmask"}.get(phase)
        if following:
            replies = {
                c: clock(c, lambda c=c: getattr(clients[c], following)(requests[c]))  # type: ignore[misc]  # noqa: B023
                for c in requests
            }
    quietest = min(spent for party, spent in clock.spent.items() if party != "server")
    return Costs(quietest * 1e3, clock.spent["server"] * 1e3, up, down)


if __name__ == "__main__":
    measured = rows()
    show(measured)
    sys.exit(1 if missed(measured) else 0)
