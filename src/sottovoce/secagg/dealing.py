"""Deal shares so that whoever lies about one is found: the dealer signs a pledge of every share that it deals.

    body of a dealing   commitment to the seed (32), one nonce (12), what is sealed for each receiver,
                        then the pledges of every holder in order, the dealer too

A pledge is seven bytes of a hash of the share. A share that is told and is not the one pledged was made up by its
holder; shares that are as pledged and do not open the secret were made up by their dealer. The server tells each
receiver a hash of all pledges about it, so that a receiver knows whether it was dealt what was pledged. One that was
not, or cannot tell, says so with its shares, and what does not match is then between the two.

Whoever wants to blame a dealer must find another share with the same 56 bits while the round lasts; no secret hangs on
it, and a share has 257 bits, so that its hash says nothing about it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sottovoce.secagg.primitives import KEY, NONCE, TAG
from sottovoce.secagg.session import Session
from sottovoce.secagg.shamir import SHARE

PLEDGE: Final = 7
RECEIPT: Final = 16
_USE = struct.Struct("<QQQ")


class Dealing(NamedTuple):
    """What a client deals: shares only their receivers can read, and what it signs about all of them."""

    commitment: bytes  # to its seed
    sealed: dict[int, bytes]  # by receiver, with the nonce
    pledges: dict[int, bytes]  # by holder: those of all secrets, one after the other

    def write(self) -> bytes:
        """Return the body; all that is sealed has one nonce, as no two receivers have one key."""
        nonce = next(iter(self.sealed.values()))[:NONCE]
        sealed = (self.sealed[receiver][NONCE:] for receiver in sorted(self.sealed))
        return b"".join((self.commitment, nonce, *sealed, *(self.pledges[holder] for holder in sorted(self.pledges))))


def dealing_size(receivers: int, secrets: int) -> int:
    """Return the bytes of a dealing's body."""
    return KEY + NONCE + receivers * (SHARE * secrets + TAG) + (receivers + 1) * PLEDGE * secrets


def read_dealing(body: bytes, dealer: int, receivers: Sequence[int], secrets: int) -> Dealing:
    """Return what is in a body of exactly `dealing_size` bytes."""
    nonce, start, size = body[KEY : KEY + NONCE], KEY + NONCE, SHARE * secrets + TAG
    sealed = {}
    for receiver in receivers:
        sealed[receiver] = nonce + body[start : start + size]
        start += size
    pledges = {}
    for holder in sorted([*receivers, dealer]):
        pledges[holder] = body[start : start + PLEDGE * secrets]
        start += PLEDGE * secrets
    return Dealing(body[:KEY], sealed, pledges)


def pledge(session: Session, dealer: int, holder: int, shares: Iterable[bytes]) -> bytes:
    """Return what a dealer signs about the shares of its secrets that it deals to a holder, both by place."""
    return b"".join(_pledge(session, dealer, holder, which, share) for which, share in enumerate(shares))


def as_pledged(session: Session, dealer: int, holder: int, which: int, share: bytes, pledges: bytes) -> bool:
    """Tell whether a holder's share of one of the secrets is the one that their dealer pledged."""
    return _pledge(session, dealer, holder, which, share) == pledges[PLEDGE * which : PLEDGE * (which + 1)]


def receipt(pledges: Mapping[int, bytes]) -> bytes:
    """Return what the server tells a receiver of the pledges about it, by dealer."""
    told = b"".join(pledges[dealer] for dealer in sorted(pledges))
    return hashlib.sha256(b"sottovoce secagg pledges" + told).digest()[:RECEIPT]


def _pledge(session: Session, dealer: int, holder: int, which: int, share: bytes) -> bytes:
    use = _USE.pack(session.clients[dealer], session.clients[holder], which)
    return hashlib.sha256(b"sottovoce secagg share" + session.context + use + share).digest()[:PLEDGE]
