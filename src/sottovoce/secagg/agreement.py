"""Make sure that the clients who open a sum all mean the same survivors.

Each client signs the hash of the survivors that the server named to it, and opens nothing before it has seen that, with
its own, t holders signed the same hash. It then tells one thing about each peer: what opens the mask of a survivor, or
what opens the mask of one that dropped; never both, whatever the server says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping

from sottovoce.core.errors import SecAggError, WireError
from sottovoce.secagg import messages
from sottovoce.secagg.primitives import SIGNATURE
from sottovoce.secagg.session import Extent, Session

__all__ = ["check_unmask", "survivors_hash", "unmask_size", "write_unmask"]


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
