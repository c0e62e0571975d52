"""Hold the rules that client and server apply alike: mask keys and signs, the quorum."""

from __future__ import annotations

import numpy as np

from sottovoce.core.errors import InputError, SecAggError
from sottovoce.core.wire import Words
from sottovoce.secagg import messages, primitives
from sottovoce.secagg.session import Session

__all__ = ["check_quorum", "check_words", "pair_mask", "pair_sign", "self_mask"]


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
