"""One client of a federation, the same on a device and in a simulation.

A client is a state machine: `answer(round, phase, bytes, state) -> (bytes, state)`. What it knows of the run
(`Knowledge`) and what is its own (number, streams, records, trainer) never changes; all that does is in its state,
which can be pickled between two phases. `host` plays many clients in one process, by the same steps.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import wire
from sottovoce.core.errors import RunError, SecAggError, SottovoceError
from sottovoce.core.provenance import OF_CLIENTS
from sottovoce.core.streams import NamedStreams, Purpose, Streams
from sottovoce.core.vectors import Vector
from sottovoce.federation.aggregation.secure import ANNOUNCING, Masking, downlink_hash, read_announcement, signing_key
from sottovoce.federation.aggregation.standing import begin_masking
from sottovoce.federation.coding import Coding, Private, Terms
from sottovoce.federation.units import sum_of_units
from sottovoce.models import Model, Shard, Trainer
from sottovoce.schemes.base import Message, Scheme, State, Task
from sottovoce.secagg import Entropy, KeyedEntropy, Policy, RoundMark, Session
from sottovoce.secagg.ballots import BallotTerms, cast

Forge = Callable[[Message, Coding, Terms], NDArray[Any]]

UPDATE_PHASES: Final = ("train", "mask")  # the phases whose answer is made from an update


def setup_message(scheme: Scheme, public: Streams, start: bytes = b"") -> bytes:
    """Return what every client is told once: the seed of w_0 and of all shared choices, and the scheme's own set-up.

    `start` is w_0 itself, of a model whose w_0 does not follow from the seed (`Model.start_payload`).

    Guarantee: the seed is that of the public streams; nobody's secrets follow from it.
    """
    seed = public.seed
    return wire.pack(np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32), bits=32) + start + scheme.setup()


def read_setup(scheme: Scheme, network: Model, payload: bytes) -> Scheme:
    """Return the client's bound scheme: w_0 and the coordinate set come from the set-up message alone."""
    seed, told = split_setup(payload)
    start, rest = network.read_start(told, Streams(seed).get(Purpose.INIT))
    return scheme.bind_setup(rest, dim=network.dim, seed=seed, start=start)


def split_setup(payload: bytes) -> tuple[int, bytes]:
    """Return the public seed, and the rest of a set-up message, which begins with `Model.start_payload`."""
    size = wire.frame_size(2, bits=32)
    low, high = wire.unpack(payload[:size], length=2, bits=32).tolist()
    return low | high << 32, payload[size:]


class Heard(NamedTuple):
    """What the opening of a round told: a task, a session of secure sums, or both."""

    round: int
    task: Task | None = None  # None: an enrolment; the model comes with the first round
    terms: Terms = Terms(0, 0.0)
    downlink: bytes = b""  # the hash of the model and terms that came
    session: Session | None = None


@dataclass(frozen=True)
class ClientState:
    """What one client keeps from one phase to the next; it can be pickled and restored between any two.

    A state that was handed to `answer` is used up. On a device `mark` is a file, which an older state does not undo.
    """

    memory: State = field(default_factory=dict)  # what the scheme told it to keep, such as a replica of the model
    heard: Heard | None = None
    masking: Masking | None = None  # its secrets in the secure sum
    mark: RoundMark = field(default_factory=RoundMark)
    participations: int = 0  # rounds that it has masked a vector in

    def hear(self, heard: Heard) -> ClientState:
        """Return the state after an opening; with a new session the secrets of the old one are forgotten."""
        memory = self.memory if heard.task is None else heard.task.memory
        if heard.session is not None:
            return replace(self, memory=memory, heard=heard, masking=None)
        if self.masking is not None:
            self.masking.next_round()
        return replace(self, memory=memory, heard=heard)


@dataclass(frozen=True)
class Knowledge:
    """What every client of a run knows: from the set-up message, and from its own copy of the configuration."""

    scheme: Scheme  # bound
    coding: Coding
    keys: Mapping[int, bytes]  # that clients registered before the run
    private: bool  # the downlink ends with the round's terms
    mean_size: float | None  # the public mean of |D_k|; None: every client counts the same
    policy: Policy | None  # what the clients of a secure run insist on; None: nothing is masked
    ballot: BallotTerms | None = None  # the terms of a count of ballots; None: there is none
    last_round: int | None = None  # of the run, by the client's own file; None: nobody else says which rounds there are

    def check_round(self, round_: int) -> None:
        """Raise unless a round is one of the run.

        Rounds only rise, and some of what remembers them is on disk. So this comes before anything remembers one: a
        single request for round 2^32 would otherwise be the client's last.
        """
        if self.last_round is not None and round_ > self.last_round:
            raise SecAggError(f"round {round_} is refused: the run ends with round {self.last_round}")
        if self.policy is not None:
            self.policy.check_round(round_)
        if self.ballot is not None:
            self.ballot.check_round(round_)

    @property
    def site_coding(self) -> Private | None:
        """Return how sums of a site's units are protected; None where clients are."""
        return self.coding if isinstance(self.coding, Private) and self.coding.of_sites else None

    @property
    def sends_together(self) -> bool:
        """Tell whether messages may be protected many at a time: those with noise, which leave as they are."""
        alike = self.private and self.mean_size is None and self.ballot is None and self.policy is None
        return alike and isinstance(self.coding, Private)

    def payloads(
        self, round_: int, heard: Heard, clients: Sequence[int], updates: NDArray[np.float32]
    ) -> list[bytes] | None:
        """Return what some clients send in a round, byte for byte as `Client.send`; None: each must send by itself.

        Guarantee: that of `Client.send`, for each row.
        """
        coding, task = self.coding, heard.task
        if not self.sends_together or not isinstance(coding, Private) or task is None or heard.round != round_:
            return None
        finite = np.asarray(np.isfinite(updates).all(axis=1))
        messages = self.scheme.encode_rows(np.where(finite[:, None], updates, np.float32(0)), task.seed)
        try:
            found = None if messages is None else coding.payloads(messages, heard.terms, round_, clients)
        except SottovoceError:
            return None  # each client has its own refusal
        if found is None:
            return None
        if found[1] or not finite.all():
            tell_divergence()
        return found[0]

    def opens(self, phase: str) -> bool:
        """Tell whether the request of a phase is an opening, for clients that keep to the policy.

        A downlink comes with its session, or the session's context would be of another model.
        """
        if phase in ANNOUNCING:
            return True
        return phase == ("train" if self.policy is None else "mask") and not self._keys_live_for_a_round

    def read(self, round_: int, phase: str, payload: bytes, memory: State) -> Heard:
        """Return what an opening tells, or refuse it; the same for all clients that it is sent to."""
        self.check_round(round_)
        session, down = self._announced(round_, payload) if phase in ANNOUNCING else (None, payload)
        if session is not None and session.key_life == "session":
            return Heard(round_, session=session)
        downlink = b"" if self.policy is None and self.ballot is None else downlink_hash(down)
        down, terms = Terms.split(down) if self.private else (down, Terms(0, 0.0))
        return Heard(round_, self.scheme.receive(down, memory), terms, downlink, session)

    @property
    def _keys_live_for_a_round(self) -> bool:
        return self.policy is not None and self.policy.key_life == "round"

    def _announced(self, round_: int, payload: bytes) -> tuple[Session, bytes]:
        if self.policy is None:
            raise SecAggError("a session was announced, but this run does not sum securely")
        session, down = read_announcement(payload, self.keys, self.policy)
        first = session.round + (session.key_life == "session")  # an enrolment stands before its first round
        if first != round_:
            raise SecAggError(f"the announced session is refused: it begins with round {first}, this is round {round_}")
        return session, down


@dataclass(frozen=True)
class Credentials:
    """What a client on a device has beside its streams: the key that it signs with, and where its secrets come from."""

    signing_key: bytes = field(repr=False)
    entropy: Entropy = os.urandom


@dataclass(frozen=True)
class Client:
    """One client: what it knows, and what is its own. All that changes is in its state.

    Guarantee: with a policy nothing leaves unmasked, no session but one of the policy is taken part in, a round is
    masked once, and the noise is shared among the clients of the session and not among as many as the server says.
    """

    knowledge: Knowledge
    number: int
    streams: NamedStreams  # its own
    shard: Callable[[], Shard]
    trainer: Trainer
    credentials: Credentials | None = None  # None: a simulated client, whose secrets come from its streams

    def answer(self, round_: int, phase: str, payload: bytes, state: ClientState) -> tuple[bytes, ClientState]:
        """Return what the client sends when it is asked, and its state from then on; or raise why it refuses."""
        if self.knowledge.opens(phase):
            state = state.hear(self.knowledge.read(round_, phase, payload, state.memory))
        if phase not in UPDATE_PHASES:
            return self.go_on(phase, payload, state)
        task = self.task(round_, phase, state)
        shard = self.shard()
        if self.knowledge.site_coding is not None:
            return self.send_units(phase, payload, shard, state)
        trainable = self.knowledge.scheme.trainable(task.seed)
        (update,) = self.trainer.updates(task.params, [shard], [self.batches(round_)], trainable)
        return self.send(phase, payload, len(shard.y), update, state)

    def task(self, round_: int, phase: str, state: ClientState) -> Task:
        """Return what to train from in a round, or raise why the client must not train."""
        if phase == "train" and self.knowledge.policy is not None:
            raise SecAggError(
                f"client {self.number}: this run sums securely, and phase train would send the words unmasked"
            )
        if phase == "mask":
            self._session(state)
            if self.knowledge.policy is not None:
                self.knowledge.policy.check_participation(state.participations)
        heard = state.heard
        if heard is None or heard.task is None:
            raise RunError(f"client {self.number} was asked to act before it heard a downlink")
        if heard.round != round_:
            raise RunError(f"client {self.number} was asked to act in round {round_}, but heard that of {heard.round}")
        return heard.task

    def batches(self, round_: int) -> np.random.Generator:
        """Return the randomness of a round's training."""
        return self.streams.get(Purpose.BATCH, round_)

    def send(
        self, phase: str, payload: bytes, records: int, update: Vector, state: ClientState, forge: Forge | None = None
    ) -> tuple[bytes, ClientState]:
        """Return an update of so many records as it travels: encoded, protected, and masked or packed.

        A malicious client has words of its own making in place of the protected message (`forge`).

        Guarantee: in a private run a client whose training diverged sends noise around zero, and is charged. A refusal
        would tell without noise that it did, and whoever chooses the model can make that depend on a single record.
        """
        knowledge, heard = self.knowledge, state.heard
        if heard is None or heard.task is None:
            raise RunError(f"client {self.number} was asked to act before it heard a downlink")
        if knowledge.mean_size is not None and records != knowledge.mean_size:
            update = update * np.float32(records / knowledge.mean_size)
        if knowledge.private:
            update = _finite(update)
        message = knowledge.scheme.encode(update, heard.task.seed, self.streams.get(Purpose.ENCODE, heard.round))
        if knowledge.private:
            message = _finite(message)
        terms = self._terms(phase, heard, state)
        if forge is None:
            words = knowledge.coding.words(message, terms, heard.round, self.number)
        else:
            words = forge(message, knowledge.coding, terms)
        return self._deliver(phase, payload, words, heard, state)

    def send_units(self, phase: str, payload: bytes, shard: Shard, state: ClientState) -> tuple[bytes, ClientState]:
        """Return the sum of a site's units as it travels: protected once, and masked or packed.

        Guarantee: a site answers whatever its units are, and whichever of them take part.
        """
        knowledge, heard, coding = self.knowledge, state.heard, self.knowledge.site_coding
        if heard is None or heard.task is None or coding is None:
            raise RunError(f"client {self.number} was asked to act before it heard a downlink")
        total = sum_of_units(
            coding.plan,
            knowledge.scheme,
            self.trainer,
            heard.task,
            shard,
            coins=self.streams.get(Purpose.UNIT, heard.round),
            choices=self.streams.get(Purpose.ENCODE, heard.round),
        )
        terms = self._terms(phase, heard, state)
        return self._deliver(phase, payload, coding.site_words(total, terms, heard.round, self.number), heard, state)

    def _terms(self, phase: str, heard: Heard, state: ClientState) -> Terms:
        """Return the round's terms; in a session the client counts the cohort by itself."""
        return heard.terms if phase == "train" else heard.terms._replace(cohort=self._session(state).cohort)

    def _deliver(
        self, phase: str, payload: bytes, words: NDArray[Any], heard: Heard, state: ClientState
    ) -> tuple[bytes, ClientState]:
        """Return protected words as they leave: as a ballot, packed, or masked."""
        knowledge = self.knowledge
        if phase == "train" and knowledge.ballot is not None:
            return self._cast(knowledge.ballot, words, heard, state)
        if phase == "train":
            return knowledge.coding.pack(words), state
        sealed = self._session(state).mask(heard.round, payload, words, heard.downlink)
        return sealed, replace(state, participations=state.participations + 1)

    def _cast(
        self, terms: BallotTerms, words: NDArray[Any], heard: Heard, state: ClientState
    ) -> tuple[bytes, ClientState]:
        """Return a ballot under its pad, sealed and signed: once a round, and no more often than the run allows."""
        terms.check_participation(state.participations)
        own = self._own(heard.round)
        message = cast(
            terms,
            heard.round,
            self.number,
            words.tobytes(),
            downlink=heard.downlink,
            signing_key=own.signing_key,
            entropy=own.entropy,
        )
        state.mark.before_mask(heard.round)  # last, as it cannot be undone; nothing has left yet
        return message, replace(state, participations=state.participations + 1)

    def go_on(self, phase: str, payload: bytes, state: ClientState) -> tuple[bytes, ClientState]:
        """Return the answer to a phase of a secure sum that needs no training."""
        if phase not in ANNOUNCING:
            return self._session(state).go_on(phase, payload), state
        if state.heard is None or state.heard.session is None:
            raise RunError(f"client {self.number} was asked for keys without a session")
        session = state.heard.session
        own = self._own(session.round)
        masking = begin_masking(session, self.number, own.signing_key, own.entropy, state.mark)
        return masking.advertise(), replace(state, masking=masking)

    def _own(self, round_: int) -> Credentials:
        """Return what a client signs and draws secrets with; a simulated one has them from its streams."""
        if self.credentials is not None:
            return self.credentials
        return Credentials(signing_key(self.streams), KeyedEntropy(self.streams.key(Purpose.MASK, round_)))

    def _session(self, state: ClientState) -> Masking:
        if state.masking is None:
            raise SecAggError(f"client {self.number} was asked to go on with a session that it never began")
        return state.masking


def _finite(values: Any) -> Any:
    """Return values, or zeros in place of all of them if one is not finite."""
    if bool(np.isfinite(values).all()):
        return values
    tell_divergence()
    return np.zeros_like(values)


@cache
def tell_divergence() -> None:
    """Say to whoever runs this process, and to nobody else, that training diverged: once, until `cache_clear`."""
    logging.getLogger(__name__).warning(
        "training diverged on a client, which sends noise around zero; if that is usual, lower client_lr",
        extra=OF_CLIENTS,
    )
