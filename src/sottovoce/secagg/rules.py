"""Hold the rules that client and server apply alike: mask keys and signs, the quorum."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from sottovoce.core.errors import InputError, SecAggError, WireError
from sottovoce.core.wire import Buffer, Words
from sottovoce.secagg import messages, primitives
from sottovoce.secagg.primitives import KEY, SIGNATURE
from sottovoce.secagg.session import Extent, Session


def pair_sign(me: int, peer: int) -> int:
    """Return the sign with which `me` adds the mask it shares with `peer`; the other adds the opposite."""
    return 1 if me < peer else -1


def pair_mask(session: Session, secret: bytes, one: int, other: int) -> bytes:
    """Return the key of the mask that two clients share in this round.

    The whole context is in it: the masks of two clients that were told different things do not cancel.
    """
    low, high = session.clients[min(one, other)], session.clients[max(one, other)]
    return primitives.derive(secret, salt=session.context, info=messages.info(b"pair mask", session.round, low, high))


def self_mask(session: Session, seed: bytes, place: int) -> bytes:
    """Return the key of the mask that a client adds alone."""
    client = session.clients[place]
    return primitives.derive(
        seed, salt=session.context, info=messages.info(b"self mask", session.round, client, client)
    )


def check_words(session: Session, words: Words) -> None:
    """Raise unless `words` are what a client may put in: the agreed number of them, each of at most b bits."""
    if words.shape != (session.length,) or words.dtype != np.uint32:
        raise InputError(f"words must be {session.length} of type uint32, got {words.dtype} of shape {words.shape}")
    if int(words.max()) >> session.bits:
        raise InputError(f"words must be below 2^{session.bits}")


def check_quorum(session: Session, count: int, what: str) -> None:
    """Raise when fewer clients remain than the threshold."""
    if count < session.threshold:
        raise SecAggError(
            f"round {session.round}: {count} {what}, but the threshold is {session.threshold}; nothing was released"
        )


def survivors_hash(session: Session, survivors: Iterable[int]) -> bytes:
    """Return what clients sign in the consistency phase."""
    return hashlib.sha256(b"sottovoce secagg survivors" + messages.write_set(session, survivors)).digest()


def unmask_size(session: Extent) -> int:
    """Return the bytes of an unmask request's body: three sets, then the signatures of t - 1 others."""
    return 3 * messages.set_size(session) + (session.degree.threshold - 1) * SIGNATURE


def write_unmask(
    session: Session, survivors: Iterable[int], dropped: Iterable[int], signatures: Mapping[int, bytes]
) -> bytes:
    """Return the body of an unmask request."""
    sets = (messages.write_set(session, places) for places in (survivors, dropped, signatures))
    return b"".join((*sets, *(signatures[signer] for signer in sorted(signatures))))


def check_unmask(
    session: Session, body: memoryview, *, me: int, survivors: frozenset[int], owners: Collection[int]
) -> None:
    """Raise unless the request names the survivors this client signed, exactly the rest as dropped, and t signed.

    `owners` are the peers that this client masked with, and itself: it will tell something about each of them.
    """
    if body.nbytes != unmask_size(session):
        raise WireError(f"unmask request has a body of {body.nbytes} bytes, expected {unmask_size(session)}")
    size = messages.set_size(session)
    named, dropped, signers = (messages.read_set(session, body[at : at + size]) for at in (0, size, 2 * size))
    if both := set(named) & set(dropped):
        client = session.clients[min(both)]
        raise SecAggError(f"client {client} is named both as survivor and as dropped; both answers would unmask it")
    if set(named) != survivors:
        raise SecAggError("the survivors are not those that this client signed")
    if set(dropped) != set(owners) - survivors:
        raise SecAggError("the dropped are not the peers that shared and did not survive")
    needed = session.degree.threshold - 1
    if len(signers) != needed or not set(signers) <= survivors.intersection(owners) - {me}:
        raise SecAggError(f"{needed} other survivors around this client must have signed, got {len(signers)}")
    digest = survivors_hash(session, survivors)
    for index, signer in enumerate(signers):
        start = 3 * size + index * SIGNATURE
        client = session.clients[signer]
        if not messages.signed(session, "consistency", client, digest, bytes(body[start : start + SIGNATURE])):
            raise SecAggError(f"client {client} did not sign these survivors")


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
