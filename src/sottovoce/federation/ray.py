"""Simulate on a Ray cluster: one actor a core around `Worker`, one thread each, records once in each machine's store.

This is the only file that imports ray. Nothing is restarted behind the user's back: an actor that is lost has taken
secrets with it, so the round cannot go on, and the run ends with one sentence and can be resumed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

import numpy as np
import ray
from numpy.typing import NDArray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sottovoce.core.errors import InputError, RunError
from sottovoce.federation.calls import Call, Outcome, perform, read_outcome
from sottovoce.federation.local import ONE_THREAD, cores
from sottovoce.federation.shared import Arrays, let_go
from sottovoce.federation.worker import Blueprint, Worker
from sottovoce.federation.workers import Workers

__all__ = ["RayEngine", "Session", "differences", "joined"]

LOCAL: Final = "local"
_STREAMED: Final = "step"  # the call whose answers may be as long as the model, one for each client
_IN_FLIGHT: Final = 2  # vectors that a worker may have made and nobody has read yet
_REACHED: Final = 5.0  # seconds for a machine to accept a connection
_PLACED: Final = 120.0  # seconds for all workers to find a free CPU and start
_LOOK: Final = 0.5  # seconds between two looks at whether somebody stopped the session
_PACKAGES: Final = ("sottovoce", "numpy", "numba", "torch")  # that decide the bits of a model

Versions = Mapping[str, str]


class Session:
    """The connection of this process to a cluster, for any number of engines at the same time."""

    def __init__(self, address: str, cpus: int, environment: Mapping[str, str]) -> None:
        self.address = address
        self.cpus = cpus
        self.environment = dict(environment)  # of every worker
        self._kept: dict[bytes, tuple[Any, int]] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def keep(self, array: NDArray[Any]) -> tuple[bytes, Any]:
        """Put an array into the store, unless an engine of this session has put the same one; return key and place."""
        whole = np.ascontiguousarray(array)
        key = hashlib.blake2b(f"{array.dtype.str} {array.shape}".encode())
        key.update(whole.reshape(-1).view(np.uint8).data if whole.size else b"")
        with self._lock:
            place, engines = self._kept.get(key.digest(), (None, 0))
            place = ray.put(whole) if place is None else place
            self._kept[key.digest()] = (place, engines + 1)
        let_go(array)
        return key.digest(), place

    def forget(self, key: bytes) -> None:
        """Let go of an array; the last engine that does frees it."""
        with self._lock:
            place, engines = self._kept.pop(key)
            if engines > 1:
                self._kept[key] = (place, engines - 1)

    def stop(self) -> None:
        """Let every engine of this session end its run, at whatever it is."""
        self._stopped.set()

    def check(self) -> None:
        """Raise if somebody stopped the session."""
        if self._stopped.is_set():
            raise RunError("the run was stopped; go on with --resume")


_JOINED: Final[ContextVar[Session | None]] = ContextVar("joined", default=None)


@contextmanager
def joined(address: str, workers: int = 0) -> Iterator[Session]:
    """Start a cluster on this machine (`local`), or join one that runs; inside, the same address gives this session.

    A connection that the process has already is used, and left open, except for `local`, which never joins anything.
    """
    session = _JOINED.get()
    if session is not None and session.address == address:
        yield session
        return
    with _started(workers or cores()) if address == LOCAL else _connected(address) as session:
        token = _JOINED.set(session)
        try:
            yield session
        finally:
            _JOINED.reset(token)


class RayEngine(Workers):
    """An engine of actors on a Ray cluster."""

    def __init__(self, session: Session, blueprint: Blueprint, arrays: Arrays, workers: int | None = None) -> None:
        count = workers or session.cpus
        if count > session.cpus:
            raise InputError(f"[engine] workers must be at most the {session.cpus} CPUs of the cluster, got {count}")
        self._records = {split[2:]: len(array) for split, array in arrays.items() if split.startswith("x_")}
        self._session = session
        self._kept: list[bytes] = []
        self._pending: dict[int, Any] = {}
        self._actors: list[Any] = []
        self._machines: list[str] = []
        try:
            actor = ray.remote(SottovoceWorker).options(
                num_cpus=1,
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy="SPREAD",
                runtime_env={"env_vars": session.environment},
            )
            self._actors = [actor.remote() for _ in range(count)]
            self._machines = self._place()
            places = [self._keep(array) for array in arrays.values()]
            self._everyone(("start", (self._shared(blueprint), list(arrays), *places)))
        except BaseException:
            self.close()
            raise

    @property
    def count(self) -> int:
        """Count the workers."""
        return len(self._actors)

    @property
    def machines(self) -> list[str]:
        """Return the machine of each worker."""
        return list(self._machines)

    def close(self) -> None:
        """Stop the actors and free the records."""
        self._pending.clear()
        for actor in self._actors:
            with suppress(Exception):  # one that is lost cannot be stopped
                ray.kill(actor)
        self._actors.clear()
        while self._kept:
            self._session.forget(self._kept.pop())

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
            raise self._loss(worker, error) from None

    def _ready(self, busy: list[int]) -> list[int]:
        pending = {self._pending[worker]: worker for worker in busy}
        while True:
            self._session.check()
            ready, _ = ray.wait(list(pending), timeout=_LOOK)
            if ready:
                return [pending[one] for one in ready]

    def _receive(self, worker: int) -> tuple[bool, Any]:
        self._ready([worker])
        pending = self._pending[worker]
        try:
            outcome: Outcome = ray.get(next(pending) if isinstance(pending, ray.ObjectRefGenerator) else pending)
        except (ray.exceptions.RayError, StopIteration) as error:
            raise self._loss(worker, error) from None
        last, value = read_outcome(outcome)
        if last:
            del self._pending[worker]
        return last, value

    def _keep(self, array: NDArray[Any]) -> Any:
        key, place = self._session.keep(array)
        self._kept.append(key)
        return place

    def _place(self) -> list[str]:
        """Wait until every actor runs; return where."""
        asked = [actor.machine.remote() for actor in self._actors]
        left = _PLACED
        while True:
            self._session.check()
            ready, waiting = ray.wait(asked, num_returns=len(asked), timeout=_LOOK)
            left -= _LOOK
            if not waiting:
                break
            if left <= 0:
                raise RunError(
                    f"{len(ready)} of {len(asked)} workers found a free CPU on the cluster in {_PLACED:.0f} s; set "
                    f"[engine] workers = {max(1, len(ready))}, or wait until others have finished"
                )
        try:
            machines: list[str] = ray.get(asked)
        except ray.exceptions.RayError as error:
            raise RunError(f"a worker could not be started: {_in_one_line(error)}") from None
        return machines

    def _loss(self, worker: int, error: Exception) -> RunError:
        if isinstance(error, ray.exceptions.RayTaskError):
            return RunError(f"a worker failed:\n{error}")
        cause = "it ran out of memory" if isinstance(error, ray.exceptions.OutOfMemoryError) else type(error).__name__
        return RunError(
            f"worker {worker} was lost, with its process or its machine {self._machines[worker]} ({cause}); the run "
            "can be resumed with --resume (if memory ran out, use fewer workers)"
        )


class SottovoceWorker:
    """A worker on a machine of the cluster; Ray makes it an actor, which makes one call at a time."""

    _worker: Worker | None = None

    def machine(self) -> str:
        """Return which machine it is."""
        return _machine(ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id())

    def start(self, blueprint: Blueprint, names: list[str], *arrays: NDArray[Any]) -> None:
        """Make the worker, with records that stay where they are in the machine's store."""
        self._worker = Worker(blueprint, dict(zip(names, arrays, strict=True)))

    def call(self, name: str, *arguments: Any) -> Outcome:
        """Make a call whose answer comes whole."""
        return next(self.stream(name, *arguments))

    def stream(self, name: str, *arguments: Any) -> Iterator[Outcome]:
        """Make a call whose answer comes in parts."""
        yield from perform(self if name == "start" else self._worker, (name, arguments))


def differences(ours: Versions, theirs: Mapping[str, Versions]) -> str | None:
    """Return what other machines have in other versions than this one, as a clause; None if all are the same."""
    told = [
        f"machine {machine} has {name} {versions.get(name, 'not installed')} and this one {version}"
        for machine, versions in theirs.items()
        for name, version in ours.items()
        if versions.get(name) != version
    ]
    return "; ".join(told) or None


@contextmanager
def _started(cpus: int) -> Iterator[Session]:
    """Start a cluster of this machine alone, which nobody else finds, and stop it."""
    if ray.is_initialized():
        raise InputError(
            f'this process is connected to a Ray cluster already, and [engine] address = "{LOCAL}" never joins one; '
            'call ray.shutdown() before, or set address = "auto"'
        )
    search = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109 - "" means here
    root = Path("/tmp")  # the names of sockets below it may have 107 letters at most
    with tempfile.TemporaryDirectory(
        prefix="sottovoce-", dir=root if root.is_dir() else None, ignore_cleanup_errors=True
    ) as folder:
        try:
            with _on_loopback():
                _init(address=LOCAL, num_cpus=cpus, include_dashboard=False, _temp_dir=folder)
            yield Session(LOCAL, cpus, {**ONE_THREAD, "PYTHONPATH": search})
        finally:
            ray.shutdown()


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let a cluster that starts listen on 127.0.0.1 alone, as it does where Ray knows only clusters of one machine.

    Otherwise it listens to the whole network, whatever address it is told; who reaches it can run code.
    """
    constants: Any = ray._private.ray_constants
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _connected(address: str) -> Iterator[Session]:
    """Join a cluster that runs, and leave it again if this process was not part of it before."""
    before = ray.is_initialized()
    try:
        if not before:
            _join(address)
        elif address not in ("auto", current := ray.get_runtime_context().gcs_address):
            raise InputError(
                f"this process is connected to the Ray cluster at {current} already, and [engine] address is "
                f'"{address}"; call ray.shutdown() before, or set address = "auto"'
            )
        _check_machines()
        yield Session(address, int(ray.cluster_resources().get("CPU", 0)), ONE_THREAD)
    finally:
        if not before:
            ray.shutdown()


def _join(address: str) -> None:
    way_out = 'start one with "ray start --head", or set [engine] address = "local"'
    host, colon, port = address.rpartition(":")
    try:
        if colon:
            socket.create_connection((host, int(port)), _REACHED).close()  # Ray would try for minutes
        with _on_loopback() if _only_here(host, port) else nullcontext():
            _init(address=address)
    except OSError as error:  # ConnectionError too
        where = f"at {address}" if colon else "on this machine"
        raise RunError(f"no Ray cluster can be reached {where} ({_in_one_line(error)}); {way_out}") from None
    except (RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise RunError(f"the Ray cluster at {address} cannot be joined: {_in_one_line(error)}") from None


def _only_here(host: str, port: str) -> bool:
    """Tell whether a cluster listens on 127.0.0.1 alone; Ray would look for it at the machine's other address."""
    if host not in ("127.0.0.1", "localhost"):
        return False
    try:
        socket.create_connection((ray.util.get_node_ip_address(), int(port)), _REACHED).close()
    except OSError:
        return True
    return False


def _init(**settings: Any) -> None:
    # Ray sends nothing home. Workers that wait for work are no use: ours have an environment of their own.
    for setting in ("RAY_USAGE_STATS_ENABLED", "RAY_enable_worker_prestart", "RAY_prestart_worker_first_driver"):
        os.environ.setdefault(setting, "0")
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(**settings, log_to_driver=False, logging_level=logging.ERROR)


def _check_machines() -> None:
    """Raise if a machine of the cluster would compute with other code than this one."""
    machines = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    probe = ray.remote(_reader_of_versions())
    asked = {
        probe.options(
            num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
        ).remote(): _machine(address, node)
        for node, address in machines.items()
    }
    ready, waiting = ray.wait(list(asked), num_returns=len(asked), timeout=_PLACED)
    if waiting:
        raise RunError(f"machine {asked[waiting[0]]} of the cluster did not answer within {_PLACED:.0f} s")
    try:
        theirs = {asked[one]: ray.get(one) for one in ready}
    except ray.exceptions.RayError as error:
        raise RunError(f"a machine of the cluster did not tell its versions: {_in_one_line(error)}") from None
    found = differences(_reader_of_versions()(), theirs)
    if found is not None:
        raise RunError(f"every machine must compute the same bits: {found}; install the same versions on all")


def _reader_of_versions() -> Any:
    """Return a function that tells the versions of a machine; sent as code, as the machine may lack this package."""
    packages = _PACKAGES

    def versions() -> dict[str, str]:
        import platform
        from importlib.metadata import PackageNotFoundError, version

        found = {"python": platform.python_version()}
        for name in packages:
            try:
                found[name] = version(name).partition("+")[0]  # without how it was built
            except PackageNotFoundError:
                continue
        return found

    return versions


def _machine(address: str, node: str) -> str:
    """Return what tells a machine from others, also from one that plays several."""
    return f"{address} ({node[:8]})"


def _in_one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")
