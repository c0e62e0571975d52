"""Play one client of one secure sum: five phases, each once and in order (Bonawitz et al. 2017, with signed keys).

Every method checks all of its input before it changes anything, so a refused message leaves the state as it was.
Secrets are dropped as soon as no later phase needs them: the private keys once the shares are out, the seed and the
mask keys once the vector is masked, the peers' shares once they are told. (Python cannot promise to wipe freed memory.)

A sealed share that does not open costs its receiver nothing. It masks with that peer all the same, for the mask follows
from signed keys and not from the share, and says in the last phase that it holds no share: that is between the two, and
the server opens that peer's secret by the other holders. `dealing` says how a wrong share is told from a right one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sottovoce.core import wire
from sottovoce.core.errors import InputError, SecAggError, WireError
from sottovoce.core.wire import Buffer, Words
from sottovoce.secagg import dealing, masks, messages, primitives, rules, shamir
from sottovoce.secagg.dealing import Dealing
from sottovoce.secagg.mark import RoundMark
from sottovoce.secagg.messages import PHASES
from sottovoce.secagg.primitives import KEY, NONCE, Entropy
from sottovoce.secagg.rules import check_quorum, check_words, pair_mask, pair_sign, self_mask
from sottovoce.secagg.session import Session


@dataclass
class _Secrets:
    """What must not leave the client, kept only for as long as a phase needs it."""

    sharing: bytes = b""  # X25519 private key c
    masking: bytes = b""  # X25519 private key s
    seed: bytes = b""  # self-mask seed b
    opening: dict[int, bytes] = field(default_factory=dict)  # keys under which peers seal their shares for us
    pairs: dict[int, bytes] = field(default_factory=dict)  # keys of the masks shared with peers
    shares: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)  # (of the seed, of the masking key), by owner


@final
class RoundClient:
    """One client of a session of one round; `entropy` is the operating system's unless the run is a simulation.

    `mark` remembers the highest round masked: a file in a deployment, memory in a simulation. The session's terms are
    believed here; `Policy.accept` checks them first.

    Guarantee: while fewer than `session.threshold` clients help the server, what it receives depends on this client's
    words only through the sum over survivors (complete graph; `graph` states the bound for a sparse one).
    """

    def __init__(
        self,
        session: Session,
        client: int,
        signing_key: bytes,
        entropy: Entropy = os.urandom,
        mark: RoundMark | None = None,
    ) -> None:
        if session.key_life != "round":
            raise InputError("this client takes a session whose keys live for a round; see StandingClient")
        self.session = session
        self.client = client
        self._me = session.position(client)
        self._around = session.around(self._me)
        if primitives.verifying_key(signing_key) != session.keys[client]:
            raise InputError(f"client {client}: the signing key is not the one registered for it")
        self._mark = mark or RoundMark()
        self._mark.check(session.round)
        self._signing_key = signing_key
        self._entropy = entropy
        self._phase: str | None = PHASES[0]
        self._secrets = _Secrets()
        self._masked_with: frozenset[int] = frozenset()
        self._survivors: frozenset[int] = frozenset()
        self._doubts = False  # not all that it was dealt is what the dealers pledged, as far as it can see

    @property
    def phase(self) -> str | None:
        """Name the phase that comes next; None after the last."""
        return self._phase

    @property
    def cohort(self) -> int:
        """Return how many clients take part, as this client counts them: its share of the noise follows from it."""
        return len(self.session.clients)

    def advertise(self) -> bytes:
        """Draw fresh key pairs and return the signed public keys."""
        self._expect("advertise")
        secrets = _Secrets(sharing=self._entropy(KEY), masking=self._entropy(KEY))
        public = primitives.exchange_key(secrets.sharing) + primitives.exchange_key(secrets.masking)
        reply = self._reply("advertise", public)
        self._secrets, self._phase = secrets, "share"
        return reply

    def share(self, payload: Buffer) -> bytes:
        """Verify the peers' keys and return shares of both secrets, sealed for each peer."""
        body = self._open("share", payload, len(self._around) * rules.ENTRY)
        sharing = X25519PrivateKey.from_private_bytes(self._secrets.sharing)
        masking = X25519PrivateKey.from_private_bytes(self._secrets.masking)
        own_keys = (sharing.public_key().public_bytes_raw(), masking.public_key().public_bytes_raw())
        peers = rules.read_keys(self.session, body, self._around, own_keys)
        shared = {peer: primitives.agree(sharing, keys.sharing) for peer, keys in peers.items()}
        pairs = {
            peer: pair_mask(self.session, primitives.agree(masking, keys.masking), self._me, peer)
            for peer, keys in peers.items()
        }
        seed = self._entropy(KEY)
        secret_numbers = [int.from_bytes(seed, "little"), int.from_bytes(self._secrets.masking, "little")]
        points = [place + 1 for place in sorted([*peers, self._me])]
        shares = shamir.split(secret_numbers, self.session.degree.threshold, points, self._entropy)
        dealt = {point - 1: [shamir.write_share(share) for share in both] for point, both in shares.items()}
        nonce = self._entropy(NONCE)
        sealed = {peer: self._seal(peer, secret, b"".join(dealt[peer]), nonce) for peer, secret in shared.items()}
        pledges = {place: dealing.pledge(self.session, self._me, place, both) for place, both in dealt.items()}
        reply = self._reply("share", Dealing(primitives.commit(seed), sealed, pledges).write())
        opening = {peer: self._share_key(secret, peer, self._me)[0] for peer, secret in shared.items()}
        own = (dealt[self._me][0], dealt[self._me][1])
        self._secrets = _Secrets(seed=seed, opening=opening, pairs=pairs, shares={self._me: own})
        self._phase = "mask"
        return reply

    def mask(self, payload: Buffer, words: Words) -> bytes:
        """Open the peers' shares and return the words under every mask, packed to exactly b bits each."""
        session = self.session
        limit = len(self._around) * messages.PAIR + dealing.RECEIPT
        peers, shares, doubts = self._peer_shares(self._open("mask", payload, limit))
        check_words(session, words)
        total = masks.new_sum(session.length, session.bits, words)
        masks.add_mask(total, self_mask(session, self._secrets.seed, self._me), +1)
        for peer in peers:
            masks.add_mask(total, self._secrets.pairs[peer], pair_sign(self._me, peer))
        reply = self._reply("mask", wire.pack(masks.reduce(total, session.bits), session.bits))
        self._mark.before_mask(session.round)
        self._secrets = _Secrets(shares={**self._secrets.shares, **shares})
        self._masked_with, self._doubts = frozenset(peers), doubts
        self._phase = "consistency"
        return reply

    def consistency(self, payload: Buffer) -> bytes:
        """Check the survivors that the server names and return a signature of them."""
        body = self._open("consistency", payload, 0)
        survivors = frozenset(messages.read_set(self.session, body))
        check_quorum(self.session, len(survivors), "survivors")
        known = survivors & (self._around | {self._me})
        if self._me not in survivors or not known <= self._masked_with | {self._me}:
            raise SecAggError("the survivors leave this client out, or name a client that never shared its secrets")
        reply = self._reply("consistency", rules.survivors_hash(self.session, survivors))
        self._survivors, self._phase = survivors, "unmask"
        return reply

    def unmask(self, payload: Buffer) -> bytes:
        """Return, for each peer, a share of its seed if it survived or of its masking key if not; then forget all.

        A last byte says whether it doubts that it was dealt what was pledged.
        """
        body = self._open("unmask", payload, rules.unmask_size(self.session))
        held, survivors = self._secrets.shares, self._survivors
        owners = self._masked_with | {self._me}
        rules.check_unmask(self.session, body, me=self._me, survivors=survivors, owners=owners)
        none = (shamir.NO_SHARE, shamir.NO_SHARE)
        told = [held.get(owner, none)[owner not in survivors] for owner in sorted(owners)]
        reply = self._reply("unmask", b"".join(told) + bytes([self._doubts]))
        self._secrets, self._phase = _Secrets(), None
        return reply

    def _expect(self, phase: str) -> None:
        if self._phase != phase:
            raise SecAggError(f"client {self.client}: {phase} is not next, {self._phase or 'nothing'} is")

    def _open(self, phase: str, payload: Buffer, limit: int) -> memoryview:
        self._expect(phase)
        limit += messages.set_size(self.session)
        return messages.open_request(self.session, phase, self.client, payload, limit)

    def _reply(self, phase: str, body: bytes) -> bytes:
        return messages.seal_reply(self.session, phase, self.client, body, self._signing_key)

    def _share_key(self, secret: bytes, sender: int, receiver: int) -> tuple[bytes, bytes]:
        """Return the key under which `sender` seals shares for `receiver`, and the words that bind it."""
        clients = self.session.clients
        info = messages.info(b"shares", self.session.round, clients[sender], clients[receiver])
        return primitives.derive(secret, salt=self.session.context, info=info), info

    def _seal(self, peer: int, secret: bytes, shares: bytes, nonce: bytes) -> bytes:
        key, info = self._share_key(secret, self._me, peer)
        return primitives.encrypt(key, shares, info, nonce)

    def _peer_shares(self, body: memoryview) -> tuple[list[int], dict[int, tuple[bytes, bytes]], bool]:
        """Return the peers that shared, both shares of those whose seal opens, and whether a pledge may differ."""
        session = self.session
        start = messages.set_size(session)
        peers = messages.read_set(session, body[:start])
        if body.nbytes != start + messages.PAIR * len(peers) + dealing.RECEIPT:
            raise WireError(f"share list of {len(peers)} peers has {body.nbytes} bytes")
        if not self._secrets.opening.keys() >= set(peers):
            raise SecAggError("the share list names a client whose keys were not in the key list")
        if 1 + len(peers) < session.degree.threshold:
            raise SecAggError(f"{1 + len(peers)} clients shared, but {session.degree.threshold} must hold shares")
        shares = {}
        for peer in peers:
            info = messages.info(b"shares", session.round, session.clients[peer], self.client)
            sealed = bytes(body[start : start + messages.PAIR])
            start += messages.PAIR
            with suppress(SecAggError):
                plain = primitives.decrypt(self._secrets.opening[peer], sealed, info)
                pair = plain[: shamir.SHARE], plain[shamir.SHARE :]
                for share in pair:
                    shamir.read_share(share)
                shares[peer] = pair
        pledges = {peer: dealing.pledge(session, peer, self._me, pair) for peer, pair in shares.items()}
        return peers, shares, len(shares) < len(peers) or dealing.receipt(pledges) != bytes(body[start:])
