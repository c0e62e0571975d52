"""Play the server of a session of rounds: enrol the clients once, then open one sum a round in three phases."""

from __future__ import annotations

from typing import ClassVar, final

from sottovoce.core import wire
from sottovoce.core.errors import InputError, SecAggError
from sottovoce.core.wire import Buffer, Words
from sottovoce.secagg import dealing, masks, messages, shamir
from sottovoce.secagg.dealing import Dealing
from sottovoce.secagg.opening import HolderShares, Opener, PhasedServer, read_told
from sottovoce.secagg.primitives import KEY, SIGNATURE
from sottovoce.secagg.rules import (
    Keys,
    check_quorum,
    pair_sign,
    read_advertisement,
    self_mask,
    survivors_hash,
    write_keys,
    write_unmask,
)
from sottovoce.secagg.session import Session


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
        self._dealt: dict[int, Dealing] = {}
        self._signatures: dict[int, bytes] = {}
        self._told: dict[int, HolderShares] = {}  # by holder, of the survivors' seeds
        self._opener: Opener | None = None
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
        """Return, by client, who says that it did not get the share that it was to get from it; known at the end."""
        return {} if self._opener is None else self._opener.complaints

    @property
    def accused(self) -> dict[int, str]:
        """Return, by client, what it did wrong with shares; known at the end, also of a round that fails."""
        return {} if self._opener is None else self._opener.accused

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
        end = dealing.dealing_size(len(receivers), 1)
        body = messages.open_reply(self.session, "mask", client, message, end + wire.frame_size(length, bits))
        packed = wire.open_frame(body[end:], length=length, bits=bits)
        masks.add_packed(self._sum, packed, bits)
        self._dealt[place] = dealing.read_dealing(bytes(body[:end]), place, receivers, 1)
        self._masked |= {place}

    def _take_opened(self, place: int, client: int, message: Buffer) -> None:
        size = shamir.SHARE * len(self._masked) + KEY * len(self._gone) + 1
        body = messages.open_reply(self.session, "unmask", client, message, size)
        shares: dict[int, bytes | None] = {}
        pairs, start = {}, 0
        for owner in range(len(self.session.clients)):
            if owner in self._masked:
                shares[owner] = read_told(body[start : start + shamir.SHARE])
                start += shamir.SHARE
            else:
                pairs[owner] = bytes(body[start : start + KEY])
                start += KEY
        self._told[place], self._pairs[place] = HolderShares(shares, doubts=bool(body[-1])), pairs

    def _end(self, phase: str) -> dict[int, bytes]:
        session = self.session
        if phase == "mask":
            check_quorum(session, len(self._masked), "masked vectors")
            survivors = messages.write_set(session, self._masked)
            return {place: survivors + self._dealt_to(place) for place in self._masked}
        if phase == "consistency":
            check_quorum(session, len(self._signatures), "clients signed the survivors")
            return {place: self._ask_opened(place) for place in self._signatures}
        check_quorum(session, len(self._told), "clients answered the unmask request")
        pledges = {place: dealt.pledges for place, dealt in self._dealt.items()}
        self._opener = Opener(session, self._told, pledges)
        self._total = self._open_sum(self._opener)
        self._forget()
        return {}

    def _dealt_to(self, place: int) -> bytes:
        """Return what survivors sealed for a client, and a receipt of what they pledged about it."""
        peers = self._peers(place, self._masked)
        receipt = dealing.receipt({peer: self._dealt[peer].pledges[place] for peer in peers})
        return b"".join((*(self._dealt[peer].sealed[place] for peer in peers), receipt))

    def _ask_opened(self, place: int) -> bytes:
        signers = self._peers(place, self._signatures)[: self.session.degree.threshold - 1]
        signatures = {signer: self._signatures[signer] for signer in signers}
        return write_unmask(self.session, self._masked, self._gone, signatures)

    def _open_sum(self, opener: Opener) -> Words:
        if self._gone and (silent := self._masked - self._pairs.keys()):
            client = self.session.clients[min(silent)]
            raise SecAggError(
                f"round {self.session.round}: client {client} left after masking while client {self.dropped[0]} was "
                "missing, and the masks between them cannot come off; nothing was released"
            )
        seeds = {place: opener.seed(place, self._dealt[place].commitment) for place in sorted(self._masked)}
        for place, seed in seeds.items():
            masks.add_mask(self._sum, self_mask(self.session, seed, place), -1)
        for place in self._masked:
            for peer in self._gone:
                masks.add_mask(self._sum, self._pairs[place][peer], -pair_sign(place, peer))
        return masks.reduce(self._sum, self.session.bits)

    def _forget(self) -> None:
        self._told, self._pairs, self._signatures, self._dealt = {}, {}, {}, {}
        if self._opener is not None:
            self._opener.forget()
        self._sum = masks.new_sum(0, self.session.bits)
