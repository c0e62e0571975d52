"""Many clients in one process: openings are read once, training is batched, one update is held at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from typing import Any, Final, NamedTuple

import numpy as np

from sottovoce.core.errors import RunError, SottovoceError
from sottovoce.core.streams import Owners
from sottovoce.core.vectors import Vector
from sottovoce.federation.client import UPDATE_PHASES, Client, ClientState, Knowledge
from sottovoce.federation.growth import CONVERGED, converged
from sottovoce.federation.wrappers.behaviour import Behaviour, Scene
from sottovoce.models import Shard, Trainer
from sottovoce.schemes.base import State, Task

_TOGETHER: Final = 64  # clients whose updates are sent at a time
_ROOM: Final = 2**22  # bytes of such updates


class Answer(NamedTuple):
    """A client's payload, or the reason why there is none."""

    payload: bytes
    reason: str | None = None


class _Pupil(NamedTuple):
    """A client that is about to train."""

    client: Client
    payload: bytes
    task: Task


class _Batches(Sequence[np.random.Generator]):
    """The generators of some clients' training, each made when it is asked for: most clients draw nothing."""

    def __init__(self, pupils: list[_Pupil], round_: int) -> None:
        self._pupils, self._round = pupils, round_

    def __len__(self) -> int:
        return len(self._pupils)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return _Batches(self._pupils[place], self._round)
        return self._pupils[place].client.batches(self._round)


class Malice(NamedTuple):
    """What a process needs to act for malicious clients: how they behave, their records, and who climbs the loss."""

    behaviour: Behaviour
    records: Callable[[int], Shard]
    climber: Callable[[], Trainer]
    pool: tuple[int, ...] = ()  # whose records they put together in every round; empty: those of the round's own


class Host:
    """The clients that a process acts for.

    States are kept while a round lasts; secrets and marks of secure sums also from round to round. What a scheme's
    clients remember is the same for all of them, and so kept once.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        trainer: Trainer,
        shard: Callable[[int], Shard],
        seeds: Owners,
        memory: State,
        malice: Malice | None = None,
        leave_within: float = 0.0,
    ) -> None:
        self.knowledge = knowledge
        self._trainer = trainer
        self._shard = shard
        self._seeds = seeds
        self._memory = memory
        self.malice = malice
        self._leave_within = leave_within  # clients whose weights all move by less leave for good; 0: never
        self._asked: frozenset[int] = frozenset()  # who heard the round's opening
        self._refusal: SottovoceError | None = None  # why the last opening was refused
        self._kept_scene: Scene | None = None
        self.states: dict[int, ClientState] = {}

    def client(self, number: int) -> Client:
        """Return one of the clients."""
        return Client(
            self.knowledge,
            number,
            self._seeds.client(number),
            lambda: self._shard(number),
            self._trainer,
        )

    def hear(self, round_: int, phase: str, clients: Iterable[int], payload: bytes) -> None:
        """Take in an opening, on behalf of the clients that are asked; nobody else can act on it."""
        self._asked = frozenset(clients)
        self._refusal = None
        self._kept_scene = None
        if not self.knowledge.opens(phase):
            return
        try:
            heard = self.knowledge.read(round_, phase, payload, self._memory)
        except SottovoceError as error:
            self._refusal = error
            return
        if heard.task is not None:
            self._memory = heard.task.memory
        # Who is not asked forgets the last round too, and holds on to no model.
        keeps = self.knowledge.policy is not None or self.knowledge.ballot is not None
        known = self.states.items() if keeps else ()
        self.states = {client: replace(state.hear(heard), heard=None) for client, state in known}
        for client in self._asked:
            self.states[client] = self.states.get(client, ClientState()).hear(heard)

    def step(
        self, round_: int, phase: str, requests: Mapping[int, bytes], malicious: frozenset[int] = frozenset()
    ) -> Iterator[tuple[int, Answer]]:
        """Answer a phase for some clients; yields one at a time, to bound memory.

        Those of the round that are `malicious` train and send as they were told to (`behaviour`).
        """
        pupils: list[_Pupil] = []
        for number, payload in requests.items():
            client, state = self.client(number), self.states.get(number, ClientState())
            try:
                self._check(number, phase)
                if phase in UPDATE_PHASES:
                    pupils.append(_Pupil(client, payload, client.task(round_, phase, state)))
                    continue
            except SottovoceError as error:
                yield number, Answer(b"", str(error))
                continue
            yield number, self._attempt(number, client.go_on, phase, payload, state)
        pupils.sort(key=lambda pupil: pupil.client.number in malicious)
        for _, together in groupby(pupils, lambda pupil: (id(pupil.task), pupil.client.number in malicious)):
            some = list(together)
            if self.malice is not None and some[0].client.number in malicious:
                yield from self._mislead(self.malice, round_, phase, some, malicious)
            else:
                yield from self._train(round_, phase, some)

    def _train(self, round_: int, phase: str, pupils: list[_Pupil]) -> Iterator[tuple[int, Answer]]:
        """Train clients with the same task together, and send each update as soon as it is there."""
        if self.knowledge.site_coding is not None:
            for pupil in pupils:
                number = pupil.client.number
                act, records = pupil.client.send_units, pupil.client.shard()
                yield number, self._attempt(number, act, phase, pupil.payload, records, self.states[number])
            return
        task, trainer = pupils[0].task, pupils[0].client.trainer
        shards = [pupil.client.shard() for pupil in pupils]
        rngs = _Batches(pupils, round_)
        updates = trainer.updates(task.params, shards, rngs, self.knowledge.scheme.trainable(task.seed))
        if phase == "train" and not self._leave_within and self.knowledge.sends_together:
            yield from self._send_together(round_, pupils, shards, updates)
            return
        for pupil, shard in zip(pupils, shards, strict=True):
            number = pupil.client.number
            state = self.states[number]
            if self._leave_within:
                update = next(updates)
                if converged(update, self._leave_within):
                    yield number, Answer(b"", CONVERGED)
                else:
                    send, count = pupil.client.send, len(shard.y)
                    yield number, self._attempt(number, send, phase, pupil.payload, count, update, state)
                continue
            # The update gets no name here, which would hold it while the next is made.
            yield (
                number,
                self._attempt(number, pupil.client.send, phase, pupil.payload, len(shard.y), next(updates), state),
            )

    def _send_together(
        self, round_: int, pupils: list[_Pupil], shards: list[Shard], updates: Iterator[Vector]
    ) -> Iterator[tuple[int, Answer]]:
        """Encode, protect and pack the updates of some clients at a time: the bytes are those that each would send."""
        size = max(1, min(_TOGETHER, _ROOM // (4 * self.knowledge.scheme.update_length)))
        for start in range(0, len(pupils), size):
            some = pupils[start : start + size]
            numbers = [pupil.client.number for pupil in some]
            rows = np.stack(list(islice(updates, len(some))))
            heard = self.states[numbers[0]].heard
            payloads = None if heard is None else self.knowledge.payloads(round_, heard, numbers, rows)
            if payloads is not None:
                yield from zip(numbers, map(Answer, payloads), strict=True)
                continue
            for pupil, shard, row in zip(some, shards[start : start + size], rows, strict=True):
                number, send, count = pupil.client.number, pupil.client.send, len(shard.y)
                yield number, self._attempt(number, send, "train", pupil.payload, count, row, self.states[number])

    def _mislead(
        self, malice: Malice, round_: int, phase: str, pupils: list[_Pupil], malicious: frozenset[int]
    ) -> Iterator[tuple[int, Answer]]:
        """Let malicious clients make their updates and words, and send them as everybody does."""
        scene = self.scene(malice, round_, pupils[0].task, malicious)
        updates = malice.behaviour.updates(scene, [pupil.client.number for pupil in pupils])
        for client, payload, _ in pupils:
            number, state = client.number, self.states[client.number]
            records = len(malice.records(number).y)
            forge = partial(malice.behaviour.words, scene, number)
            yield number, self._attempt(number, client.send, phase, payload, records, next(updates), state, forge)

    def scene(self, malice: Malice, round_: int, task: Task, malicious: frozenset[int]) -> Scene:
        """Return the scene of a round; the same one for all of its calls, as clients make some things together."""
        kept = self._kept_scene
        if kept is None or kept.round != round_ or kept.task is not task:
            kept = self._kept_scene = Scene(
                round=round_,
                malicious=tuple(sorted(malicious)),
                pool=malice.pool or tuple(sorted(malicious)),
                task=task,
                trainable=self.knowledge.scheme.trainable(task.seed),
                trainer=self._trainer,
                climber=malice.climber,
                records=malice.records,
                batches=lambda number: self.client(number).batches(round_),
                adversary=self._seeds.adversary,
            )
        return kept

    def _check(self, number: int, phase: str) -> None:
        if number not in self._asked:
            raise RunError(f"client {number} was not asked in this round")
        if self._refusal is not None and self.knowledge.opens(phase):
            raise self._refusal

    def _attempt(self, number: int, act: Callable[..., tuple[bytes, ClientState]], *arguments: Any) -> Answer:
        """Act for a client; an error is that client's own and stops nobody else."""
        try:
            payload, self.states[number] = act(*arguments)
        except SottovoceError as error:
            return Answer(b"", str(error))
        return Answer(payload)
