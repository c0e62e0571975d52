"""One client's side of a secure sum, behind one protocol: keys of a round and keys of a session look the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sottovoce.core.errors import SecAggError
from sottovoce.core.wire import Words
from sottovoce.secagg import Entropy, RoundClient, RoundMark, Session, StandingClient

__all__ = ["Masking", "RoundMasking", "StandingMasking", "begin_masking"]


class Masking(Protocol):
    """The state machine of one client in secure sums; plain data that can be pickled between two phases."""

    @property
    def cohort(self) -> int:
        """Return how many clients take part, as this client counts them."""
        ...

    def advertise(self) -> bytes:
        """Return the answer to the announcement of the session."""
        ...

    def next_round(self) -> None:
        """Forget the secrets of a round that is over or was given up."""
        ...

    def mask(self, round_: int, payload: bytes, words: Words, downlink: bytes) -> bytes:
        """Return the words under all masks; `downlink` is the hash of what the client was sent to train from."""
        ...

    def go_on(self, phase: str, payload: bytes) -> bytes:
        """Return the answer to a phase that needs no words."""
        ...


@dataclass(frozen=True)
class RoundMasking:
    """Masking with keys that live for one round: its model came with the announcement."""

    machine: RoundClient

    @property
    def cohort(self) -> int:
        """Return how many clients take part."""
        return self.machine.cohort

    def advertise(self) -> bytes:
        """Return the signed public keys."""
        return self.machine.advertise()

    def next_round(self) -> None:
        """Do nothing: the next round begins with other keys."""

    def mask(self, round_: int, payload: bytes, words: Words, downlink: bytes) -> bytes:
        """Return the words under all masks; the session's context holds round and downlink already."""
        return self.machine.mask(payload, words)

    def go_on(self, phase: str, payload: bytes) -> bytes:
        """Return the answer to a phase."""
        if phase == "share":
            return self.machine.share(payload)
        if phase == "consistency":
            return self.machine.consistency(payload)
        if phase == "unmask":
            return self.machine.unmask(payload)
        raise _no_phase(self.machine.client, phase)


@dataclass(frozen=True)
class StandingMasking:
    """Masking with keys that live for a session of rounds."""

    machine: StandingClient

    @property
    def cohort(self) -> int:
        """Return how many clients enrolled."""
        return self.machine.cohort

    def advertise(self) -> bytes:
        """Return the signed public keys of the session."""
        return self.machine.advertise()

    def next_round(self) -> None:
        """Forget the running round."""
        self.machine.end_round()

    def mask(self, round_: int, payload: bytes, words: Words, downlink: bytes) -> bytes:
        """Return the words under all masks of a round; its request is the downlink itself."""
        return self.machine.mask(round_, words, downlink)

    def go_on(self, phase: str, payload: bytes) -> bytes:
        """Return the answer to a phase."""
        if phase == "introduce":
            self.machine.introduce(payload)
            return b""
        if phase == "consistency":
            return self.machine.consistency(payload)
        if phase == "unmask":
            return self.machine.unmask(payload)
        raise _no_phase(self.machine.client, phase)


def begin_masking(session: Session, client: int, signing_key: bytes, entropy: Entropy, mark: RoundMark) -> Masking:
    """Return a client's side of a session; its secrets come from `entropy`, which is `os.urandom` on a device."""
    if session.key_life == "round":
        return RoundMasking(RoundClient(session, client, signing_key, entropy, mark))
    return StandingMasking(StandingClient(session, client, signing_key, entropy, mark))


def _no_phase(client: int, phase: str) -> SecAggError:
    return SecAggError(f"client {client}: there is no phase {phase} in this session")
