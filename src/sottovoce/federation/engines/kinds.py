"""Every kind of engine by its name in `[engine] name`; what a kind needs is imported when it is started."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, final

from typing_extensions import override

from sottovoce.core.errors import InputError
from sottovoce.core.packages import require
from sottovoce.core.registry import Registry

if TYPE_CHECKING:
    from sottovoce.federation.engines.ray_session import RaySession
    from sottovoce.federation.engines.shared_memory import Arrays
    from sottovoce.federation.engines.worker import Blueprint
    from sottovoce.federation.engines.workers import Workers

_WORTH_PROCESSES: Final = 3.0
"""Seconds on one core above which a run is divided among processes: starting one takes about half a second."""

_WAITING: Final = ("phase_timeout", "train_timeout", "close", "min_nodes", "max_aborts")
"""Keys of engines that wait for nodes."""


class EngineKeys(Protocol):
    """What of the `[engine]` table an engine in one program may read."""

    @property
    def workers(self) -> int:
        """Return the number of workers; 0: as many as suit the run."""
        ...

    @property
    def address(self) -> str:
        """Return where a cluster is."""
        ...


class EngineKind(ABC):
    """A kind of engine as the rest of the house knows it: which keys it reads, who plays it, and how it starts."""

    name: ClassVar[str]
    keys: ClassVar[tuple[str, ...]] = ()  # of `[engine]`, besides those that all kinds have
    command: ClassVar[str | None] = None  # that plays it, where clients are other machines; None: `sottovoce run`

    @classmethod
    @abstractmethod
    def start(
        cls, table: EngineKeys, blueprint: Blueprint, arrays: Arrays, seconds: float = math.inf
    ) -> AbstractContextManager[Workers]:
        """Return the workers that hold clients and data; they stop when the context ends.

        `seconds` is about what the whole run takes on one core.

        Guarantee: the result of a run does not depend on the engine (`checks.engine_checks`).
        """


@final
class LocalKind(EngineKind):
    """Clients are simulated on this machine, in this process or in several."""

    name = "local"

    @classmethod
    @override
    @contextmanager
    def start(
        cls, table: EngineKeys, blueprint: Blueprint, arrays: Arrays, seconds: float = math.inf
    ) -> Iterator[Workers]:
        from sottovoce.federation.engines.inline import InlineEngine
        from sottovoce.federation.engines.local import LocalEngine, cores

        workers = table.workers
        alone = workers == 1 or (workers == 0 and (cores() == 1 or seconds < _WORTH_PROCESSES))
        with InlineEngine(blueprint, arrays) if alone else LocalEngine(blueprint, arrays, workers or None) as engine:
            yield engine


@final
class RayKind(EngineKind):
    """Clients are simulated on a Ray cluster."""

    name = "ray"
    keys = ("address", "data")

    @classmethod
    @override
    @contextmanager
    def start(
        cls, table: EngineKeys, blueprint: Blueprint, arrays: Arrays, seconds: float = math.inf
    ) -> Iterator[Workers]:
        with cluster(table) as session:
            from sottovoce.federation.engines.ray import RayEngine

            with RayEngine(session, blueprint, arrays, table.workers or None) as engine:
                yield engine


class _Network(EngineKind):
    """Clients are other machines: a command of its own brings them together."""

    @classmethod
    @override
    def start(
        cls, table: EngineKeys, blueprint: Blueprint, arrays: Arrays, seconds: float = math.inf
    ) -> AbstractContextManager[Workers]:
        raise InputError(f'[engine] name = "{cls.name}" is played by nodes; use sottovoce {cls.command}')


@final
class MqttKind(_Network):
    """Clients are nodes of a federation, reached over a broker."""

    name = "mqtt"
    keys = ("broker", "slowest_link", *_WAITING)
    command = "serve"


@final
class FlowerKind(_Network):
    """Clients are the SuperNodes of a Flower fleet."""

    name = "flower"
    keys = _WAITING
    command = "flower"


@contextmanager
def cluster(table: EngineKeys) -> Iterator[RaySession]:
    """Start or join the Ray cluster that the table names."""
    require('[engine] name = "ray"', "ray")
    from sottovoce.federation.engines.ray_session import joined

    with joined(table.address, table.workers) as session:
        yield session


ENGINES: Final[Registry[type[EngineKind]]] = Registry(
    "engine",
    "sottovoce.engines",
    {kind.name: f"{__name__}:{kind.__name__}" for kind in (LocalKind, RayKind, MqttKind, FlowerKind)},
    base=EngineKind,
    labels=("name",),
    key="[engine] name",
)
