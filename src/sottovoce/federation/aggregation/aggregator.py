"""What an aggregation protocol is: it collects the sum of a cohort's messages, and says beforehand what that costs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from numpy.typing import NDArray

from sottovoce.core.streams import NamedStreams
from sottovoce.core.wire import Traffic
from sottovoce.federation.coding import Coding, Terms
from sottovoce.federation.engine import Reply, Request
from sottovoce.privacy.plan.request import NoiseBy
from sottovoce.secagg import Policy
from sottovoce.secagg.ballots import BallotTerms
from sottovoce.secagg.session import KeyLife
from sottovoce.secagg.sizes import Outline

if TYPE_CHECKING:
    from sottovoce.federation.aggregation.ballots.count import HelperChannel


@dataclass
class Total:
    """The sum of a round's messages (None: nothing was released), and what it cost; for the operator alone."""

    values: NDArray[Any] | None = None
    clip_norm: float = 0.0  # of the next round
    senders: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    failures: dict[int, str] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)  # of the failures: clients that went away, for no fault of their own
    reason: str | None = None  # why nothing was released
    rejected: bool = False  # by the guard: the sum was released, and is not used
    phases: dict[str, tuple[int, int]] = field(default_factory=dict)  # bytes up and down of each phase
    clients: dict[int, Traffic] = field(default_factory=dict)  # bytes of each client, over all phases
    between_servers: int = 0  # bytes that several servers send each other
    wire_up: int = 0  # bytes on the server's own connection, with all that carries the messages; 0: there is none
    wire_down: int = 0

    def count(self, request: Request, reply: Reply) -> None:
        """Add what a phase sent and received."""
        up = sum(reply.sizes.values())
        down = sum(len(payload) for payload in request.payloads.values())
        self.phases[request.phase] = (up, down)
        self.bytes_up += up
        self.bytes_down += down
        for client, payload in request.payloads.items():
            before = self.clients.get(client, Traffic(0, 0))
            self.clients[client] = Traffic(before.up + reply.sizes.get(client, 0), before.down + len(payload))
        self.wire_up += reply.wire[0]
        self.wire_down += reply.wire[1]
        self.failures.update(reply.failures)
        self.failures.update(reply.left)
        self.left.update(reply.left)


Conversation = Generator[Request, Reply, Total]
Spend = Callable[[], None]


@dataclass(frozen=True)
class Costs:
    """Bytes of one client of a cohort when nobody drops out, and what they come to for all of them.

    This is what a private run may publish. The bytes that really travelled are a multiple of the cohort's size, which
    is a secret: whoever knows it knows that sampling was of that size, and the amplification that epsilon counts on is
    gone.
    """

    cohort: float  # the expected one, in the costs of a run
    phases: dict[str, Traffic]  # of a round
    enrolment: dict[str, Traffic] = field(default_factory=dict)  # once, if keys live for the session
    between: int = 0  # of a round, from one of two aggregators to the other and back

    @property
    def client(self) -> Traffic:
        """Return what a client sends and receives in a round."""
        return total_traffic(self.phases)

    @property
    def once(self) -> Traffic:
        """Return what a client sends and receives once, to enrol."""
        return total_traffic(self.enrolment)

    @property
    def round(self) -> Traffic:
        """Return the bytes of a round, for the expected cohort."""
        return self._all(self.client)

    def total(self, rounds: int) -> Traffic:
        """Return the bytes of some rounds and of the enrolment before them."""
        once, each = self._all(self.once), self.round
        return Traffic(once.up + rounds * each.up, once.down + rounds * each.down)

    def _all(self, client: Traffic) -> Traffic:
        return Traffic(round(client.up * self.cohort), round(client.down * self.cohort))


def total_traffic(phases: Mapping[str, Traffic]) -> Traffic:
    """Return the bytes of all phases."""
    return Traffic(sum(each.up for each in phases.values()), sum(each.down for each in phases.values()))


def one_message(cohort: int, size: int, down: int) -> Costs:
    """Return the costs of a round of one phase, in which each client answers the downlink with one message."""
    return Costs(cohort, {"train": Traffic(size, down)})


class Aggregator(Protocol):
    """A way to learn the sum of a cohort's messages, and what that costs; one file of this folder each."""

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Talk to the cohort until the sum of its messages is known; call `spend` before it can be opened."""
        ...

    def costs(self, cohort: int, down: int) -> Costs:
        """Return the bytes of a round of so many clients; `down` is the size of its downlink.

        Guarantee: they depend on public numbers alone, not on a draw or on anybody's data.
        """
        ...


@dataclass(frozen=True)
class Materials:
    """What an aggregator can be made of; each protocol takes what it needs."""

    coding: Coding  # how messages travel
    fewest: Callable[[int], int]  # how many of a cohort must answer
    setup: bytes = b""  # what every client is told before its first round
    keys: Mapping[int, bytes] = field(default_factory=dict)  # that clients registered before the run
    streams: NamedStreams | None = None  # the server's own randomness
    seed: int = 0  # of the experiment: simulated aggregators draw their keys from it
    deployment: bool = False  # between machines, with secrets that nobody can repeat
    covers: bool = False  # a round that fails must look like any other
    policy: Policy | None = None  # what the clients of a masked sum insist on
    ballot: BallotTerms | None = None  # the terms of a real count of ballots
    link: HelperChannel | None = None  # the server's way to the helper
    leader_signing: bytes | None = field(default=None, repr=False)  # the key by which the server signs its counts


class AggregationProtocol(ABC):
    """A protocol as the rest of the house knows it: what it asks for, who adds noise, and what it costs.

    A class of this kind stands in the file of its aggregator. `[aggregation] secure` names it.
    """

    name: ClassVar[str]
    hides_updates: ClassVar[bool] = True  # the server learns sums of a cohort, and no single message
    masks: ClassVar[bool] = False  # by pairwise masks: messages are integers, and cohorts have two clients or more
    noise_by: ClassVar[NoiseBy] = "clients"  # who adds the noise of a private run
    needs_helper: ClassVar[bool] = False  # between machines: a second aggregator at another institution
    counts_votes: ClassVar[bool] = False  # a message is one bit a value: it cannot be boosted, nor hold a measurement
    key_life: ClassVar[KeyLife] = "round"
    ideal: ClassVar[str | None] = None  # the protocol that sums the same by a trusted party; None: this one does
    label: ClassVar[str] = ""  # what a comparison calls it; of real protocols
    trust: ClassVar[str] = ""  # in whom; of real protocols

    @classmethod
    def is_real(cls) -> bool:
        """Tell whether nobody need be trusted with the messages, because the protocol hides them by cryptography."""
        return cls.ideal is not None

    @classmethod
    def variants(cls) -> tuple[type[AggregationProtocol], ...]:
        """Return the protocol for each life of its keys."""
        return (cls,)

    @classmethod
    @abstractmethod
    def make(cls, materials: Materials) -> Aggregator:
        """Return the aggregator of one stage of a run."""

    @staticmethod
    @abstractmethod
    def costs(outline: Outline, down: int) -> Costs:
        """Return the costs of a round before there is an aggregator; `down` is the size of its downlink."""


@dataclass(frozen=True)
class Fewest:
    """The number of a cohort that must answer: floor(share * n) + 1, or all of them for a share of 1.

    But for a share of 0, where nothing is hidden, they are never fewer than 2: the sum of one vector is that vector.
    Of a cohort below `least` nothing is ever opened.
    """

    share: Fraction
    least: int = 0

    def __call__(self, cohort: int) -> int:
        """Return the number for one cohort."""
        if self.share == 0:
            return min(cohort, 1)
        if 0 < cohort < self.least:
            return self.least
        needed = cohort if self.share == 1 else min(cohort, math.floor(self.share * cohort) + 1)
        return max(needed, 2) if cohort else 0
