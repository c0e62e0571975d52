"""Play the clients' side of a round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from sottovoce.core import wire
from sottovoce.core.errors import RunError, SecAggError, SottovoceError, WireError
from sottovoce.core.streams import Purpose, Seeds, Streams
from sottovoce.core.vectors import Vector
from sottovoce.federation.coding import Coding, Terms, WordCoding
from sottovoce.federation.secure import ANNOUNCING, Registry, downlink_hash, read_announcement, session_client
from sottovoce.models import Network, Shard, Trainer
from sottovoce.schemes.base import Message, Scheme, State, Task
from sottovoce.secagg import Policy, RoundClient, RoundMark, Session, StandingClient

Input = TypeVar("Input", Message, bytes)

__all__ = ["Answer", "Clients", "read_setup", "setup_message"]


def setup_message(scheme: Scheme, public: Streams) -> bytes:
    """Return what every client is told once: the seed of w_0 and of all shared choices, and the scheme's own set-up.

    Guarantee: the seed is that of the public streams; nobody's secrets follow from it.
    """
    seed = public.seed
    return wire.pack(np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32), bits=32) + scheme.setup()


def _attempt(act: Callable[[int, Input], bytes], client: int, value: Input) -> Answer:
    try:
        return Answer(act(client, value))
    except SottovoceError as error:
        return Answer(b"", str(error))


def read_setup(scheme: Scheme, network: Network, payload: bytes) -> Scheme:
    """Return the client's bound scheme: w_0 and the coordinate set come from the set-up message alone."""
    size = wire.frame_size(2, bits=32)
    low, high = wire.unpack(payload[:size], length=2, bits=32).tolist()
    seed = low | high << 32
    start = network.initialise(Streams(seed).get(Purpose.INIT))
    return scheme.enrol(payload[size:], dim=network.dim, seed=seed, start=start)


class Answer(NamedTuple):
    """Hold a client's payload, or the reason why there is none."""

    payload: bytes
    reason: str | None = None


class Heard(NamedTuple):
    """Hold what a round's downlink told."""

    round: int
    task: Task
    terms: Terms
    downlink: bytes  # the hash of the model and terms that came


@dataclass
class Clients:
    """Hold what all clients of a process share, and act for any of them.

    Only public things are kept from round to round: the bound scheme and the replica that some schemes' clients keep.
    The secrets of a secure sum live in `_sessions`, until another session is announced.

    Guarantee: with a `policy` nothing leaves unmasked, no session but one of the policy is taken part in, a round is
    masked once, and the noise is shared among the clients of the session and not among as many as the server says.
    """

    scheme: Scheme
    trainer: Trainer
    shard: Callable[[int], Shard]
    coding: Coding
    seeds: Seeds
    registry: Registry
    private: bool  # the downlink ends with the round's terms
    mean_size: float | None  # the public mean of |D_k|; None: every client counts the same
    policy: Policy | None  # what the clients of a secure run insist on; None: nothing is masked
    memory: State = field(default_factory=dict)
    _asked: frozenset[int] = frozenset()  # who heard the round's opening
    _heard: Heard | None = None
    _announced: Session | SottovoceError | None = None  # an error: why the last announcement was refused
    _sessions: dict[int, RoundClient | StandingClient] = field(default_factory=dict)
    _marks: dict[int, RoundMark] = field(default_factory=dict)

    def hear(self, round_: int, phase: str, clients: Iterable[int], payload: bytes) -> None:
        """Take in a round's opening, on behalf of the clients that are asked; nobody else can act on it."""
        self._asked = frozenset(clients)
        down = payload
        if phase in ANNOUNCING:
            try:
                self._announced, down = self._read_announcement(round_, payload)
            except (SecAggError, WireError) as error:
                self._announced = error
                return
            self._sessions.clear()
            if self._announced.key_life == "session":
                return  # an enrolment; the downlink comes with the first round
        elif self.policy is not None and self.policy.key_life == "round":
            return  # a downlink comes with its session, or the session's context would be of another model
        for machine in self._sessions.values():
            if isinstance(machine, StandingClient):
                machine.end_round()
        downlink = downlink_hash(down)
        down, terms = Terms.split(down) if self.private else (down, Terms(0, 0.0))
        task = self.scheme.receive(down, self.memory)
        self.memory = task.memory
        self._heard = Heard(round_, task, terms, downlink)

    def step(self, round_: int, phase: str, requests: Mapping[int, bytes]) -> Iterator[tuple[int, Answer]]:
        """Answer a phase for some clients, one at a time: nobody need hold the vectors of two."""
        strangers = requests.keys() - self._asked
        refused = [(client, Answer(b"", f"client {client} was not asked in this round")) for client in strangers]
        heard = {client: payload for client, payload in requests.items() if client not in strangers}
        return chain(refused, self._step(round_, phase, heard))

    def _step(self, round_: int, phase: str, requests: Mapping[int, bytes]) -> Iterator[tuple[int, Answer]]:
        if phase == "train" and self.policy is not None:
            return self._answers(requests.items(), self._refuse_to_train)
        if phase == "train":
            return self._answers(self._train(round_, list(requests)), self._payload)
        if phase == "mask":
            return self._answers(
                self._train(round_, list(requests)),
                lambda client, message: self._mask(client, requests[client], message),
            )
        if phase in ANNOUNCING:
            return self._answers(requests.items(), lambda client, _: self._begin(client))
        return self._answers(requests.items(), lambda client, payload: self._go_on(phase, client, payload))

    def _train(self, round_: int, clients: Sequence[int]) -> Iterator[tuple[int, Message | SottovoceError]]:
        """Train each client and yield its message, or the error that stopped it."""
        task = self._this(round_).task
        shards = [self.shard(client) for client in clients]
        rngs = [self.seeds.client(client).get(Purpose.BATCH, round_) for client in clients]
        updates = self.trainer.updates(task.params, shards, rngs, self.scheme.trainable(task.seed))
        for client, shard in zip(clients, shards, strict=True):
            # Neither the update nor the message gets a name here, which would hold it while the next is made.
            yield client, self._encode(round_, client, len(shard.y), next(updates), task.seed)

    def _encode(self, round_: int, client: int, records: int, update: Vector, seed: int) -> Message | SottovoceError:
        if self.mean_size is not None and records != self.mean_size:
            update = update * np.float32(records / self.mean_size)
        try:
            return self.scheme.encode(update, seed, self.seeds.client(client).get(Purpose.ENCODE, round_))
        except SottovoceError as error:
            return error

    def _payload(self, client: int, message: Message) -> bytes:
        heard = self._now()
        return self.coding.payload(message, heard.terms, heard.round, client)

    def _words(self, client: int, message: Message, cohort: int) -> wire.Words:
        heard = self._now()
        coding: WordCoding = self.coding  # type: ignore[assignment]  # a secure run is built with one
        return coding.words(message, heard.terms._replace(cohort=cohort), heard.round, client)

    def _refuse_to_train(self, client: int, _: bytes) -> bytes:
        raise SecAggError(f"client {client}: this run sums securely, and phase train would send the words unmasked")

    def _read_announcement(self, round_: int, payload: bytes) -> tuple[Session, bytes]:
        if self.policy is None:
            raise SecAggError("a session was announced, but this run does not sum securely")
        session, down = read_announcement(payload, self.registry, self.policy)
        first = session.round + (session.key_life == "session")  # an enrolment stands before its first round
        if first != round_:
            raise SecAggError(f"the announced session is refused: it begins with round {first}, this is round {round_}")
        return session, down

    def _begin(self, client: int) -> bytes:
        if self._announced is None:
            raise RunError("clients were asked for keys without a session")
        if isinstance(self._announced, SottovoceError):
            raise self._announced
        mark = self._marks.setdefault(client, RoundMark())
        machine = session_client(self._announced, client, self.seeds.client(client), mark)
        self._sessions[client] = machine
        return machine.advertise()

    def _mask(self, client: int, request: bytes, message: Message) -> bytes:
        machine = self._session(client)
        words = self._words(client, message, machine.cohort)
        if isinstance(machine, StandingClient):
            heard = self._now()
            return machine.mask(heard.round, words, heard.downlink)
        return machine.mask(request, words)

    def _go_on(self, phase: str, client: int, payload: bytes) -> bytes:
        machine = self._session(client)
        if isinstance(machine, StandingClient) and phase == "introduce":
            machine.enrol(payload)
            return b""
        if phase == "share" and isinstance(machine, RoundClient):
            return machine.share(payload)
        if phase == "consistency":
            return machine.consistency(payload)
        if phase == "unmask":
            return machine.unmask(payload)
        raise SecAggError(f"client {client}: there is no phase {phase} in this session")

    def _session(self, client: int) -> RoundClient | StandingClient:
        if client not in self._sessions:
            raise SecAggError(f"client {client} was asked to go on with a session that it never began")
        return self._sessions[client]

    def _answers(
        self, inputs: Iterable[tuple[int, Input | SottovoceError]], act: Callable[[int, Input], bytes]
    ) -> Iterator[tuple[int, Answer]]:
        """Act for each client; an error is that client's own and stops nobody else."""
        for client, value in inputs:
            yield client, Answer(b"", str(value)) if isinstance(value, SottovoceError) else _attempt(act, client, value)

    def _now(self) -> Heard:
        if self._heard is None:
            raise RunError("clients were asked to act before they heard a downlink")
        return self._heard

    def _this(self, round_: int) -> Heard:
        heard = self._now()
        if heard.round != round_:
            raise RunError(f"clients were asked to act in round {round_}, but heard that of round {heard.round}")
        return heard
