"""Sum by secure aggregation with keys of a session: an enrolment in the first round, then three phases a round.

enrol  introduce  mask  consistency  unmask      the first two in the first round only
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import final

from typing_extensions import override

from sottovoce.core.errors import SecAggError
from sottovoce.core.wire import Words
from sottovoce.federation.aggregation.aggregator import (
    AggregationProtocol,
    Conversation,
    Costs,
    Materials,
    Spend,
    Total,
)
from sottovoce.federation.aggregation.secure import (
    Masking,
    RoundMasking,
    Secure,
    announce,
    downlink_hash,
    make_secure,
    no_phase,
    once,
)
from sottovoce.federation.coding import Terms
from sottovoce.federation.engine import Reply, Request
from sottovoce.secagg import Entropy, Registrar, RoundClient, RoundMark, Session, StandingClient, StandingServer
from sottovoce.secagg.sizes import Outline, announcement_size, enrolment_sizes, round_sizes


def standing_costs(outline: Outline, down: int) -> Costs:
    """Return the costs of a round with keys of a session, on the complete graph, and of the enrolment before the first.

    The terms of the session travel once, with the enrolment.
    """
    clients = outline.cohort
    complete = replace(outline, key_life="session", neighbours=clients - 1)
    return Costs(clients, round_sizes(complete, down), enrolment_sizes(complete, announcement_size(clients)))


@dataclass
class Standing:
    """The sum with keys of a session: everyone enrols in the first round, and anew when a run is resumed."""

    secure: Secure
    registrar: Registrar | None = None

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Talk to those who enrolled; too few at any phase end the round with nothing released."""
        total = Total(clip_norm=terms.clip_norm)
        spend = once(spend)
        try:
            if self.registrar is None:
                self.registrar = yield from self._enrol(round_, cohort, total)
            session = self.registrar.round(round_, downlink_hash(down))
            absent = set(cohort).difference(session.clients)
            total.failures |= dict.fromkeys(absent, "is not enrolled in this session")
            opening = dict.fromkeys(session.clients, down)
            yield from self.secure.add_up(StandingServer(session), opening, terms, spend, total)
        except SecAggError as error:
            self.secure.give_up(str(error), round_, terms, spend, total)
        return total

    def costs(self, cohort: int, down: int) -> Costs:
        """Return the bytes of a round and of the enrolment: all phases, when nobody drops out."""
        return standing_costs(self.secure.policy.outline(cohort), down)

    def _enrol(self, round_: int, cohort: list[int], total: Total) -> Generator[Request, Reply, Registrar]:
        # The session begins before its first round: chains turn once a round, and the first turn hides what was agreed.
        session = self.secure.session(round_ - 1, cohort)
        registrar = Registrar(session)
        payloads = dict.fromkeys(cohort, announce(session, b""))
        accept = partial(registrar.accept, "advertise")
        enrol = Request(round_, "enrol", payloads, take=accept, opening=True, pinned=True, waits_for_all=True)
        total.count(enrol, (yield enrol))
        keys = registrar.close("advertise")
        introduce = Request(
            round_, "introduce", keys, take=lambda client, payload: None, pinned=True, waits_for_all=True
        )
        total.count(introduce, (yield introduce))
        return registrar


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
        raise no_phase(self.machine.client, phase)


def begin_masking(session: Session, client: int, signing_key: bytes, entropy: Entropy, mark: RoundMark) -> Masking:
    """Return a client's side of a session; its secrets come from `entropy`, which is `os.urandom` on a device."""
    if session.key_life == "round":
        return RoundMasking(RoundClient(session, client, signing_key, entropy, mark))
    return StandingMasking(StandingClient(session, client, signing_key, entropy, mark))


@final
class StandingSum(AggregationProtocol):
    """Secure aggregation by pairwise masks, with keys that live for a session of rounds."""

    name = "real"
    masks = True
    ideal = "ideal"
    key_life = "session"
    label = "session keys"
    trust = "the same, of clients who are all there in every round"
    costs = staticmethod(standing_costs)

    @classmethod
    @override
    def make(cls, materials: Materials) -> Standing:
        return Standing(make_secure(materials))
