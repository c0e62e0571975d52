"""What the server's side of a round asks of whoever carries its messages: a protocol that every engine implements.

The server's side is a generator: it yields a `Request`, the engine delivers it, hands each answer to the request as it
comes, and returns a `Reply`. `drive` is the one loop that plays such a conversation to its end.

An engine knows nothing of phases. All that it must know of a request stands in the request's fields.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.vectors import Vector
from sottovoce.federation.coding import Coding
from sottovoce.federation.sums import Fold
from sottovoce.schemes.base import Scheme, State
from sottovoce.secagg import Policy
from sottovoce.secagg.ballots import BallotTerms

Result = TypeVar("Result")
Take = Callable[[int, bytes], None]


class Sum:
    """The one accumulator of a request: single payloads are added, partial sums of an engine's workers are merged.

    An engine may do both, in any order; nothing is counted twice and nothing is lost.
    """

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self._accumulator = fold.empty()

    def take(self, _: int, payload: bytes) -> None:
        """Add one client's payload, or raise and leave the sum as it was."""
        self.fold.add(self._accumulator, payload)

    def merge(self, partial: Any) -> None:
        """Add an accumulator that a worker filled with `fold`."""
        self.fold.merge(self._accumulator, partial)

    def total(self) -> NDArray[Any]:
        """Return the sum of all that came."""
        return self.fold.total(self._accumulator)


class Request(NamedTuple):
    """One question to some clients, each with a payload of its own.

    `take` is called with each answer, once and as it comes, so that no engine need hold a cohort's vectors; an error it
    raises is that client's failure. With a `sum`, an engine may add answers up where they are made, by `sum.fold`, and
    `merge` such partial sums instead of calling `take`.
    An `opening` request is the same for all clients of the cohort, so that an engine may tell several at once. Nobody
    else hears it: who and how many are in a cohort is known to the server and to the cohort alone.
    `pinned` clients keep secrets from one request to the next: whoever acted for one of them must act for it again.
    """

    round: int
    phase: str
    payloads: dict[int, bytes]
    take: Take
    sum: Sum | None = None
    opening: bool = False
    pinned: bool = False
    waits_for_all: bool = False  # the server goes on only when all have answered: nobody leaves before
    silent: frozenset[int] = frozenset()  # of the clients: these hear the request and leave (simulated dropout)
    least: int = 0  # answers without which the round fails; an engine never goes on with fewer because of time saved
    enough: int = 0  # answers after which the others add nothing: nobody is missed then; 0: all are wanted
    malicious: frozenset[int] = frozenset()  # of the round: these behave as the engine's workers were told


class Reply(NamedTuple):
    """The size of each answer that was taken, why others were refused or not made, and who left without a word."""

    sizes: dict[int, int]
    failures: dict[int, str]
    left: dict[int, str] = {}  # noqa: RUF012 - a tuple's default, never changed
    wire: tuple[int, int] = (0, 0)  # bytes up and down on the server's connection since the last reply, if it has one


@dataclass(frozen=True)
class Enrolment:
    """What every client is told once, before its first round.

    All but the set-up message stands for what a client of a real federation knows from its own configuration.
    """

    scheme: Scheme  # not bound: clients bind it by the set-up
    setup: bytes
    coding: Coding
    private: bool = False  # the downlink ends with the round's terms
    policy: Policy | None = None  # what the clients of a secure run insist on
    ballot: BallotTerms | None = None  # the terms of a count of ballots
    memory: State = field(default_factory=dict)  # what clients had kept, when a run resumes
    measures: bool = False  # of measurements, which go on beside the rounds with numbers of their own


class Engine(Protocol):
    """A way to reach the clients; used in a `with` block."""

    def enrol(self, enrolment: Enrolment) -> None:
        """Send every client the set-up message."""
        ...

    def send(self, request: Request) -> Reply:
        """Deliver a request to its clients, hand each answer to it, and tell what came and what did not."""
        ...

    def close(self) -> None:
        """Let go of workers and connections."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Evaluator(Protocol):
    """Something that holds data and can compute on it, as a simulation can; a real server without data has none."""

    def scores(self, params: Vector, split: str) -> NDArray[np.float32]:
        """Return the network's scores of all records of a split."""
        ...

    def gradient(self, params: Vector, split: str, records: NDArray[np.int64]) -> Vector:
        """Return the gradient on some records of a split."""
        ...

    def public_norms(
        self, scheme: Scheme, params: Vector, shards: list[NDArray[np.int64]], seeds: list[int]
    ) -> list[float]:
        """Return the norms of the messages that clients with these public records would send.

        Every shard and every round seed is used: number i pairs shard and seed i, and the shorter list starts again.
        """
        ...

    def client_norms(self, scheme: Scheme, params: Vector, clients: list[int], seeds: list[int]) -> list[float]:
        """Return the norms of the messages that these clients would send; not private. Pairs as in `public_norms`."""
        ...

    def public_message(
        self, scheme: Scheme, params: Vector, seed: int, records: NDArray[np.int64], round_: int
    ) -> Vector:
        """Return the message that a client with these public records would send in a round, trained from `params`."""
        ...

    def client_accuracies(self, params: Vector, clients: list[int], personal_steps: int = 0) -> list[float]:
        """Return each client's accuracy on the records that it kept out; NaN for one that kept none out. Not private.

        With `personal_steps`, each client first trains the model so many steps further on its other records.
        """
        ...


def drive(engine: Engine, conversation: Generator[Request, Reply, Result]) -> Result:
    """Play the server's side of a round to its end."""
    try:
        request = next(conversation)
        while True:
            request = conversation.send(engine.send(request))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
