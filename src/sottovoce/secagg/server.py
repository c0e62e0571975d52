"""Play the server of one secure sum: it forwards keys and sealed shares, adds masked vectors, and opens only the sum.

Vectors are added as they arrive and not kept. A message is checked whole before anything changes; a phase that ends
with fewer clients than the threshold ends the session, and nothing is released.
"""

from __future__ import annotations

from typing import ClassVar, final

from sottovoce.core import wire
from sottovoce.core.errors import InputError, SecAggError
from sottovoce.core.wire import Buffer, Words
from sottovoce.secagg import masks, messages, shamir
from sottovoce.secagg.agreement import survivors_hash, write_unmask
from sottovoce.secagg.keylist import Keys, read_advertisement, write_keys
from sottovoce.secagg.opening import complaints, open_by_shares, read_told
from sottovoce.secagg.phased import PhasedServer
from sottovoce.secagg.primitives import KEY, SIGNATURE
from sottovoce.secagg.rules import check_quorum
from sottovoce.secagg.session import Session

__all__ = ["RoundServer"]


@final
class RoundServer(PhasedServer):
    """The server of one round's sum, with keys that live for this round only."""

    phases: ClassVar[tuple[str, ...]] = messages.PHASES

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        if session.key_life != "round":
            raise InputError("this server takes a session whose keys live for a round; see StandingServer")
        self._keys: dict[int, Keys] = {}
        self._commitments: dict[int, bytes] = {}
        self._sealed: dict[int, dict[int, bytes]] = {}  # sender -> receiver -> shares only the receiver can read
        self._sum = masks.new_sum(session.length, session.bits)
        self._masked: set[int] = set()
        self._signatures: dict[int, bytes] = {}
        self._shares: dict[int, dict[int, int | None]] = {}  # holder -> owner -> share
        self._complaints: dict[int, tuple[int, ...]] = {}
        self._total: Words | None = None

    @property
    def survivors(self) -> tuple[int, ...]:
        """Return the clients whose vectors are in the sum."""
        return self._ids(self._masked)

    @property
    def dropped(self) -> tuple[int, ...]:
        """Return the clients that shared their secrets and left before their vector came."""
        return self._ids(self._sealed.keys() - self._masked)

    @property
    def complaints(self) -> dict[int, tuple[int, ...]]:
        """Return, by client, who could not open the share that it sealed for them; known at the end."""
        return dict(self._complaints)

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
        size = KEY + messages.PAIR * len(receivers)
        body = bytes(messages.open_reply(self.session, "share", client, message, size))
        starts = range(KEY, size, messages.PAIR)
        self._commitments[place] = body[:KEY]
        self._sealed[place] = {
            receiver: body[start : start + messages.PAIR] for receiver, start in zip(receivers, starts, strict=True)
        }

    def _take_opened(self, place: int, client: int, message: Buffer) -> None:
        owners = sorted([*self._peers(place, self._sealed), place])
        body = messages.open_reply(self.session, "unmask", client, message, shamir.SHARE * len(owners))
        starts = range(0, body.nbytes, shamir.SHARE)
        self._shares[place] = {
            owner: read_told(body[start : start + shamir.SHARE]) for owner, start in zip(owners, starts, strict=True)
        }

    def _end(self, phase: str) -> dict[int, bytes]:
        session = self.session
        if phase == "advertise":
            check_quorum(session, len(self._keys), "clients advertised keys")
            return {place: write_keys(session, self._keys, self._peers(place, self._keys)) for place in self._keys}
        if phase == "share":
            check_quorum(session, len(self._sealed), "clients shared their secrets")
            return {place: self._sealed_for(place) for place in self._sealed}
        if phase == "mask":
            check_quorum(session, len(self._masked), "masked vectors")
            return dict.fromkeys(self._masked, messages.write_set(session, self._masked))
        if phase == "consistency":
            check_quorum(session, len(self._signatures), "clients signed the survivors")
            return self._ask_opened()
        check_quorum(session, len(self._shares), "clients answered the unmask request")
        self._complaints = complaints(session, self._shares)
        self._total = open_by_shares(
            self._sum,
            session=session,
            masked=self._masked,
            dropped=self._sealed.keys() - self._masked,
            public={place: keys.masking for place, keys in self._keys.items()},
            commitments=self._commitments,
            shares=self._shares,
        )
        self._forget()
        return {}

    def _sealed_for(self, place: int) -> bytes:
        peers = self._peers(place, self._sealed)
        return b"".join((messages.write_set(self.session, peers), *(self._sealed[peer][place] for peer in peers)))

    def _ask_opened(self) -> dict[int, bytes]:
        needed = self.session.degree.threshold - 1
        gone = self._sealed.keys() - self._masked
        bodies = {}
        for place in self._signatures:
            signers = self._peers(place, self._signatures)[:needed]
            # In a sparse graph too few of its neighbours may be left to convince a client; it is not asked.
            if len(signers) == needed:
                signatures = {signer: self._signatures[signer] for signer in signers}
                bodies[place] = write_unmask(self.session, self._masked, self._peers(place, gone), signatures)
        return bodies

    def _forget(self) -> None:
        self._shares, self._commitments, self._signatures = {}, {}, {}
        self._sum = masks.new_sum(0, self.session.bits)
