"""Check what every scheme promises; its author calls `scheme_checks` in a test of their own.

    from sottovoce.checks import scheme_checks

    def test_my_scheme_keeps_the_contract():
        scheme_checks(MyScheme(every=3))

Each check raises `InputError` with one sentence that says which promise was broken.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from sottovoce.core import wire
from sottovoce.core.errors import InputError, WireError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.core.vectors import Vector
from sottovoce.schemes.base import Message, Scheme, State
from sottovoce.schemes.packed_signs import Tally, packed_size


@dataclass(frozen=True)
class SchemeTrial:
    """A scheme bound on both sides, with a model and updates to try it on; all arrays are read-only."""

    server: Scheme
    client: Scheme  # bound from the set-up message alone
    start: Vector
    updates: tuple[Vector, ...]
    streams: Streams

    def require(self, kept: bool, promise: str) -> None:
        """Raise unless a promise was kept."""
        if not kept:
            raise InputError(f"{self.server.name}: {promise}")

    def encode(self, update: Vector, round_: int = 1, client: int = 0) -> Message:
        """Encode as a client does in a round."""
        rng = self.streams.get(Purpose.ENCODE, round_, client)
        with self._reading_only("encode"):
            return self.client.encode(update, self.server.round_seed(round_), rng)

    def decode(self, mean: Vector, state: State, round_: int = 1) -> State:
        """Decode as the server does in a round."""
        rng = self.streams.get(Purpose.DECODE, round_)
        with self._reading_only("decode"):
            return self.server.decode(_frozen(mean), _frozen_state(state), self.server.round_seed(round_), rng)

    @contextmanager
    def _reading_only(self, method: str) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise InputError(f"{self.server.name}: {method} must not write to its inputs") from error

    def mean(self, messages: list[Message], expected: int) -> Vector:
        """Divide the sum of messages by the expected cohort, as the server does."""
        if self.server.form == "signs":
            tally = Tally(self.server.length)
            for signs in messages:
                tally.add(signs)
            return (tally.total() / expected).astype(np.float32)
        total = np.zeros(self.server.length, np.float64)
        for message in messages:
            total += message
        return (total / expected).astype(np.float32)

    def round(self, state: State, round_: int) -> State:
        """Run one round in which all of the updates are sent."""
        messages = [self.encode(update, round_, client) for client, update in enumerate(self.updates)]
        return self.decode(self.mean(messages, len(messages)), state, round_)


def prepare(scheme: Scheme, *, dim: int = 203, seed: int = 5) -> SchemeTrial:
    """Bind a scheme on both sides of a small federation."""
    streams = Streams(seed)
    rng = streams.get(Purpose.INIT)
    start = _frozen(rng.standard_normal(dim, np.float32))
    importance = _frozen(rng.random(dim, np.float32)) if scheme.needs_importance else None
    server = scheme.bind(dim, seed=seed, start=start, importance=importance)
    client = scheme.bind_setup(server.setup(), dim=dim, seed=seed, start=start)
    values = server.update_length
    updates = tuple(_frozen(rng.standard_normal(values, np.float32) * np.float32(0.1)) for _ in range(3))
    return SchemeTrial(server, client, start, updates, streams)


def scheme_checks(scheme: Scheme, *, dim: int = 203, seed: int = 5) -> None:
    """Raise if a scheme, not bound yet, breaks any promise."""
    for check in CHECKS:
        check(prepare(scheme, dim=dim, seed=seed))


def check_description(trial: SchemeTrial) -> None:
    """Require a frozen dataclass that describes itself in plain values."""
    params = getattr(type(trial.server), "__dataclass_params__", None)
    trial.require(bool(params and params.frozen), "the class must be a frozen dataclass, or two rounds could differ")
    trial.require(trial.server.saves in ("nothing", "up", "up and down"), f"saves cannot be {trial.server.saves!r}")
    try:
        json.dumps(trial.server.describe())
    except TypeError as error:
        raise InputError(f"{trial.server.name}: describe() must return plain values: {error}") from error


def check_length(trial: SchemeTrial) -> None:
    """Require messages of the declared type and length, whatever the update."""
    silent = _frozen(np.zeros_like(trial.updates[0]))
    length = trial.server.length
    size, kind = (packed_size(length), "uint8") if trial.server.form == "signs" else (length, "float32")
    for update in (*trial.updates, silent):
        message = trial.encode(update)
        trial.require(
            message.shape == (size,) and message.dtype == kind,
            f"encode must return {size} {kind} for length {length}, got shape {message.shape} {message.dtype}",
        )


def check_purity(trial: SchemeTrial) -> None:
    """Require that equal inputs give equal outputs and that no input is written to."""
    message, again = trial.encode(trial.updates[0]), trial.encode(trial.updates[0])
    state = trial.round(trial.server.init(trial.start), 1)
    mean = trial.mean([message], 1)
    first, second = trial.decode(mean, state, 2), trial.decode(mean, state, 2)
    trial.require(np.array_equal(message, again), "encode gave two messages for the same inputs")
    trial.require(_same(first, second), "decode gave two states for the same inputs")
    trial.require(bool(np.array_equal(trial.server.init(trial.start)["params"], trial.start)), "init must keep w_0")


def check_wire(trial: SchemeTrial) -> None:
    """Require that a message survives its frame, and that a frame takes the bytes its length says."""
    message = trial.encode(trial.updates[0])
    length = trial.server.length
    received: NDArray[Any]
    if trial.server.form == "signs":
        payload, size = wire.frame(message, length=length, bits=1), wire.frame_size(length, 1)
        try:
            received = np.frombuffer(wire.open_frame(payload, length=length, bits=1), np.uint8)
        except WireError as error:
            raise InputError(f"{trial.server.name}: the signs cannot be read: {error}") from error
    else:
        payload, size = wire.pack(message), wire.frame_size(length)
        received = wire.unpack_floats(payload, length=length)
    trial.require(len(payload) == size, f"a message takes {len(payload)} bytes, its length says {size}")
    trial.require(np.array_equal(received, message), "a message changes on the wire")


def check_downlink(trial: SchemeTrial) -> None:
    """Require that clients start from the server's model in every round, also after a resumed run."""
    state: State = trial.server.init(trial.start)
    memory: State = {}
    for round_ in (1,) if trial.server.once else (1, 2, 3):
        seed = trial.server.round_seed(round_)
        payload = trial.server.downlink(_frozen_state(state), seed)
        task = trial.client.receive(payload, memory)
        resumed = trial.client.receive(payload, trial.server.replica(state)) if round_ > 1 else task
        for one in (task, resumed):
            trial.require(
                np.array_equal(one.params, state["params"]), f"round {round_}: the downlink does not give the model"
            )
            trial.require(one.seed == seed, f"round {round_}: the downlink does not give the round seed")
        memory = task.memory
        state = trial.round(state, round_)


def check_linear(trial: SchemeTrial) -> None:
    """Require encode(a) + encode(b) = encode(a + b) where it is claimed."""
    if not trial.server.linear:
        return
    trial.require(trial.server.form == "floats", "signs cannot be linear")
    one, two = trial.updates[:2]
    whole = trial.encode(_frozen(one + two))
    parts = trial.encode(one) + trial.encode(two)
    trial.require(np.allclose(whole, parts, rtol=1e-4, atol=1e-5), "encode is not linear, though the class claims it")


def check_expected_cohort(trial: SchemeTrial) -> None:
    """Require that a linear scheme leaves the division to the server: half a cohort moves the model about half as far.

    A scheme that divides by the clients that answered, or rescales the mean, moves the model as far as a whole cohort.
    A model that is solved for is where it is, however many answered.
    """
    if not trial.server.linear or trial.server.once:
        return
    message = trial.encode(trial.updates[0])
    moved = [_moved(trial, trial.mean([message] * answers, 4)) for answers in (0, 2, 4)]
    trial.require(moved[0] == 0, "an empty cohort must not move a fresh model")
    trial.require(moved[2] > 0, "a full cohort must move the model")
    trial.require(moved[1] <= 0.75 * moved[2], "half of the expected cohort moves the model as far as all of it")


def check_state(trial: SchemeTrial) -> None:
    """Require that a state survives a checkpoint: the next round is the same."""
    state = trial.round(trial.server.init(trial.start), 1)
    trial.require(
        state["params"].shape == trial.start.shape and state["params"].dtype == np.float32, "params changed form"
    )
    file = io.BytesIO()
    arrays: dict[str, Any] = dict(state)
    np.savez(file, **arrays)
    file.seek(0)
    try:
        with np.load(file, allow_pickle=False) as loaded:
            restored = dict(loaded)
    except ValueError as error:
        raise InputError(f"{trial.server.name}: a state must hold arrays of plain numbers: {error}") from error
    trial.require(_same(trial.round(state, 2), trial.round(restored, 2)), "a restored state goes on differently")


def check_trainable(trial: SchemeTrial) -> None:
    """Require that a scheme which constrains training sends and moves nothing else."""
    seed = trial.server.round_seed(1)
    mask = trial.client.trainable(seed)
    if mask is None:
        return
    trial.require(mask.shape == trial.start.shape and mask.dtype == np.bool_, "trainable must be one bool a coordinate")
    inside = trial.encode(_frozen(np.where(mask, trial.updates[0], np.float32(0))))
    trial.require(
        np.array_equal(trial.encode(trial.updates[0]), inside), "encode reads coordinates that cannot be trained"
    )
    state = trial.round(trial.server.init(trial.start), 1)
    trial.require(
        np.array_equal(state["params"][~mask], trial.start[~mask]), "decode moves coordinates outside the set"
    )


def check_travel(trial: SchemeTrial) -> None:
    """Require that a scheme can be sent to a worker process, bound or not."""
    try:
        copy = pickle.loads(cloudpickle.dumps(trial.client))
    except Exception as error:  # whatever a user's field raises
        raise InputError(f"{trial.server.name}: it cannot be sent to a worker process: {error}") from error
    seed = trial.server.round_seed(1)
    message = copy.encode(trial.updates[0], seed, trial.streams.get(Purpose.ENCODE, 1, 0))
    trial.require(np.array_equal(message, trial.encode(trial.updates[0])), "a pickled copy encodes differently")


CHECKS: tuple[Callable[[SchemeTrial], None], ...] = (
    check_description,
    check_length,
    check_purity,
    check_wire,
    check_downlink,
    check_linear,
    check_expected_cohort,
    check_state,
    check_trainable,
    check_travel,
)


def _moved(trial: SchemeTrial, mean: Vector) -> float:
    state = trial.decode(mean, trial.server.init(trial.start))
    return float(np.linalg.norm(state["params"] - trial.start))


def _same(one: State, two: State) -> bool:
    return one.keys() == two.keys() and all(np.array_equal(one[key], two[key]) for key in one)


def _frozen(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view


def _frozen_state(state: State) -> State:
    return {key: _frozen(np.asarray(value)) for key, value in state.items()}
