"""A federation whose every message starts a node anew, as on a Flower fleet, in one process and without flwr."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sottovoce.assembly.parts import gather
from sottovoce.config.experiment import Experiment, parse, to_toml
from sottovoce.deployment.flower.node import answers
from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster
from sottovoce.deployment.roster import Roster
from sottovoce.deployment.server.serve import serve
from sottovoce.deployment.trial.trial import deal, deployable
from sottovoce.federation.engines.mqtt.carrier import LinkQuality, Listener
from sottovoce.federation.engines.mqtt.envelope import Kind, kind_of, phase_of, topic_from

__all__ = ["NODES", "Killed", "Processes", "federate"]

NODES = 4


class Killed(BaseException):
    """The server's end, as by kill -9: nobody hears of it."""


@dataclass
class Processes:
    """The nodes of a federation, and what happened to them."""

    folder: Path
    experiment: Experiment
    simulated: bool
    heard: list[tuple[int, bytes]] = field(default_factory=list)  # every message to a node, as the server sent it
    said: list[tuple[int, bytes]] = field(default_factory=list)

    def told(self, node: int) -> dict[str, Any]:
        """Return a SuperNode's configuration."""
        where = {"run": "experiment.toml", "keys": f"fed/nodes/n{node}", "data": f"node{node}.npz"}
        return {
            **{name: str(self.folder / path) for name, path in where.items()},
            "simulate-randomness": self.simulated,
        }

    def state(self, node: int) -> Path:
        """Return the folder of a node's account."""
        (found,) = (self.folder / "fed" / "nodes" / f"n{node}" / "state").glob("*/turn")
        return found.parent

    def asks(self, node: int, phase: str) -> list[bytes]:
        """Return the requests that a node got for a phase."""
        return [text for to, text in self.heard if to == node and kind_of(text) == Kind.ASK and phase_of(text) == phase]

    def answer(self, node: int, *messages: bytes) -> list[bytes]:
        """Start a process for a node, and return what it sends."""
        sent = answers(self.told(node), messages)
        self.said.extend((node, text) for text in sent)
        return sent

    def serve(self, *, resume: bool = False, die: Callable[[bytes], bool] = lambda message: False, **more: Any) -> Any:
        """Play the experiment; the server dies before it sends a message of which `die` is true."""
        return serve(
            self.experiment,
            self.folder / "out",
            keys=self.folder / "fed" / "server",
            carrier=partial(_Carried, self, die),
            resume=resume,
            simulated=self.simulated,
            **more,
        )


class _Carried:
    """A carrier that starts a node for every message, one after the other, on a thread of its own."""

    def __init__(
        self, fleet: Processes, die: Callable[[bytes], bool], listener: Listener, roster: Roster, most: int
    ) -> None:
        self._fleet, self._die, self._listener, self._roster = fleet, die, listener, roster
        self._queue: queue.SimpleQueue[tuple[int, bytes | None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._dead = False

    def connect(self) -> None:
        self._thread.start()
        for node in range(NODES):
            self._queue.put((node, None))

    def publish(self, topic: str, message: bytes, *, patience: float = 0.0) -> bool:
        if self._die(message):
            self._dead = True
            raise Killed
        if not self._dead:
            node = int(topic.rsplit("/", 1)[1])
            self._fleet.heard.append((node, message))
            self._queue.put((node, message))
        return True

    def flush(self, seconds: float) -> bool:
        return True

    def link(self) -> LinkQuality:
        return LinkQuality()

    def attend(self, *, busy: bool) -> None:
        pass

    def wire(self) -> tuple[int, int]:
        return 0, 0

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _carry(self) -> None:
        while (item := self._queue.get()) is not None:
            node, message = item
            if self._dead:
                continue
            for sent in self._fleet.answer(node, *([] if message is None else [message])):
                self._listener.heard(topic_from(self._roster.federation, node), sent)


def federate(folder: Path, tables: dict[str, Any], *, simulated: bool) -> Processes:
    """Make keys, records and the file of a federation."""
    dealt = gather(parse(tables))
    experiment = deployable(
        parse({**tables, "engine": {"name": "flower", "phase_timeout": 60.0, "train_timeout": 60.0}}), dealt
    )
    init_federation(folder / "fed")
    add_nodes(folder / "fed", [f"n{number}" for number in range(NODES)])
    sign_roster(folder / "fed")
    deal(dealt, folder)
    (folder / "experiment.toml").write_text(to_toml(experiment.tables()))
    return Processes(folder, experiment, simulated)
