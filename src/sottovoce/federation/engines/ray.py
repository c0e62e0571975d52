"""Simulate on a Ray cluster: one actor a core around `Worker`, one thread each, records once in each machine's store.

Train records that are divided among the machines (`data.divided`) are read where they lie, and travel nowhere.

This file and `ray_session.py` are the only ones that import ray. Nothing is restarted behind the user's back: an actor
that is lost has taken secrets with it, so the round cannot go on, and the run ends with one sentence and can be
resumed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import ray
from numpy.typing import NDArray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sottovoce.core.errors import InputError, RunError
from sottovoce.data.machine_parts import Away, Held
from sottovoce.data.placeholder import Elsewhere
from sottovoce.federation.engines.machines import WorkerPlace, machine_name
from sottovoce.federation.engines.placement import Holding, check_found, find_parts, place_workers
from sottovoce.federation.engines.process import Call, Outcome, perform, read_outcome
from sottovoce.federation.engines.ray_session import PLACED, RaySession, ask_machines, in_one_line
from sottovoce.federation.engines.shared_memory import Arrays
from sottovoce.federation.engines.worker import Blueprint, Worker
from sottovoce.federation.engines.workers import Workers

_STREAMED: Final = "step"  # the call whose answers may be as long as the model, one for each client
_IN_FLIGHT: Final = 2  # vectors that a worker may have made and nobody has read yet
_ENDED: Final = 10.0  # seconds for the processes of workers to end
_LOOK: Final = 0.5  # seconds between two looks at what may have happened while nothing came


class RayEngine(Workers):
    """An engine of actors on a Ray cluster."""

    def __init__(self, session: RaySession, blueprint: Blueprint, arrays: Arrays, workers: int | None = None) -> None:
        away = blueprint.partition if isinstance(blueprint.partition, Away) else None
        homes = self._divide(session, away, workers or 0) if away is not None else [None] * (workers or session.cpus)
        if len(homes) > session.cpus:
            raise InputError(
                f"[engine] workers must be at most the {session.cpus} CPUs of the cluster, got {len(homes)}"
            )
        self._records = {split[2:]: len(array) for split, array in arrays.items() if split.startswith("x_")}
        self._session = session
        self._kept: list[bytes] = []
        self._pending: dict[int, Any] = {}
        self._actors: list[Any] = []
        self._places: list[WorkerPlace] = []
        if away is not None:  # what every worker is told has no numbers of anybody's records
            blueprint = replace(blueprint, partition=Elsewhere(away.clients))
        try:
            self._actors = self._hire(homes)
            self._places = self._wait_for_places()
            places = [self._keep(array) for array in arrays.values()]
            parts = None if away is None else (away.folder, away.parts)
            self._everyone(("start", (self._shared(blueprint), parts, list(arrays), *places)))
        except BaseException:
            self.close()
            raise

    def _divide(self, session: RaySession, away: Away, workers: int) -> list[str | None]:
        """Find out which machine holds which parts; return the machine of each worker."""
        nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1}
        machines = {node: told["NodeManagerAddress"] for node, told in nodes.items()}
        search = {name: path for name, path in session.environment.items() if name == "PYTHONPATH"}
        found = ask_machines(machines, search, find_parts, away.folder)
        named = {machine_name(machines[node], node): parts for node, parts in found.items()}
        check_found(named, away.parts, away.folder)
        held = {node: {part.number for part in parts} for node, parts in found.items()}
        homes = place_workers(held, {node: int(told["Resources"]["CPU"]) for node, told in nodes.items()}, workers)
        self._held = Holding(
            tuple(
                tuple(worker for worker, home in enumerate(homes) if part in held[home])
                for part in range(len(away.parts))
            )
        )
        return list(homes)

    @property
    def count(self) -> int:
        """Count the workers."""
        return len(self._actors)

    @property
    def machines(self) -> list[str]:
        """Return the machine of each worker."""
        return [place.machine for place in self._places]

    def close(self) -> None:
        """Stop the actors and free the records."""
        self._pending.clear()
        self._dismiss()
        self._actors.clear()
        while self._kept:
            self._session.forget(self._kept.pop())
        end = time.monotonic() + _ENDED
        while (
            any(place.runs_here for place in self._places) and time.monotonic() < end
        ):  # Ray ends them when it comes to it
            time.sleep(0.02)

    def _hire(self, homes: Sequence[str | None]) -> list[Any]:
        """Start the actors, each on its machine, or where there is room."""
        actor = ray.remote(SottovoceWorker)
        return [actor.options(**options(home, self._session.environment)).remote() for home in homes]

    def _dismiss(self) -> None:
        for actor in self._actors:
            with suppress(Exception):  # one that is lost cannot be stopped
                ray.kill(actor)

    def _shared(self, value: Any) -> Any:
        """Put a value into the store once; who gets it as an argument finds the value in its place."""
        return ray.put(value)

    def _begin(self, worker: int, call: Call) -> None:
        name, arguments = call
        actor = self._actors[worker]
        if name == _STREAMED:
            method = actor.stream.options(num_returns="streaming", _generator_backpressure_num_objects=_IN_FLIGHT)
        else:
            method = actor.call
        try:
            self._pending[worker] = method.remote(name, *arguments)
        except ray.exceptions.RayError as error:
            raise self._failure(worker, error) from None

    def _ready(self, busy: list[int]) -> list[int]:
        pending = {self._pending[worker]: worker for worker in busy}
        while True:
            self._session.check()
            ready, _ = ray.wait(list(pending), timeout=_LOOK)
            if ready:
                return [pending[one] for one in ready]
            for worker in busy:
                if self._places[worker].ended_here:  # on this machine we see it before Ray tells
                    raise self._loss(worker, "its process ended")

    def _receive(self, worker: int) -> tuple[bool, Any]:
        self._ready([worker])
        pending = self._pending[worker]
        try:
            outcome: Outcome = ray.get(next(pending) if isinstance(pending, ray.ObjectRefGenerator) else pending)
        except (ray.exceptions.RayError, StopIteration) as error:
            raise self._failure(worker, error) from None
        last, value = read_outcome(outcome)
        if last:
            del self._pending[worker]
        return last, value

    def _keep(self, array: NDArray[Any]) -> Any:
        key, place = self._session.keep(array)
        self._kept.append(key)
        return place

    def _wait_for_places(self) -> list[WorkerPlace]:
        """Wait until every actor runs; return where."""
        asked = [actor.place.remote() for actor in self._actors]
        left = PLACED
        while True:
            self._session.check()
            ready, waiting = ray.wait(asked, num_returns=len(asked), timeout=_LOOK)
            left -= _LOOK
            if not waiting:
                break
            if left <= 0:
                raise RunError(
                    f"{len(ready)} of {len(asked)} workers found a free CPU on the cluster in {PLACED:.0f} s; set "
                    f"[engine] workers = {max(1, len(ready))}, or wait until others have finished"
                )
        try:
            places: list[WorkerPlace] = ray.get(asked)
        except ray.exceptions.RayError as error:
            raise RunError(f"a worker could not be started: {in_one_line(error)}") from None
        return places

    def _failure(self, worker: int, error: Exception) -> RunError:
        if isinstance(error, ray.exceptions.RayTaskError):
            return RunError(f"a worker failed:\n{error}")
        return self._loss(worker, type(error).__name__)

    def _loss(self, worker: int, cause: str) -> RunError:
        return RunError(
            f"worker {worker} was lost, with its process or its machine {self._places[worker].machine} ({cause}); "
            "the run can be resumed with --resume (if memory ran out, use fewer workers)"
        )


def options(home: str | None, environment: dict[str, str]) -> dict[str, Any]:
    """Return how an actor is made: on a machine, or on whichever has room; one that is lost is never made again."""
    where = "SPREAD" if home is None else NodeAffinitySchedulingStrategy(home, soft=False)
    return {
        "num_cpus": 1,
        "max_restarts": 0,
        "max_task_retries": 0,
        "scheduling_strategy": where,
        "runtime_env": {"env_vars": environment},
    }


class SottovoceWorker:
    """A worker on a machine of the cluster; Ray makes it an actor, which makes one call at a time."""

    _worker: Worker | None = None

    def place(self) -> WorkerPlace:
        """Return where it is."""
        return WorkerPlace.here(machine_name(ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()))

    def start(
        self,
        blueprint: Blueprint,
        parts: tuple[str, tuple[str, ...]] | None,
        names: list[str],
        *arrays: NDArray[Any],
    ) -> None:
        """Make the worker, with records that stay where they are: in the machine's store, or in its folder of parts."""
        held = None if parts is None else Held.open(*parts)
        self._worker = Worker(blueprint, dict(zip(names, arrays, strict=True)), held)

    def call(self, name: str, *arguments: Any) -> Outcome:
        """Make a call whose answer comes whole."""
        return next(self.stream(name, *arguments))

    def stream(self, name: str, *arguments: Any) -> Iterator[Outcome]:
        """Make a call whose answer comes in parts."""
        yield from perform(self if name == "start" else self._worker, (name, arguments))
