"""Where clients and data live, on behalf of an engine."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import RunError, SottovoceError
from sottovoce.core.streams import Purpose, Seeds, Streams
from sottovoce.core.vectors import Vector
from sottovoce.data import Partition, balance
from sottovoce.data.compact import chosen_rows
from sottovoce.data.machine_parts import Held
from sottovoce.federation.aggregation.secure import SimulatedKeys
from sottovoce.federation.client import Knowledge, read_setup, split_setup, tell_divergence
from sottovoce.federation.engine import Enrolment
from sottovoce.federation.engines.shared_memory import Arrays
from sottovoce.federation.growth import Growth
from sottovoce.federation.host import Host, Malice
from sottovoce.federation.stages.evaluation import EVALUATION
from sottovoce.federation.stages.local_evaluation import (
    LocalSplit,
    local_accuracies,
    personal_accuracies,
    split_persons,
    split_places,
)
from sottovoce.federation.stages.statistics import trainer_for
from sottovoce.federation.sums import Fold
from sottovoce.federation.wrappers.behaviour import Behaviour
from sottovoce.models import LocalTraining, Model, Shard, Trainer, make_trainer
from sottovoce.schemes.base import Scheme

Outcome = tuple[dict[int, int], dict[int, bytes], dict[int, str]]  # sizes, payloads, failures


@dataclass(frozen=True)
class Blueprint:
    """What a worker needs to act for clients; all of it public but the records, which are shared memory."""

    network: Model
    training: LocalTraining
    trainer: Literal["auto", "torch", "fast"]
    device: str
    partition: Partition
    balanced: str | None  # how clients balance their classes by choosing records; None: they do not
    seed: int
    mean_size: float | None
    held_out: float = 0.0  # the share of its records that each client keeps out of its training
    behaviour: Behaviour | None = None  # of malicious clients; None: there are none
    pool: tuple[int, ...] = ()  # whose records malicious clients put together; empty: those of the round's own
    hoard: Partition | None = None  # the records of malicious clients; None: those that they have as honest ones
    growth: Growth | None = None  # records come round by round; None: all are there from the start
    leave_within: float = 0.0  # clients leave for good when no weight moves by this much; 0: never


class _Refined:
    """Features of records as a set-up refines them: each is computed when it is needed first."""

    def __init__(self, x: NDArray[Any], network: Model) -> None:
        self._x, self._network = x, network
        self._made = np.empty(x.shape, np.float32)
        self._done = np.zeros(len(x), np.bool_)

    def rows(self, records: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return some of them."""
        missing = np.unique(records[~self._done[records]])
        if len(missing):
            self._made[missing] = self._network.refined(self._x[missing])
            self._done[missing] = True
        return self._made[records]


class Worker:
    """The end of an engine that holds clients and data; every public method is a call of the engine."""

    def __init__(self, blueprint: Blueprint, arrays: Arrays, held: Held | None = None) -> None:
        self._plan = blueprint
        self._arrays = arrays
        self._held = held  # the parts of the train records that are on this machine; None: the arrays have all
        self._seeds = Seeds(blueprint.seed)
        self._trainer = self._trainer_for(blueprint.training)
        self._network = blueprint.network  # with the numbers of the last set-up
        self._refines = False  # features were made before its numbers were known
        self._refined: dict[int, _Refined] = {}  # by the array of features that they are made of
        self._host: Host | None = None
        self._measuring: Host | None = None  # the same clients when they measure, with sessions of their own
        self._sums: dict[int, Any] = {}
        self._round = 0
        tell_divergence.cache_clear()  # several runs may be played in one process

    def enrol(self, told: Enrolment) -> None:
        """Take in the set-up message."""
        self._learn(told.setup)
        knowledge = Knowledge(
            scheme=read_setup(told.scheme, self._network, told.setup),
            coding=told.coding,
            keys=SimulatedKeys(self._seeds, self._plan.partition.clients),
            private=told.private,
            mean_size=None if told.measures else self._plan.mean_size,
            policy=None if told.policy is None else told.policy.bind(told.setup),
            ballot=told.ballot,
        )
        trainer = trainer_for(knowledge.scheme, self._plan.network.trained, self._trainer)
        if told.measures:
            aside = partial(self._records, held_out=True)
            self._measuring = Host(knowledge, trainer, aside, self._seeds, told.memory)
            return
        kept, leaving = told.memory, self._plan.leave_within
        self._host = Host(knowledge, trainer, self._shard, self._seeds, kept, self._malice(), leaving)

    def hear(self, round_: int, phase: str, clients: list[int], payload: bytes) -> None:
        """Take in a round's opening, for the clients that are asked."""
        self._round = round_
        self._host_of(round_).hear(round_, phase, clients, payload)
        self._sums.clear()

    def step(
        self,
        round_: int,
        phase: str,
        requests: dict[int, bytes],
        fold: Fold | None,
        malicious: frozenset[int] = frozenset(),
    ) -> Generator[Outcome, None, Outcome]:
        """Answer for clients; add payloads to this worker's sum if there is a fold, else yield them one by one."""
        sizes: dict[int, int] = {}
        failures: dict[int, str] = {}
        for client, answer in self._host_of(round_).step(round_, phase, requests, malicious):
            if answer.reason is not None:
                failures[client] = answer.reason
            elif fold is None:
                yield {client: len(answer.payload)}, {client: answer.payload}, {}
            else:
                try:
                    self._add(round_, fold, answer.payload)
                    sizes[client] = len(answer.payload)
                except SottovoceError as error:
                    failures[client] = str(error)
        return sizes, {}, failures

    def collect(self, round_: int) -> Any:
        """Hand over this worker's sum, or None if it trained nobody."""
        return self._sums.pop(round_, None)

    def scores(self, params: Vector, split: str, start: int, stop: int) -> NDArray[np.float32]:
        """Return the network's scores of some records."""
        x = self._arrays[f"x_{split}"]
        return self._trainer.scores(params, self._features(x, np.arange(start, min(stop, len(x)))))

    def gradient(self, params: Vector, split: str, records: NDArray[np.int64]) -> Vector:
        """Return the gradient on some records."""
        return self._trainer.gradient(
            params,
            Shard(self._features(self._arrays[f"x_{split}"], records), self._arrays[f"y_{split}"][records]),
        )

    def public_norms(
        self, scheme: Scheme, params: Vector, seed: int, shards: dict[int, NDArray[np.int64]]
    ) -> list[float]:
        """Return the norms of the messages that clients with these public records would send; each has a number."""
        x, y = self._arrays["x_public"], self._arrays["y_public"]
        owned = [Shard(x[records], y[records]) for records in shards.values()]
        return self._norms(scheme, params, seed, owned, [self._seeds.server.get(Purpose.PUBLIC, 1, n) for n in shards])

    def client_norms(self, scheme: Scheme, params: Vector, seed: int, clients: dict[int, int]) -> list[float]:
        """Return the norms of the messages that these clients would send, which is not private."""
        owned = [self._shard(client) for client in clients.values()]
        rngs = [self._seeds.client(client).get(Purpose.BATCH, 0, number) for number, client in clients.items()]
        return self._norms(scheme, params, seed, owned, rngs)

    def public_message(
        self, scheme: Scheme, params: Vector, seed: int, records: NDArray[np.int64], round_: int
    ) -> Vector:
        """Return the message that a client with these public records would send in a round."""
        shard = Shard(self._arrays["x_public"][records], self._arrays["y_public"][records])
        return next(self._messages(scheme, params, seed, [shard], [self._seeds.server.get(Purpose.PUBLIC, 4, round_)]))

    def client_accuracies(self, params: Vector, clients: list[int], personal_steps: int) -> list[float]:
        """Return each client's accuracy on what it kept out, after so many steps on what it trains with; not private.

        NaN stands for a client that kept nothing out.
        """
        plan, task = self._plan, self._plan.network.task
        held_out = [self._records(client, held_out=True) for client in clients]
        if not personal_steps:
            return list(map(float, local_accuracies(self._trainer, params, held_out, task=task)))
        training = replace(plan.training, local_steps=personal_steps)
        trainer = self._trainer_for(training)
        splits = [LocalSplit(self._shard(client), kept) for client, kept in zip(clients, held_out, strict=True)]
        rngs = [self._seeds.client(client).get(Purpose.BATCH) for client in clients]
        return list(map(float, personal_accuracies(trainer, params, splits, rngs, task=task).after))

    def _norms(
        self, scheme: Scheme, params: Vector, seed: int, owned: list[Shard], rngs: list[np.random.Generator]
    ) -> list[float]:
        messages = self._messages(scheme, params, seed, owned, rngs)
        return [float(np.linalg.norm(message.astype(np.float64))) for message in messages]

    def _messages(
        self, scheme: Scheme, params: Vector, seed: int, owned: list[Shard], rngs: list[np.random.Generator]
    ) -> Iterator[Vector]:
        trainer = trainer_for(scheme, self._plan.network.trained, self._trainer)
        updates = trainer.updates(params, owned, rngs, scheme.trainable(seed))
        return (scheme.encode(update, seed, rng) for update, rng in zip(updates, rngs, strict=True))

    def _add(self, round_: int, fold: Fold, payload: bytes) -> None:
        if round_ not in self._sums:
            self._sums[round_] = fold.empty()
        fold.add(self._sums[round_], payload)

    def _shard(self, client: int) -> Shard:
        """Return what a client trains with."""
        return self._records(client)

    def _learn(self, setup: bytes) -> None:
        """Take in the numbers by which a set-up refines features that were made before it."""
        if (before := self._plan.network.whitening) is None:
            return
        seed, payload = split_setup(setup)
        self._network = self._plan.network.told(payload, Streams(seed).get(Purpose.INIT))
        whitening = self._network.whitening
        self._refines = whitening is not None and whitening.numbers is not None and before.numbers is None
        self._refined.clear()

    def _features(self, x: NDArray[Any], records: NDArray[np.int64]) -> Any:
        """Return what trains reads of some records whose features were made before the set-up."""
        if not self._refines:
            return chosen_rows(x, records)
        if id(x) not in self._refined:
            self._refined[id(x)] = _Refined(x, self._network)
        return self._refined[id(x)].rows(records)

    def _malice(self) -> Malice | None:
        """Return how malicious clients act, if there are any."""
        plan = self._plan
        if plan.behaviour is None:
            return None
        climbing = replace(plan.training, ascend=True, prox=0.0)
        return Malice(
            plan.behaviour,
            self._hoarded,
            lambda: self._trainer_for(climbing),
            plan.pool,
        )

    def _trainer_for(self, training: LocalTraining) -> Trainer:
        """Return a trainer of what trains: a front, if the network has one, has read the records here already."""
        plan = self._plan
        return make_trainer(plan.network.trained, training, plan.trainer, plan.device)

    def _hoarded(self, client: int) -> Shard:
        """Return what a client has when it is malicious: its records, as it labels them, and what it was given."""
        if self._plan.hoard is None:
            return self._records(client)
        records = self._plan.hoard.records(client)
        return Shard(self._arrays["x_train"][records], self._arrays["y_malicious"][records])

    def _records(self, client: int, *, held_out: bool = False) -> Shard:
        """Return a client's own records: those to train with, or those that it keeps out."""
        streams, (x, y, records) = self._seeds.client(client), self._own(client)
        if self._plan.balanced is not None:
            records = records[balance(y[records], streams.get(Purpose.SETUP), self._plan.balanced)]
        persons = self._arrays.get("persons_train")
        if self._plan.held_out and persons is not None:
            train, aside = split_persons(persons[records], self._plan.held_out, streams.get(Purpose.SPLIT))
            records = records[aside if held_out else train]
        elif self._plan.held_out:
            train, aside = split_places(len(records), self._plan.held_out, streams.get(Purpose.SPLIT))
            records = records[aside if held_out else train]
        if self._plan.growth is not None and not held_out:
            records = self._plan.growth.of(records, self._round)
        return Shard(self._features(x, records), y[records], persons=None if persons is None else persons[records])

    def _own(self, client: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
        """Return the train records that are here, their labels, and which of them are a client's."""
        if self._held is None:
            return self._arrays["x_train"], self._arrays["y_train"], self._plan.partition.records(client)
        part = self._held.of_client(client)
        return part.x, part.y, part.records(client)

    def _host_of(self, round_: int) -> Host:
        return self.host if round_ < EVALUATION or self._measuring is None else self._measuring

    @property
    def host(self) -> Host:
        """Return the clients that this worker acts for."""
        if self._host is None:
            raise RunError("clients were asked to act before they were set up")
        return self._host
