"""Sign every message end to end and bind it to its run, round, phase, sender and receiver.

    offset  size  field
    0       4     magic     b"svm1"
    4       1     kind      hello, welcome, ask, answer, refusal, gone, bye, want, offer, part
    5       1     phase     number in PHASES; 0 where there is none
    6       16    run       drawn by the server; zeros before it is known
    22      8     round
    30      4     attempt   when the server was started, in seconds: tells its lives apart
    34      4     sender    a node's id, or SERVER
    38      4     receiver
    42      ...   payload
    end-64  64    Ed25519 signature of b"sottovoce message 1", the 42 bytes of the header and SHA-256 of the payload

All numbers are little-endian. The broker carries these bytes and is trusted with nothing else: what it alters, replays
elsewhere or hands to another receiver does not open, or does not fit what its reader waits for.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Final

from sottovoce.core.errors import InputError, WireError
from sottovoce.secagg.primitives import sign, verify

PHASES: Final = (
    "",
    "train",
    "advertise",
    "share",
    "mask",
    "consistency",
    "unmask",
    "enrol",
    "introduce",
    "countersign",
)
"""Names of phases by their number on the wire; new ones are added at the end."""

SERVER: Final = 0xFFFFFFFF
NO_RUN: Final = bytes(16)
MAGIC: Final = b"svm1"
DOMAIN: Final = b"sottovoce message 1"

_HEADER = struct.Struct("<4sBB16sQIII")
_SIGNATURE: Final = 64
OVERHEAD: Final = _HEADER.size + _SIGNATURE
"""Bytes of a message beyond its payload."""

KeyOf = Callable[[int], bytes | None]


@unique
class Kind(IntEnum):
    """What a message is for."""

    HELLO = 1  # node: I am here, and this is what I know; server: who is there?
    WELCOME = 2  # server: the run, and its set-up
    ASK = 3
    ANSWER = 4
    REFUSAL = 5  # one sentence
    GONE = 6  # the last will: signed beforehand, sent by the broker when the connection is lost
    BYE = 7
    WANT = 8  # agent: I am here, and play nothing
    OFFER = 9  # server: an experiment, and what of roster and certificate is newer
    PART = 10  # of an ask or an answer that is too long for a thin link (`parts`)


@dataclass(frozen=True)
class Envelope:
    """One message and what it is bound to."""

    kind: Kind
    sender: int
    receiver: int
    payload: bytes = b""
    run: bytes = NO_RUN
    round: int = 0
    phase: str = ""
    attempt: int = 0

    def sign(self, signing_key: bytes) -> bytes:
        """Return the message as it travels."""
        header = self._header()
        return b"".join((header, self.payload, sign(signing_key, _signed(header, self.payload))))

    def fits(self, kind: Kind, run: bytes, round_: int, phase: str, attempt: int) -> bool:
        """Tell whether the message belongs to what its reader waits for."""
        expected = (kind, run, round_, phase, attempt)
        return (self.kind, self.run, self.round, self.phase, self.attempt) == expected

    def _header(self) -> bytes:
        if self.phase not in PHASES:
            raise InputError(f"phase must be one of {', '.join(PHASES[1:])}, got {self.phase!r}")
        if len(self.run) != len(NO_RUN):
            raise InputError(f"run must have {len(NO_RUN)} bytes, got {len(self.run)}")
        number = PHASES.index(self.phase)
        try:
            return _HEADER.pack(
                MAGIC, self.kind, number, self.run, self.round, self.attempt, self.sender, self.receiver
            )
        except struct.error:
            raise InputError(
                f"round, attempt, sender and receiver must fit 8, 4, 4 and 4 bytes, got {self.round}, {self.attempt}, "
                f"{self.sender} and {self.receiver}"
            ) from None


def open_message(message: bytes, *, receiver: int, key_of: KeyOf, most: int) -> Envelope:
    """Return a message whose signature holds, or refuse it; `most` is the largest payload that is taken.

    `key_of` gives the registered key of a sender; None: nobody of that number is registered.

    Guarantee: what is returned was signed by its sender for this receiver, with these fields and this payload.
    """
    if len(message) < OVERHEAD:
        raise WireError(f"message is truncated: {len(message)} bytes, header and signature alone take {OVERHEAD}")
    if len(message) > OVERHEAD + most:
        raise WireError(f"message is oversized: {len(message)} bytes, at most {OVERHEAD + most} are taken")
    header, payload = message[: _HEADER.size], message[_HEADER.size : -_SIGNATURE]
    magic, kind, phase, run, round_, attempt, sender, addressed = _HEADER.unpack(header)
    if magic != MAGIC:
        raise WireError(f"message is foreign: it begins with {magic!r}, not {MAGIC!r}")
    if kind not in Kind.__members__.values():
        raise WireError(f"message is of kind {kind}, which this reader does not know")
    if phase >= len(PHASES):
        raise WireError(f"message is of phase {phase}, which this reader does not know")
    if addressed != receiver:
        raise WireError(f"message is for {_name(addressed)}, not for {_name(receiver)}")
    key = key_of(sender)
    if key is None:
        raise WireError(f"message comes from {_name(sender)}, which is not in the roster")
    if not verify(key, message[-_SIGNATURE:], _signed(header, payload)):
        raise WireError(f"message is not signed by {_name(sender)}, or was altered on the way")
    return Envelope(Kind(kind), sender, addressed, payload, run, round_, PHASES[phase], attempt)


def kind_of(message: bytes) -> Kind | None:
    """Return what a message says it is for, whoever sent it; None if it is no message."""
    return Kind(message[4]) if len(message) >= OVERHEAD and message[4] in Kind.__members__.values() else None


def phase_of(message: bytes) -> str:
    """Return the phase that a message says it belongs to, whoever sent it; "" where there is none."""
    return PHASES[message[5]] if len(message) >= OVERHEAD and message[5] < len(PHASES) else ""


def topic_to(federation: str, node: int | str) -> str:
    """Return the topic on which a node is spoken to."""
    return f"sottovoce/{federation}/to/{node}"


def topic_from(federation: str, node: int | str) -> str:
    """Return the topic on which a node speaks; the server listens to "+", all of them."""
    return f"sottovoce/{federation}/from/{node}"


def _signed(header: bytes, payload: bytes) -> bytes:
    return DOMAIN + header + hashlib.sha256(payload).digest()


def _name(party: int) -> str:
    return "the server" if party == SERVER else f"node {party}"
