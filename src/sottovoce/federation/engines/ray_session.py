"""The connection of this process to a Ray cluster, which it starts or joins."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

import numpy as np
import ray
from numpy.typing import NDArray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sottovoce.core.errors import InputError, RunError
from sottovoce.federation.engines.local import ONE_THREAD, cores
from sottovoce.federation.engines.machines import answers, differences, machine_name, reader_of_versions
from sottovoce.federation.engines.shared_memory import let_go

LOCAL: Final = "local"
_AUTHENTICATION: Final = "RAY_AUTH_MODE"
PLACED: Final = 120.0  # seconds for a process to find a place on the cluster and start
ZERO: Final = (  # settings of a cluster that is started here; one that is joined has its own
    "RAY_USAGE_STATS_ENABLED",  # nothing is sent home
    "RAY_worker_niceness",  # Ray's workers would give way to everything else on the machine
    "RAY_enable_worker_prestart",  # workers that wait for work are no use: ours have an environment of their own
    "RAY_prestart_worker_first_driver",
)


class RaySession:
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


_JOINED: Final[ContextVar[RaySession | None]] = ContextVar("joined", default=None)


@contextmanager
def joined(address: str, workers: int = 0) -> Iterator[RaySession]:
    """Start a cluster on this machine (`local`), or join one that runs; inside, the same address gives this session.

    A connection that the process has already is used, and left open, except for `local`, which never joins anything.
    """
    session = _JOINED.get()
    if session is not None and session.address == address:
        yield session
        return
    opened = _started(workers or cores()) if address == LOCAL else _connected(address)
    with _silent(), _authentication_as_before(), opened as session:
        token = _JOINED.set(session)
        try:
            yield session
        finally:
            _JOINED.reset(token)


@contextmanager
def _started(cpus: int) -> Iterator[RaySession]:
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
            yield RaySession(LOCAL, cpus, {**ONE_THREAD, "PYTHONPATH": search})
        finally:
            ray.shutdown()


@contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def _silent() -> AbstractContextManager[None]:
    """Keep Ray's own words of a worker's death from the standard output, where a run's results go."""
    return _replaced(ray._private.worker, "print_to_stdstream", lambda *words, **more: None)


@contextmanager
def _authentication_as_before() -> Iterator[None]:
    """Let the next cluster decide anew whether it wants a token: Ray remembers what the last one wanted."""
    before, connected = os.environ.get(_AUTHENTICATION), ray.is_initialized()
    try:
        yield
    finally:
        if not connected and os.environ.get(_AUTHENTICATION) != before:
            os.environ.pop(_AUTHENTICATION, None)
            if before is not None:
                os.environ[_AUTHENTICATION] = before
            with suppress(AttributeError):  # not every Ray has both
                ray._raylet.Config.initialize("")  # which reads the environment
                ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def _on_loopback() -> AbstractContextManager[None]:
    """Let a cluster that starts listen on 127.0.0.1 alone, as it does where Ray knows only clusters of one machine.

    Otherwise it listens to the whole network, whatever address it is told; who reaches it can run code.
    """
    return _replaced(ray._private.ray_constants, "ENABLE_RAY_CLUSTER", False)


@contextmanager
def _connected(address: str) -> Iterator[RaySession]:
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
        yield RaySession(address, int(ray.cluster_resources().get("CPU", 0)), ONE_THREAD)
    finally:
        if not before:
            ray.shutdown()


def _join(address: str) -> None:
    way_out = 'start one with "ray start --head", or set [engine] address = "local"'
    known = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    host, _, port = known.rpartition(":")
    answered = False
    try:
        if host and port.isdigit():
            answers(host, int(port))  # Ray would try for minutes
            answered = True
        with _on_loopback() if _only_here(host, port) else nullcontext():
            _init(address=address)
    except OSError as error:  # ConnectionError too
        where = f"at {known}" if known else "on this machine"
        if answered and _AUTHENTICATION not in os.environ:  # Ray asks for a token, and says that nobody is there
            way_out = f"if it wants a token, set {_AUTHENTICATION}=token in the environment, else {way_out}"
        raise RunError(f"no Ray cluster can be reached {where} ({in_one_line(error)}); {way_out}") from None
    except (RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise RunError(f"the Ray cluster at {address} cannot be joined: {in_one_line(error)}") from None


def _only_here(host: str, port: str) -> bool:
    """Tell whether a cluster listens on 127.0.0.1 alone; Ray would look for it at the machine's other address."""
    if host not in ("127.0.0.1", "localhost"):
        return False
    try:
        answers(ray.util.get_node_ip_address(), int(port))
    except OSError:
        return True
    return False


def _init(**settings: Any) -> None:
    for setting in ZERO:
        os.environ.setdefault(setting, "0")
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(**settings, log_to_driver=False, logging_level=logging.ERROR)


def _check_machines() -> None:
    """Raise if a machine of the cluster would compute with other code than this one."""
    machines = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    theirs = ask_machines(machines, {}, reader_of_versions())
    named = {machine_name(machines[node], node): told for node, told in theirs.items()}
    found = differences(reader_of_versions()(), named)
    if found is not None:
        raise RunError(f"every machine must compute the same bits: {found}; install the same versions on all")


def ask_machines(
    machines: Mapping[str, str], environment: Mapping[str, str], question: Callable[..., Any], *words: Any
) -> dict[str, Any]:
    """Call a function on each machine (node: address), beside its workers; return the answers by node."""
    probe = ray.remote(question)
    asked = {
        probe.options(
            num_cpus=0,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            runtime_env={"env_vars": dict(environment)} if environment else None,
        ).remote(*words): node
        for node in machines
    }
    ready, waiting = ray.wait(list(asked), num_returns=len(asked), timeout=PLACED)
    if waiting:
        node = asked[waiting[0]]
        name = machine_name(machines[node], node)
        raise RunError(f"machine {name} of the cluster did not answer within {PLACED:.0f} s")
    try:
        return {asked[one]: ray.get(one) for one in ready}
    except ray.exceptions.RayError as error:
        raise RunError(f"a machine of the cluster did not answer: {in_one_line(error)}") from None


def in_one_line(error: BaseException) -> str:
    """Return the words of an error of several lines as one, without its full stop."""
    return " ".join(str(error).split()).rstrip(".")
