"""Sum by secure aggregation: the server sees masked vectors, and of the cohort nothing but the total.

Here keys live for a round, in five phases; in `standing` they live for a session:

    advertise  share  mask  consistency  unmask

A round's first request carries the downlink too, so that nobody is asked once more than the protocol needs. The hash
of it is part of what both sides sign and derive their masks from: clients that were sent different models do not sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final, Protocol, final

from typing_extensions import override

from sottovoce.core.errors import InputError, SecAggError
from sottovoce.core.streams import NamedStreams, Purpose, Seeds
from sottovoce.core.wire import Words
from sottovoce.federation.aggregation.aggregator import (
    AggregationProtocol,
    Conversation,
    Costs,
    Materials,
    Spend,
    Total,
)
from sottovoce.federation.coding import Coding, Terms
from sottovoce.federation.engine import Reply, Request
from sottovoce.secagg import (
    Policy,
    RoundClient,
    RoundServer,
    Session,
    StandingServer,
    verifying_key,
)
from sottovoce.secagg.sizes import Outline, announcement_size, round_sizes

ANNOUNCING: Final = ("advertise", "enrol")  # phases whose request begins with a session's terms


@dataclass(frozen=True, eq=False)
class SimulatedKeys(Mapping[int, bytes]):
    """The public keys that simulated clients registered before the run: they follow from the seed."""

    seeds: Seeds
    clients: int

    def __getitem__(self, client: int) -> bytes:
        if not 0 <= client < self.clients:
            raise KeyError(client)
        return _public_key(self.seeds, client)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.clients))

    def __len__(self) -> int:
        return self.clients


def secure_costs(outline: Outline, down: int) -> Costs:
    """Return the costs of a round with fresh keys: its first request carries the terms of the session."""
    fresh = replace(outline, key_life="round")
    return Costs(outline.cohort, round_sizes(fresh, down + announcement_size(outline.cohort)))


@dataclass(frozen=True)
class Secure:
    """The sum by one secure-aggregation session a round, with fresh keys."""

    coding: Coding  # of integers, which can be masked
    policy: Policy  # the server's own copy; every client has one too
    keys: Mapping[int, bytes]  # that clients registered before the run: a simulation's SimulatedKeys, or the roster's
    streams: NamedStreams  # the server's own, for session ids
    covers: bool = False  # a round without quorum looks like any other: its sum is the server's own noise

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Talk to the cohort through every phase; too few at any of them end the round with nothing released."""
        total = Total(clip_norm=terms.clip_norm)
        spend = once(spend)
        try:
            if cohort:
                session = self.session(round_, cohort, downlink_hash(down))
                opening = dict.fromkeys(cohort, announce(session, down))
                yield from self.add_up(RoundServer(session), opening, terms, spend, total)
            else:
                self.open_nothing(round_, terms, spend, total)
        except SecAggError as error:
            self.give_up(str(error), round_, terms, spend, total)
        return total

    def costs(self, cohort: int, down: int) -> Costs:
        """Return the bytes of a round: all phases, when nobody drops out."""
        return secure_costs(self.policy.outline(cohort), down)

    def give_up(self, reason: str, round_: int, terms: Terms, spend: Spend, total: Total) -> None:
        """End a round without quorum; where that must not be seen, noise alone is opened and charged.

        Guarantee: with `covers` a sum is released that has the law of any other round in which no client had anything
        to say, so that nobody learns from a failed round whom or how many it had drawn.
        """
        total.reason = reason
        if self.covers:
            self.open_nothing(round_, terms._replace(cohort=0), spend, total)

    def session(self, round_: int, cohort: list[int], downlink: bytes = b"") -> Session:
        """Return the terms of a session; a cohort that is too small for them ends the round, not the run."""
        try:
            return self.policy.session(
                session_id=self.streams.key(Purpose.MASK, round_, size=16),
                round_=round_,
                clients=cohort,
                keys=self.keys,
                downlink=downlink,
            )
        except InputError as error:
            raise SecAggError(f"round {round_}: {error}; nothing was released") from error

    def add_up(
        self,
        server: RoundServer | StandingServer,
        payloads: dict[int, bytes],
        terms: Terms,
        spend: Spend,
        total: Total,
    ) -> Generator[Request, Reply, None]:
        """Take a server through its phases, from its first requests to the open sum."""
        round_ = server.session.round
        terms = terms._replace(cohort=len(server.session.clients))  # as every client counts them
        try:
            for phase in server.phases:
                if phase == "unmask":
                    spend()  # from here on the sum can be opened
                first = phase == server.phases[0]
                take = partial(server.accept, phase)
                request = Request(
                    round_,
                    phase,
                    payloads,
                    take=take,
                    opening=first,
                    pinned=True,
                    least=server.session.threshold,
                    enough=enough_to_open(server.session, phase),
                )
                total.count(request, (yield request))
                payloads = server.close(phase)
        finally:
            total.senders = len(server.survivors)
            total.failures |= server.accused
        total.values, total.clip_norm = self.coding.open(server.total(), terms, total.senders, round_)

    def open_nothing(self, round_: int, terms: Terms, spend: Spend, total: Total) -> None:
        """Open the sum of nobody: a private run publishes its noise, or silence would tell that nobody was drawn."""
        spend()
        fold = self.coding.fold
        total.values, total.clip_norm = self.coding.open(fold.total(fold.empty()), terms, 0, round_)


def enough_to_open(session: Session, phase: str) -> int:
    """Return how many answers to a phase open a sum whatever the others do; 0: each answer may count.

    Vectors are added by then, and threshold answers open them, with one more for each client that may lie about its
    shares. On a sparse graph it depends on who answers, and keys of a session live on.
    """
    complete = session.degree.neighbours == len(session.clients) - 1
    if phase not in ("consistency", "unmask") or session.key_life != "round" or not complete:
        return 0
    return session.threshold + max(1, session.colluders)


def once(spend: Spend) -> Spend:
    """Return a charge that is made once: a round that fails after it was charged is not charged again."""
    charged = False

    def charge() -> None:
        nonlocal charged
        if not charged:
            spend()
            charged = True

    return charge


def announce(session: Session, down: bytes) -> bytes:
    """Return a session's first request: its terms, and what to train from meanwhile if its first round is at hand."""
    packed = session.pack()
    return len(packed).to_bytes(4, "little") + packed + down


def downlink_hash(down: bytes) -> bytes:
    """Return what stands in a session's context for the model and the terms that a client was sent."""
    return hashlib.sha256(b"sottovoce downlink" + down).digest()


def read_announcement(payload: bytes, keys: Mapping[int, bytes], policy: Policy) -> tuple[Session, bytes]:
    """Return the session and the downlink of a first request, or refuse terms that are not the policy's.

    Keys are those that were registered, and the downlink's hash from what came, not from what the server says of them.
    """
    size = int.from_bytes(payload[:4], "little")
    packed, down = payload[4 : 4 + size], payload[4 + size :]
    if len(packed) != size:
        raise SecAggError(f"announcement is truncated: {len(payload)} bytes, its session alone takes {size}")
    downlink = downlink_hash(down) if policy.key_life == "round" else b""  # an enrolment has no downlink yet
    return policy.accept(packed, keys, downlink), down


def signing_key(streams: NamedStreams) -> bytes:
    """Return a simulated client's registered signing key."""
    return streams.key(Purpose.SETUP, 1)


@lru_cache(maxsize=1 << 16)
def _public_key(seeds: Seeds, client: int) -> bytes:
    return verifying_key(signing_key(seeds.client(client)))


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
        raise no_phase(self.machine.client, phase)


def no_phase(client: int, phase: str) -> SecAggError:
    """Return the refusal of a phase that a session does not have."""
    return SecAggError(f"client {client}: there is no phase {phase} in this session")


def make_secure(materials: Materials) -> Secure:
    """Return the masked sum of one stage, bound to its set-up."""
    if materials.policy is None or materials.streams is None:
        raise SecAggError("a masked sum needs a policy and the server's randomness")
    policy = materials.policy.bind(materials.setup)
    return Secure(materials.coding, policy, materials.keys, materials.streams, materials.covers)


@final
class MaskedSum(AggregationProtocol):
    """Secure aggregation by pairwise masks, with fresh keys in every round."""

    name = "real"
    masks = True
    ideal = "ideal"
    label = "noise by clients"
    trust = "one server, and enough clients that do not help it and add their noise; nobody checks what is under a mask"
    costs = staticmethod(secure_costs)

    @classmethod
    @override
    def make(cls, materials: Materials) -> Secure:
        return make_secure(materials)

    @classmethod
    def variants(cls) -> tuple[type[AggregationProtocol], ...]:
        """Return the protocol with keys of a round, and with keys of a session."""
        from sottovoce.federation.aggregation.standing import StandingSum

        return (cls, StandingSum)
