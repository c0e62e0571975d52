"""Advertise keys and believe only those that their owners' registered keys signed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from sottovoce.core.errors import SecAggError, WireError
from sottovoce.core.wire import Buffer
from sottovoce.secagg import messages, primitives
from sottovoce.secagg.primitives import KEY, SIGNATURE
from sottovoce.secagg.session import Session

__all__ = ["ENTRY", "Keys", "read_advertisement", "read_keys", "write_keys"]

ENTRY: Final = 2 * KEY + SIGNATURE


class Keys(NamedTuple):
    """What a client advertises: X25519 public keys to share and to mask under, signed by its registered key."""

    sharing: bytes
    masking: bytes
    signature: bytes


def read_advertisement(session: Session, client: int, message: Buffer, others: Iterable[Keys]) -> Keys:
    """Return a client's keys, on the server; what peers would refuse is refused here, before it spoils the round."""
    body = bytes(messages.open_reply(session, "advertise", client, message, 2 * KEY))
    keys = Keys(body[:KEY], body[KEY:], bytes(memoryview(message)[-SIGNATURE:]))
    if keys.sharing == keys.masking or not (primitives.usable(keys.sharing) and primitives.usable(keys.masking)):
        raise SecAggError(f"client {client}: advertised a key that keeps no secret")
    if any(key in other for other in others for key in (keys.sharing, keys.masking)):
        raise SecAggError(f"client {client}: advertised a key of another client")
    return keys


def write_keys(session: Session, keys: Mapping[int, Keys], peers: Collection[int]) -> bytes:
    """Return the key list for one client: the set of its peers, then 128 bytes for each."""
    return b"".join((messages.write_set(session, peers), *(b"".join(keys[peer]) for peer in sorted(peers))))


def read_keys(session: Session, body: memoryview, around: frozenset[int], own: tuple[bytes, bytes]) -> dict[int, Keys]:
    """Return the neighbours' keys by place, after checking that they wrote them for this session and round."""
    start = messages.set_size(session)
    places = messages.read_set(session, body[:start])
    if body.nbytes != start + ENTRY * len(places):
        raise WireError(
            f"key list of {len(places)} peers has {body.nbytes} bytes, expected {start + ENTRY * len(places)}"
        )
    if not around.issuperset(places):
        raise SecAggError("the key list names a client that is not a neighbour")
    if 1 + len(places) < session.degree.threshold:
        raise SecAggError(f"{1 + len(places)} clients have keys, but {session.degree.threshold} must hold shares")
    keys = {}
    for place in places:
        raw = bytes(body[start : start + ENTRY])
        keys[place] = Keys(raw[:KEY], raw[KEY : 2 * KEY], raw[2 * KEY :])
        start += ENTRY
    public = [*own, *(key for entry in keys.values() for key in (entry.sharing, entry.masking))]
    if len(set(public)) != len(public):
        raise SecAggError("the key list has a key twice")
    for place, entry in keys.items():
        client = session.clients[place]
        if not messages.signed(session, "advertise", client, entry.sharing + entry.masking, entry.signature):
            raise SecAggError(f"the keys of client {client} are not signed by its registered key")
    return keys
