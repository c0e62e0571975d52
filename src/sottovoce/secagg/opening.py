"""Open a sum: reconstruct what the survivors told, check all of it, and only then take the masks off."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sottovoce.core.errors import SecAggError
from sottovoce.core.wire import Buffer, Words
from sottovoce.secagg import masks, primitives, shamir
from sottovoce.secagg.masks import Sum
from sottovoce.secagg.primitives import KEY
from sottovoce.secagg.rules import pair_mask, pair_sign, self_mask
from sottovoce.secagg.session import Session

__all__ = ["complaints", "open_by_shares", "open_seeds", "read_told"]

Shares = Mapping[int, Mapping[int, int | None]]
"""What each holder told: holder -> owner -> share, all by place in the cohort; None for a seal that did not open."""


def read_told(raw: Buffer) -> int | None:
    """Return a share that a holder told, or None if it says that it has none."""
    told = bytes(raw)
    return None if told == shamir.NO_SHARE else shamir.read_share(told)


def complaints(session: Session, shares: Shares) -> dict[int, tuple[int, ...]]:
    """Return, by client, who could not open the share that it sealed for them.

    A complaint says that sender, receiver or the server between them is at fault, and removes nobody.
    """
    found: dict[int, tuple[int, ...]] = {}
    for holder, told in sorted(shares.items()):
        for owner in (owner for owner, share in sorted(told.items()) if share is None):
            client = session.clients[owner]
            found[client] = (*found.get(client, ()), session.clients[holder])
    return found


def open_by_shares(
    masked_sum: Sum,
    *,
    session: Session,
    masked: Collection[int],
    dropped: Collection[int],
    public: Mapping[int, bytes],
    commitments: Mapping[int, bytes],
    shares: Shares,
) -> Words:
    """Return the sum modulo 2^bits; `public` are the advertised masking keys, and `masked_sum` is used up."""
    seeds = open_seeds(session, masked, commitments, shares)
    keys = {place: _masking_key(session, place, public[place], shares) for place in sorted(dropped)}
    for place, seed in seeds.items():
        masks.add_mask(masked_sum, self_mask(session, seed, place), -1)
    for place, key in keys.items():
        private = X25519PrivateKey.from_private_bytes(key)
        for peer in session.around(place).intersection(masked):
            secret = primitives.agree(private, public[peer])
            masks.add_mask(masked_sum, pair_mask(session, secret, peer, place), -pair_sign(peer, place))
    return masks.reduce(masked_sum, session.bits)


def open_seeds(
    session: Session, masked: Collection[int], commitments: Mapping[int, bytes], shares: Shares
) -> dict[int, bytes]:
    """Return the survivors' self-mask seeds, each checked against its owner's commitment."""
    seeds = {}
    for place in sorted(masked):
        seeds[place] = _reconstruct(session, place, shares)
        if primitives.commit(seeds[place]) != commitments[place]:
            raise _misfit(session, place)
    return seeds


def _masking_key(session: Session, owner: int, public: bytes, shares: Shares) -> bytes:
    key = _reconstruct(session, owner, shares)
    if primitives.exchange_key(key) != public:
        raise _misfit(session, owner)
    return key


def _reconstruct(session: Session, owner: int, shares: Shares) -> bytes:
    held = {holder + 1: share for holder, told in shares.items() if (share := told.get(owner)) is not None}
    client, needed = session.clients[owner], session.degree.threshold
    if len(held) < needed and (lacking := complaints(session, shares).get(client)):
        raise SecAggError(
            f"round {session.round}: client {client} sealed shares that {len(lacking)} clients could not open, and of "
            f"the {needed} that are needed {len(held)} are left; nothing was released"
        )
    secret = shamir.reconstruct(held, needed)
    if secret >> (8 * KEY):
        raise _misfit(session, owner)
    return secret.to_bytes(KEY, "little")


def _misfit(session: Session, owner: int) -> SecAggError:
    client = session.clients[owner]
    return SecAggError(f"round {session.round}: the shares of client {client} do not fit; nothing was released")
