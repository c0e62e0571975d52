"""Play a client whose keys live for a session: one set-up, then three phases a round instead of five.

At set-up each pair of clients agrees on two chain keys, and the X25519 keys are forgotten. In a round

    pair mask = HKDF(mask chain, round),   chain = HKDF(chain)      so earlier masks cannot be had from later state
    seed      = fresh, its shares sealed under the share chains and sent along with the masked vector

A session's masking key, opened for a dropout, would open all earlier vectors of that client: their seeds are open.
So no secret of the session is ever shared or opened: survivors tell the one round's pair mask that they share with each
client that dropped. That is also what this mode gives up: if anybody dropped before its vector came, then every
survivor must answer the unmask request, or the round is aborted.

A round ends when its sum is opened, when the next one begins, or by `end_round`; its pair keys go with it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sottovoce.core import wire
from sottovoce.core.errors import InputError, SecAggError, WireError
from sottovoce.core.wire import Buffer, Words
from sottovoce.secagg import dealing, masks, messages, primitives, rules, shamir
from sottovoce.secagg.dealing import Dealing
from sottovoce.secagg.mark import RoundMark
from sottovoce.secagg.primitives import KEY, NONCE, Entropy
from sottovoce.secagg.rules import check_quorum, check_words, pair_mask, pair_sign, self_mask
from sottovoce.secagg.session import Session

MOST_SKIPPED: Final = 1000  # every skipped round turns every chain once


@dataclass(frozen=True)
class _Chains:
    """What two clients share from `round` on, and nothing that would open an earlier round."""

    round: int
    masks: dict[int, bytes]  # by client id
    shares: dict[int, bytes]

    def advance(self, round_: int) -> _Chains:
        """Return the chains as they stand at a later round."""
        ahead = range(self.round, round_)
        return _Chains(round_, _turn(self.masks, ahead), _turn(self.shares, ahead))


@dataclass(frozen=True)
class _Round:
    """The secrets of one round, by place in its cohort."""

    session: Session
    me: int
    pairs: dict[int, bytes]  # keys of the masks shared with peers; once the survivors are known, with the others only
    opening: dict[int, bytes]  # keys under which peers seal shares of their seeds
    shares: dict[int, bytes]  # of the survivors' seeds, where the seal opened
    survivors: frozenset[int] = field(default=frozenset())
    doubts: bool = False  # not all that it was dealt is what the dealers pledged, as far as it can see


@final
class StandingClient:
    """A client that enrols once (`advertise`, `introduce`); then rounds rise (`mask`, `consistency`, `unmask`).

    `mark` is as for `RoundClient`; a client that was restored to a state before the mark must enrol again.

    Guarantee: as for `RoundClient`, round by round; whoever later seizes the client's state learns no earlier mask.
    """

    def __init__(
        self,
        session: Session,
        client: int,
        signing_key: bytes,
        entropy: Entropy = os.urandom,
        mark: RoundMark | None = None,
    ) -> None:
        if session.key_life != "session":
            raise InputError("this client takes a session whose keys live for the session; see RoundClient")
        if primitives.verifying_key(signing_key) != session.keys.get(client):
            raise InputError(f"client {client}: the signing key is not the one registered for it")
        self._mark = mark or RoundMark()
        self._mark.check(session.round + 1)
        self.session = session
        self.client = client
        self._signing_key = signing_key
        self._entropy = entropy
        self._phase: str | None = "advertise"
        self._private: tuple[bytes, bytes] | None = None
        self._chains = _Chains(session.round, {}, {})
        self._round: _Round | None = None

    @property
    def phase(self) -> str | None:
        """Name the phase that comes next."""
        return self._phase

    @property
    def cohort(self) -> int:
        """Return how many clients enrolled, as this client counts them: its share of the noise follows from it."""
        return 1 + len(self._chains.masks)

    def advertise(self) -> bytes:
        """Draw the session's key pairs and return the signed public keys."""
        self._expect("advertise")
        private = (self._entropy(KEY), self._entropy(KEY))
        public = b"".join(map(primitives.exchange_key, private))
        reply = messages.seal_reply(self.session, "advertise", self.client, public, self._signing_key)
        self._private, self._phase = private, "share"
        return reply

    def introduce(self, payload: Buffer) -> None:
        """Verify the peers' keys, agree on the chains with each and forget the private keys."""
        self._expect("share")
        if self._private is None:
            raise SecAggError(f"client {self.client}: there are no keys to enrol with")
        around = self.session.around(self.session.position(self.client))
        limit = messages.set_size(self.session) + rules.ENTRY * len(around)
        body = messages.open_request(self.session, "share", self.client, payload, limit)
        sharing, masking = map(X25519PrivateKey.from_private_bytes, self._private)
        own = (sharing.public_key().public_bytes_raw(), masking.public_key().public_bytes_raw())
        peers = rules.read_keys(self.session, body, around, own)
        ids = {self.session.clients[peer]: keys for peer, keys in peers.items()}
        mask_secrets = {client: primitives.agree(masking, keys.masking) for client, keys in ids.items()}
        share_secrets = {client: primitives.agree(sharing, keys.sharing) for client, keys in ids.items()}
        self._chains = _Chains(self.session.round, mask_secrets, share_secrets).advance(self.session.round + 1)
        self._private, self._phase = None, "mask"

    def end_round(self) -> None:
        """Forget the running round, as when it was aborted: nothing more is told about it."""
        if self._round is not None:
            self._round, self._phase = None, "mask"

    def mask(self, round_: int, words: Words, downlink: bytes = b"") -> bytes:
        """Return the words under every mask of a later round, and shares of the seed sealed for each peer.

        `downlink` is the hash of what this client was sent to train from. The round before ends here, also if this one
        is refused.
        """
        if self._phase not in ("mask", "consistency", "unmask") or round_ < self._chains.round:
            raise SecAggError(f"client {self.client}: round {round_} is over, or comes before enrolment")
        self.end_round()
        if (highest := self._mark.highest) >= self._chains.round:
            raise SecAggError(
                f"client {self.client}: round {highest} was masked, but these keys are of round {self._chains.round}: "
                "they were restored; enrol anew"
            )
        if round_ - self._chains.round > MOST_SKIPPED:
            raise SecAggError(f"client {self.client}: round {round_} is more than {MOST_SKIPPED} ahead; enrol anew")
        session = self.session.for_round(round_, (self.client, *self._chains.masks), downlink)
        check_words(session, words)
        me = session.position(self.client)
        chains = self._chains.advance(round_)
        peers = {session.position(client): client for client in chains.masks}
        pairs = {peer: pair_mask(session, chains.masks[client], me, peer) for peer, client in peers.items()}
        sealing = {peer: _share_key(session, chains.shares[client], me, peer) for peer, client in peers.items()}
        opening = {peer: _share_key(session, chains.shares[client], peer, me) for peer, client in peers.items()}
        seed = self._entropy(KEY)
        points = range(1, len(session.clients) + 1)
        shares = shamir.split([int.from_bytes(seed, "little")], session.degree.threshold, points, self._entropy)
        dealt = {point - 1: shamir.write_share(share) for point, (share,) in shares.items()}
        nonce = self._entropy(NONCE)
        sealed = {
            peer: primitives.encrypt(sealing[peer], dealt[peer], _info(session, me, peer), nonce) for peer in peers
        }
        pledges = {place: dealing.pledge(session, me, place, [share]) for place, share in dealt.items()}
        total = masks.new_sum(session.length, session.bits, words)
        masks.add_mask(total, self_mask(session, seed, me), +1)
        for peer, key in pairs.items():
            masks.add_mask(total, key, pair_sign(me, peer))
        frame = wire.pack(masks.reduce(total, session.bits), session.bits)
        body = Dealing(primitives.commit(seed), sealed, pledges).write() + frame
        reply = messages.seal_reply(session, "mask", self.client, body, self._signing_key)
        self._mark.before_mask(round_)
        self._chains = chains.advance(round_ + 1)
        self._round = _Round(session, me, pairs, opening, {me: dealt[me]})
        self._phase = "consistency"
        return reply

    def consistency(self, payload: Buffer) -> bytes:
        """Check the survivors, open the shares of their seeds and return a signature of them."""
        now = self._running("consistency")
        size = messages.set_size(now.session)
        limit = size + messages.SINGLE * len(now.pairs) + dealing.RECEIPT
        body = messages.open_request(now.session, "consistency", self.client, payload, limit)
        survivors = frozenset(messages.read_set(now.session, body[:size]))
        check_quorum(now.session, len(survivors), "survivors")
        peers = sorted(survivors - {now.me})
        if now.me not in survivors:
            raise SecAggError("the survivors leave this client out")
        end = size + messages.SINGLE * len(peers)
        if body.nbytes != end + dealing.RECEIPT:
            raise WireError(f"share list of {len(peers)} survivors has {body.nbytes} bytes")
        shares = dict(now.shares)
        for index, peer in enumerate(peers):
            start = size + index * messages.SINGLE
            sealed = bytes(body[start : start + messages.SINGLE])
            with suppress(SecAggError):
                share = primitives.decrypt(now.opening[peer], sealed, _info(now.session, peer, now.me))
                shamir.read_share(share)
                shares[peer] = share
        pledges = {peer: dealing.pledge(now.session, peer, now.me, [shares[peer]]) for peer in peers if peer in shares}
        doubts = len(pledges) < len(peers) or dealing.receipt(pledges) != bytes(body[end:])
        digest = rules.survivors_hash(now.session, survivors)
        reply = messages.seal_reply(now.session, "consistency", self.client, digest, self._signing_key)
        pairs = {peer: key for peer, key in now.pairs.items() if peer not in survivors}
        self._round = _Round(now.session, now.me, pairs, {}, shares, survivors, doubts)
        self._phase = "unmask"
        return reply

    def unmask(self, payload: Buffer) -> bytes:
        """Return, for each peer, a share of its seed if it survived or the pair's mask key if not; forget the round."""
        now = self._running("unmask")
        limit = rules.unmask_size(now.session)
        body = messages.open_request(now.session, "unmask", self.client, payload, limit)
        owners = range(len(now.session.clients))
        rules.check_unmask(now.session, body, me=now.me, survivors=now.survivors, owners=owners)
        none = shamir.NO_SHARE
        told = [now.shares.get(owner, none) if owner in now.survivors else now.pairs[owner] for owner in owners]
        answer = b"".join(told) + bytes([now.doubts])
        reply = messages.seal_reply(now.session, "unmask", self.client, answer, self._signing_key)
        self._round, self._phase = None, "mask"
        return reply

    def _expect(self, phase: str) -> None:
        if self._phase != phase:
            raise SecAggError(f"client {self.client}: {phase} is not next, {self._phase or 'nothing'} is")

    def _running(self, phase: str) -> _Round:
        self._expect(phase)
        if self._round is None:
            raise SecAggError(f"client {self.client}: no round is running")
        return self._round


def _turn(keys: dict[int, bytes], ahead: range) -> dict[int, bytes]:
    for _ in ahead:
        keys = {
            client: primitives.derive(key, salt=b"", info=b"sottovoce secagg chain") for client, key in keys.items()
        }
    return keys


def _info(session: Session, sender: int, receiver: int) -> bytes:
    return messages.info(b"seed share", session.round, session.clients[sender], session.clients[receiver])


def _share_key(session: Session, chain: bytes, sender: int, receiver: int) -> bytes:
    return primitives.derive(chain, salt=session.context, info=_info(session, sender, receiver))
