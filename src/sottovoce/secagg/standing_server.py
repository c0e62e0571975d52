"""Play the server of a session of rounds: enrol the clients once, then open one sum a round in three phases."""

from __future__ import annotations

from typing import ClassVar, final

from sottovoce.core import wire
from sottovoce.core.errors import InputError, SecAggError
from sottovoce.core.wire import Buffer, Words
from sottovoce.secagg import masks, messages, shamir
from sottovoce.secagg.agreement import survivors_hash, write_unmask
from sottovoce.secagg.keylist import Keys, read_advertisement, write_keys
from sottovoce.secagg.opening import complaints, open_seeds, read_told
from sottovoce.secagg.phased import PhasedServer
from sottovoce.secagg.primitives import KEY, SIGNATURE
from sottovoce.secagg.rules import check_quorum, pair_sign, self_mask
from sottovoce.secagg.session import Session

__all__ = ["Registrar", "StandingServer"]


@final
class Registrar(PhasedServer):
    """The enrolment of clients for a session: it takes their keys and hands every one the keys of the others."""

    phases: ClassVar[tuple[str, ...]] = ("advertise",)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        if session.key_life != "session":
            raise InputError("enrolment takes a session whose keys live for the session")
        self._keys: dict[int, Keys] = {}

    @property
    def enrolled(self) -> tuple[int, ...]:
        """Return the clients that take part in the session's rounds."""
        return self._ids(self._keys)

    def round(self, round_: int, downlink: bytes = b"") -> Session:
        """Return the terms of one round, for `StandingServer`; `downlink` is the hash of what clients train from."""
        return self.session.for_round(round_, self.enrolled, downlink)

    def _take(self, phase: str, place: int, client: int, message: Buffer) -> None:
        self._keys[place] = read_advertisement(self.session, client, message, self._keys.values())

    def _end(self, phase: str) -> dict[int, bytes]:
        check_quorum(self.session, len(self._keys), "clients advertised keys")
        return {place: write_keys(self.session, self._keys, self._peers(place, self._keys)) for place in self._keys}

    def _forget(self) -> None:
        self._keys = {}


@final
class StandingServer(PhasedServer):
    """The server of one round's sum, with keys of the session."""

    phases: ClassVar[tuple[str, ...]] = ("mask", "consistency", "unmask")

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        if session.key_life != "session":
            raise InputError("this server takes a session whose keys live for the session; see RoundServer")
        self._sum = masks.new_sum(session.length, session.bits)
        self._commitments: dict[int, bytes] = {}
        self._sealed: dict[int, dict[int, bytes]] = {}  # sender -> receiver -> a share only the receiver can read
        self._signatures: dict[int, bytes] = {}
        self._shares: dict[int, dict[int, int | None]] = {}  # holder -> survivor -> share of its seed
        self._complaints: dict[int, tuple[int, ...]] = {}
        self._pairs: dict[int, dict[int, bytes]] = {}  # survivor -> dropped -> key of the mask they share
        self._masked: frozenset[int] = frozenset()
        self._total: Words | None = None

    @property
    def survivors(self) -> tuple[int, ...]:
        """Return the clients whose vectors are in the sum."""
        return self._ids(self._masked)

    @property
    def dropped(self) -> tuple[int, ...]:
        """Return the enrolled clients whose vectors did not come."""
        return self._ids(self._gone)

    @property
    def complaints(self) -> dict[int, tuple[int, ...]]:
        """Return, by client, who could not open the share that it sealed for them; known at the end."""
        return dict(self._complaints)

    def total(self) -> Words:
        """Return the sum of the survivors' words modulo 2^bits."""
        if self._total is None:
            raise SecAggError("there is no total: the round was aborted or is not at its end")
        return self._total

    @property
    def _gone(self) -> frozenset[int]:
        return frozenset(range(len(self.session.clients))) - self._masked

    def _take(self, phase: str, place: int, client: int, message: Buffer) -> None:
        session = self.session
        if phase == "mask":
            self._take_vector(place, client, message)
        elif phase == "consistency":
            body = messages.open_reply(session, phase, client, message, messages.CONSISTENCY)
            if bytes(body) != survivors_hash(session, self._masked):
                raise SecAggError(f"client {client}: signed other survivors")
            self._signatures[place] = bytes(memoryview(message)[-SIGNATURE:])
        else:
            self._take_opened(place, client, message)

    def _take_vector(self, place: int, client: int, message: Buffer) -> None:
        length, bits = self.session.length, self.session.bits
        receivers = self._peers(place, range(len(self.session.clients)))
        end = KEY + messages.SINGLE * len(receivers)
        body = messages.open_reply(self.session, "mask", client, message, end + wire.frame_size(length, bits))
        packed = wire.open_frame(body[end:], length=length, bits=bits)
        starts = range(KEY, end, messages.SINGLE)
        masks.add_packed(self._sum, packed, bits)
        self._commitments[place] = bytes(body[:KEY])
        self._sealed[place] = {
            receiver: bytes(body[start : start + messages.SINGLE])
            for receiver, start in zip(receivers, starts, strict=True)
        }
        self._masked |= {place}

    def _take_opened(self, place: int, client: int, message: Buffer) -> None:
        size = shamir.SHARE * len(self._masked) + KEY * len(self._gone)
        body = messages.open_reply(self.session, "unmask", client, message, size)
        shares: dict[int, int | None] = {}
        pairs, start = {}, 0
        for owner in range(len(self.session.clients)):
            if owner in self._masked:
                shares[owner] = read_told(body[start : start + shamir.SHARE])
                start += shamir.SHARE
            else:
                pairs[owner] = bytes(body[start : start + KEY])
                start += KEY
        self._shares[place], self._pairs[place] = shares, pairs

    def _end(self, phase: str) -> dict[int, bytes]:
        session = self.session
        if phase == "mask":
            check_quorum(session, len(self._masked), "masked vectors")
            survivors = messages.write_set(session, self._masked)
            return {
                place: b"".join((survivors, *(self._sealed[peer][place] for peer in self._peers(place, self._masked))))
                for place in self._masked
            }
        if phase == "consistency":
            check_quorum(session, len(self._signatures), "clients signed the survivors")
            return {place: self._ask_opened(place) for place in self._signatures}
        check_quorum(session, len(self._shares), "clients answered the unmask request")
        self._complaints = complaints(session, self._shares)
        self._total = self._open_sum()
        self._forget()
        return {}

    def _ask_opened(self, place: int) -> bytes:
        signers = self._peers(place, self._signatures)[: self.session.degree.threshold - 1]
        signatures = {signer: self._signatures[signer] for signer in signers}
        return write_unmask(self.session, self._masked, self._gone, signatures)

    def _open_sum(self) -> Words:
        if self._gone and (silent := self._masked - self._pairs.keys()):
            client = self.session.clients[min(silent)]
            raise SecAggError(
                f"round {self.session.round}: client {client} left after masking while client {self.dropped[0]} was "
                "missing, and the masks between them cannot come off; nothing was released"
            )
        seeds = open_seeds(self.session, self._masked, self._commitments, self._shares)
        for place, seed in seeds.items():
            masks.add_mask(self._sum, self_mask(self.session, seed, place), -1)
        for place in self._masked:
            for peer in self._gone:
                masks.add_mask(self._sum, self._pairs[place][peer], -pair_sign(place, peer))
        return masks.reduce(self._sum, self.session.bits)

    def _forget(self) -> None:
        self._shares, self._pairs, self._commitments, self._signatures, self._sealed = {}, {}, {}, {}, {}
        self._sum = masks.new_sum(0, self.session.bits)
