"""The engine on a cluster of one machine: the contract, how far workers run ahead, who can reach it, what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from sottovoce.assembly.parts import gather
from sottovoce.checks import engine_checks
from sottovoce.checks.twin import few
from sottovoce.config.experiment import to_toml
from sottovoce.core.errors import InputError, RunError
from sottovoce.federation.engines import ray as engines
from sottovoce.federation.engines.local import LocalEngine
from sottovoce.federation.engines.ray import RayEngine, SottovoceWorker
from sottovoce.federation.engines.ray_session import RaySession, joined
from tests.engines.ray.crew import Crew
from tests.engines.ray.processes import actors, alive, eventually_none, marked


@pytest.fixture(scope="module")
def mark() -> Iterator[str]:
    with marked() as mark:
        yield mark
        assert not eventually_none(mark), "no process outlives the cluster"


@pytest.fixture(scope="module")
def session(mark: str) -> Iterator[RaySession]:
    with joined("local", 3) as session:
        yield session


def test_the_ray_engine_keeps_the_contract_with_one_worker_and_with_three(session: RaySession) -> None:
    with Crew(session) as crew:
        engine_checks(lambda parts: crew.engine(parts.blueprint(), parts.arrays(), 1))
        engine_checks(lambda parts: crew.engine(parts.blueprint(), parts.arrays(), 3))

    assert not session._kept, "no records stay in the store"


def test_a_local_cluster_can_be_reached_from_this_machine_only(session: RaySession, mark: str) -> None:
    sockets = {str(link.readlink()) for pid in (*alive(mark), os.getpid()) for link in _descriptors(pid)}
    listening = [
        words[1]
        for table in ("tcp", "tcp6")
        for words in map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:])
        if words[3] == "0A" and f"socket:[{words[9]}]" in sockets
    ]

    loopback = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
    assert len(listening) > 3
    assert not [place for place in listening if place.split(":")[0] not in loopback]


def test_a_worker_is_at_most_two_vectors_ahead_of_who_reads_them(
    session: RaySession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "SottovoceWorker", Counting)
    parts = gather(few())
    made = tmp_path / "made"
    with RayEngine(session, parts.blueprint(), {}, 1) as engine:
        engine._begin(0, ("step", (str(made), 8)))
        ahead = [_settled(made)]
        for _ in range(3):
            engine._receive(0)
            ahead.append(_settled(made))
        rest = [engine._receive(0)[0] for _ in range(6)]

    assert ahead == [2, 3, 4, 5]
    assert rest == [False] * 5 + [True]


def test_more_workers_than_the_cluster_has_are_refused(session: RaySession) -> None:
    parts = gather(few())

    with pytest.raises(InputError, match=r"^\[engine\] workers must be at most the 3 CPUs of the cluster, got 4$"):
        RayEngine(session, parts.blueprint(), parts.arrays(), 4)


def test_what_is_computed_outlives_the_store_and_no_worker_its_engine(session: RaySession, mark: str) -> None:
    parts = gather(few())
    with RayEngine(session, parts.blueprint(), parts.arrays(), 1) as engine:
        gradient = engine.gradient(parts.start, "train", np.arange(20))
        scores = engine.scores(parts.start, "test")
        assert len(actors(mark)) == 1
    assert not actors(mark)
    assert not session._kept
    with LocalEngine(parts.blueprint(), parts.arrays(), 1) as local:
        expected = local.gradient(parts.start, "train", np.arange(20))

    assert gradient.flags.owndata and gradient.flags.writeable
    assert scores.flags.owndata and scores.flags.writeable
    assert np.array_equal(gradient, expected)


def test_a_worker_that_is_lost_is_never_made_again(session: RaySession) -> None:
    parts = gather(few())
    with RayEngine(session, parts.blueprint(), parts.arrays(), 1) as engine:
        os.kill(engine._places[0].process, signal.SIGKILL)
        end = time.monotonic() + 60
        while time.monotonic() < end:  # one that is being made again is unavailable for a while, and then answers
            try:
                pytest.fail(f"it came back: {ray.get(engine._actors[0].place.remote())}")
            except ray.exceptions.ActorDiedError:
                break
            except ray.exceptions.ActorUnavailableError:
                time.sleep(0.2)
        else:
            pytest.fail("Ray did not say that it is dead")
    told = engines.options(None, {})
    assert (told["max_restarts"], told["max_task_retries"]) == (0, 0)


def test_a_session_that_is_stopped_ends_what_waits(session: RaySession) -> None:
    parts = gather(few())
    other = RaySession("local", 3, session.environment)
    with RayEngine(other, parts.blueprint(), parts.arrays(), 1) as engine:
        other.stop()
        with pytest.raises(RunError, match=r"^the run was stopped; go on with --resume$"):
            engine.scores(parts.start, "test")


def test_a_process_that_is_connected_joins_no_other_cluster(session: RaySession) -> None:
    with pytest.raises(InputError, match=r"^this process is connected to the Ray cluster at 127.0.0.1:\d+ already"):
        joined("127.0.0.1:6379").__enter__()


@pytest.mark.parametrize("how", ["Ctrl-C", "a worker is killed"])
def test_nothing_is_left_of_a_run_that_ends_early(tmp_path: Path, how: str) -> None:
    engine = {"name": "ray", "workers": 1}
    experiment = few(experiment={"rounds": 100_000}, aggregation={"secure": "real"}, engine=engine)
    file = tmp_path / "few.toml"
    file.write_text(to_toml(experiment.tables()))
    with marked() as mark:
        run = subprocess.Popen(
            [sys.executable, "-m", "sottovoce", "run", str(file), "--out", str(tmp_path / "run"), "--quiet"],
            stderr=subprocess.PIPE,
            start_new_session=True,
            # Who is started in the background of a shell ignores Ctrl-C, and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            text=True,
        )
        rounds = tmp_path / "run" / "rounds.jsonl"
        while run.poll() is None and not (rounds.exists() and rounds.read_text().count("\n") > 2):
            time.sleep(0.1)
        if how == "Ctrl-C":
            os.killpg(run.pid, signal.SIGINT)  # as a terminal does: everybody hears it
        else:
            os.kill(actors(mark)[0], signal.SIGKILL)
        _, words = run.communicate(timeout=60)
        left = eventually_none(mark)

    assert run.returncode == 4
    assert "--resume" in words
    assert len(words.splitlines()) == 1, words
    assert not left


class Counting(SottovoceWorker):
    """A worker that tells in a file how many vectors it has made."""

    def start(self, *_: Any) -> None:
        self._worker = self  # type: ignore[assignment]

    def step(self, made: str, vectors: int) -> Iterator[Any]:
        for number in range(vectors):
            Path(made).write_text(json.dumps(number + 1))
            yield bytes(1 << 20)


def _settled(made: Path) -> int:
    """Return a number that no longer grows."""
    before, now = -1, 0
    while before != now or not now:
        time.sleep(0.4)
        before, now = now, json.loads(made.read_text()) if made.exists() else 0
    return now


def _descriptors(pid: int) -> list[Path]:
    try:
        return [link for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    except OSError:
        return []
