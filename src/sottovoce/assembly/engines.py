"""Start what a run is played on: workers that hold clients and records here, or the way to machines that do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from sottovoce.assembly.parts import Parts
from sottovoce.core.errors import InputError
from sottovoce.federation.engine import Engine, Evaluator
from sottovoce.federation.engines.kinds import ENGINES
from sottovoce.federation.stages.own_records import OwnRecords
from sottovoce.federation.wrappers.leaving import Leaving
from sottovoce.federation.wrappers.malicious import Malicious
from sottovoce.models import training_seconds

Reach = Callable[[], AbstractContextManager[Engine]]

_SECONDS_A_PEER: Final = 3e-4  # of a client's keys, shares and masks for each other client of a secure sum


@contextmanager
def start(parts: Parts) -> Iterator[tuple[Reach, Evaluator]]:
    """Start what computes on the records that are here, and give with it the way to the clients.

    Nobody is reached before that way is taken: the folder of a run between machines is made first.
    """
    parties = parts.parties
    if not parties.machines:
        with start_engine(parts) as (engine, evaluator):
            yield lambda: nullcontext(engine), evaluator
        return
    connect = parties.connect
    if connect is None:
        raise InputError("the server has no way to its nodes")
    yield lambda: connect(parts, parties.new_run), own_records(parts)


@contextmanager
def start_engine(parts: Parts, only: Collection[str] | None = None) -> Iterator[tuple[Engine, Evaluator]]:
    """Start the engine that the experiment names, and give with it what computes on the data, or on some splits."""
    experiment = parts.experiment
    kind = ENGINES[experiment.engine.name]
    with kind.start(experiment.engine, parts.blueprint(), parts.arrays(only), _seconds(parts)) as workers:
        engine: Engine = Leaving(workers, experiment.make_dropout(), parts.seeds.world)
        if parts.threat is not None:
            engine = Malicious(engine, parts.threat.choice, parts.seeds.world)
        yield engine, workers


def own_records(parts: Parts) -> OwnRecords:
    """Return what computes on the server's own records: those that it tests with, and public ones."""
    tested = ["test"] if parts.experiment.evaluation == "server" else []
    return OwnRecords(parts.blueprint(), parts.arrays([*tested, *parts.splits]))


def _seconds(parts: Parts) -> float:
    """Return about how long one core computes for a run; it decides about processes and about nothing else."""
    each = training_seconds(parts.network, parts.training(), parts.mean_size)
    if parts.experiment.protocol.masks:
        each += parts.cohort.expected * _SECONDS_A_PEER
    return parts.experiment.experiment.rounds * parts.cohort.expected * each
