"""Points of a sweep at the same time: who gets how many workers, and what an error does to the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sottovoce.checks.twin import few
from sottovoce.config.engine import EngineTable
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError, RunError
from sottovoce.search import runner as spreading
from sottovoce.search.runner import shares, spread

JOINED = EngineTable(name="ray", address="auto")


class Session:
    """A cluster of five CPUs that computes nothing."""

    cpus = 5

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def check(self) -> None:
        if self.stopped.is_set():
            raise RunError("stopped")

    def stop(self) -> None:
        self.stopped.set()


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    session = Session()

    @contextmanager
    def cluster(table: EngineTable) -> Iterator[Session]:
        yield session

    monkeypatch.setattr(spreading, "cluster", cluster)
    monkeypatch.setattr(spreading, "cores", lambda: 1)
    return session


def test_points_come_back_in_their_order_and_never_share_a_worker(session: Session) -> None:
    points = _points(11)
    busy: list[int] = []
    most: list[int] = []
    lock = threading.Lock()

    def play(point: Experiment) -> dict[str, Any]:
        with lock:
            busy.append(point.engine.workers)
            most.append(sum(busy))
        threading.Event().wait(0.01)
        with lock:
            busy.remove(point.engine.workers)
        return {"seed": point.experiment.seed}

    assert spread(points, JOINED, play) == [{"seed": seed} for seed in range(11)]
    assert max(most) <= 5


def test_several_points_run_at_the_same_time(session: Session) -> None:
    together = threading.Barrier(4)  # four runs a core of this machine, at most

    def play(point: Experiment) -> dict[str, Any]:
        together.wait(timeout=30)
        return {}

    assert spread(_points(4), JOINED, play) == [{}] * 4


@pytest.mark.parametrize("error", [InputError("wrong"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_an_error_of_one_point_stops_the_others(session: Session, error: BaseException) -> None:
    def play(point: Experiment) -> dict[str, Any]:
        if point.experiment.seed == 1:
            raise error
        session.stopped.wait(30)
        session.check()
        return {}

    with pytest.raises(type(error)):
        spread(_points(9), JOINED, play)
    assert session.stopped.is_set()


def test_workers_are_shared_out_evenly() -> None:
    assert shares(8, 3) == [3, 3, 2]
    assert shares(2, 5) == [1, 1]
    assert shares(4, 1) == [4]


def _points(count: int) -> list[Experiment]:
    return [few(experiment={"seed": seed}, engine={"name": "ray", "address": "auto"}) for seed in range(count)]
