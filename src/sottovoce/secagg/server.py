"""Play the server of one secure sum: it forwards keys and sealed shares, adds masked vectors, and opens only the sum.

Vectors are added as they arrive and not kept. A message is checked whole before anything changes; a phase that ends
with fewer clients than the threshold ends the session, and nothing is released.
"""

from __future__ import annotations

from typing import ClassVar, final

from sottovoce.core import wire
from sottovoce.core.errors import InputError, SecAggError
from sottovoce.core.wire import Buffer, Words
from sottovoce.secagg import dealing, masks, messages, shamir
from sottovoce.secagg.dealing import Dealing
from sottovoce.secagg.opening import HolderShares, Opener, PhasedServer, open_by_shares, read_told
from sottovoce.secagg.primitives import SIGNATURE
from sottovoce.secagg.rules import Keys, check_quorum, read_advertisement, survivors_hash, write_keys, write_unmask
from sottovoce.secagg.session import Session


@final
class RoundServer(PhasedServer):
    """The server of one round's sum, with keys that live for this round only."""

    phases: ClassVar[tuple[str, ...]] = messages.PHASES

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        if session.key_life != "round":
            raise InputError("this server takes a session whose keys live for a round; see StandingServer")
        self._keys: dict[int, Keys] = {}
        self._dealt: dict[int, Dealing] = {}
        self._sum = masks.new_sum(session.length, session.bits)
        self._masked: set[int] = set()
        self._signatures: dict[int, bytes] = {}
        self._told: dict[int, HolderShares] = {}  # by holder
        self._opener: Opener | None = None
        self._total: Words | None = None

    @property
    def survivors(self) -> tuple[int, ...]:
        """Return the clients whose vectors are in the sum."""
        return self._ids(self._masked)

    @property
    def dropped(self) -> tuple[int, ...]:
        """Return the clients that shared their secrets and left before their vector came."""
        return self._ids(self._dealt.keys() - self._masked)

    @property
    def complaints(self) -> dict[int, tuple[int, ...]]:
        """Return, by client, who says that it did not get the share that it was to get from it; known at the end."""
        return {} if self._opener is None else self._opener.complaints

    @property
    def accused(self) -> dict[int, str]:
        """Return, by client, what it did wrong with shares; known at the end, also of a round that fails."""
        return {} if self._opener is None else self._opener.accused

    def total(self) -> Words:
        """Return the sum of the survivors' words modulo 2^bits."""
        if self._total is None:
            raise SecAggError("there is no total: the session was aborted or is not at its end")
        return self._total

    def _take(self, phase: str, place: int, client: int, message: Buffer) -> None:
        if phase == "advertise":
            self._keys[place] = read_advertisement(self.session, client, message, self._keys.values())
        elif phase == "share":
            self._take_shares(place, client, message)
        elif phase == "mask":
            length, bits = self.session.length, self.session.bits
            body = messages.open_reply(self.session, "mask", client, message, wire.frame_size(length, bits))
            masks.add_packed(self._sum, wire.open_frame(body, length=length, bits=bits), bits)
            self._masked.add(place)
        elif phase == "consistency":
            body = messages.open_reply(self.session, "consistency", client, message, messages.CONSISTENCY)
            if bytes(body) != survivors_hash(self.session, self._masked):
                raise SecAggError(f"client {client}: signed other survivors")
            self._signatures[place] = bytes(memoryview(message)[-SIGNATURE:])
        else:
            self._take_opened(place, client, message)

    def _take_shares(self, place: int, client: int, message: Buffer) -> None:
        receivers = self._peers(place, self._keys)
        size = dealing.dealing_size(len(receivers), 2)
        body = bytes(messages.open_reply(self.session, "share", client, message, size))
        self._dealt[place] = dealing.read_dealing(body, place, receivers, 2)

    def _take_opened(self, place: int, client: int, message: Buffer) -> None:
        owners = sorted([*self._peers(place, self._dealt), place])
        body = messages.open_reply(self.session, "unmask", client, message, shamir.SHARE * len(owners) + 1)
        starts = range(0, body.nbytes - 1, shamir.SHARE)
        shares = {
            owner: read_told(body[start : start + shamir.SHARE]) for owner, start in zip(owners, starts, strict=True)
        }
        self._told[place] = HolderShares(shares, doubts=bool(body[-1]))

    def _end(self, phase: str) -> dict[int, bytes]:
        session = self.session
        if phase == "advertise":
            check_quorum(session, len(self._keys), "clients advertised keys")
            return {place: write_keys(session, self._keys, self._peers(place, self._keys)) for place in self._keys}
        if phase == "share":
            check_quorum(session, len(self._dealt), "clients shared their secrets")
            return {place: self._dealt_to(place) for place in self._dealt}
        if phase == "mask":
            check_quorum(session, len(self._masked), "masked vectors")
            return dict.fromkeys(self._masked, messages.write_set(session, self._masked))
        if phase == "consistency":
            check_quorum(session, len(self._signatures), "clients signed the survivors")
            return self._ask_opened()
        check_quorum(session, len(self._told), "clients answered the unmask request")
        dropped = self._dealt.keys() - self._masked
        pledges = {place: dealt.pledges for place, dealt in self._dealt.items()}
        self._opener = Opener(session, self._told, pledges, dropped)
        self._total = open_by_shares(
            self._sum,
            session=session,
            masked=self._masked,
            dropped=dropped,
            public={place: keys.masking for place, keys in self._keys.items()},
            commitments={place: dealt.commitment for place, dealt in self._dealt.items()},
            opener=self._opener,
        )
        self._forget()
        return {}

    def _dealt_to(self, place: int) -> bytes:
        """Return what was sealed for a client, and a receipt of what was pledged about it."""
        peers = self._peers(place, self._dealt)
        sealed = (self._dealt[peer].sealed[place] for peer in peers)
        receipt = dealing.receipt({peer: self._dealt[peer].pledges[place] for peer in peers})
        return b"".join((messages.write_set(self.session, peers), *sealed, receipt))

    def _ask_opened(self) -> dict[int, bytes]:
        needed = self.session.degree.threshold - 1
        gone = self._dealt.keys() - self._masked
        bodies = {}
        for place in self._signatures:
            signers = self._peers(place, self._signatures)[:needed]
            # In a sparse graph too few of its neighbours may be left to convince a client; it is not asked.
            if len(signers) == needed:
                signatures = {signer: self._signatures[signer] for signer in signers}
                bodies[place] = write_unmask(self.session, self._masked, self._peers(place, gone), signatures)
        return bodies

    def _forget(self) -> None:
        self._told, self._signatures = {}, {}
        if self._opener is not None:
            self._opener.forget()
        self._sum = masks.new_sum(0, self.session.bits)
