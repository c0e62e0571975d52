"""Be a node whose every request starts a process of its own: what a SuperNode's ClientApp does, without flwr.

The SuperNode's operator says in `--node-config` which experiment, keys and records are this node's. Nothing of it comes
from the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from sottovoce.config.experiment import load
from sottovoce.core.errors import InputError
from sottovoce.core.words import value_words
from sottovoce.deployment.flower.node_memory import kept_plan, remembering, taking_turns
from sottovoce.deployment.node.build import state_folder
from sottovoce.deployment.node.join import prepare
from sottovoce.deployment.node.node import Node
from sottovoce.deployment.node.state import Book
from sottovoce.deployment.policy import SitePolicy
from sottovoce.privacy.plan.process import keeping

_NEEDED: Final = ("run", "keys", "data")


def answers(told: Mapping[str, Any], messages: Sequence[bytes]) -> list[bytes]:
    """Let the node take in messages, and return what it sends; with none, its greeting.

    `told` is the SuperNode's own configuration.

    Guarantee: what is returned is what the node remembers to have sent; it is on disk, sealed, before it leaves.
    """
    lacking = [name for name in _NEEDED if name not in told]
    if lacking:
        raise InputError(
            f"--node-config lacks {', '.join(lacking)}; give run (the experiment file), keys (this node's folder) and "
            "data (its records)"
        )
    simulated, label = switch(told, "simulate-randomness"), told.get("label")
    experiment = load(Path(str(told["run"])), ["engine.name=flower"])
    keys = Path(str(told["keys"]))
    folder = state_folder(keys, experiment)
    if simulated:  # a node that takes its secrets from a seed keeps no account, and does not touch one
        folder = folder.with_name(f"simulated-{folder.name}")
    with keeping(partial(kept_plan, folder)):
        ready = prepare(
            experiment,
            None,
            keys,
            str(told["data"]),
            label=None if label is None else str(label),
            simulated=simulated,
            policy=SitePolicy.read(Path(str(told["policy"]))) if "policy" in told else None,
            dataset=str(told["dataset"]) if "dataset" in told else None,
            file=Path(str(told["run"])),
        )
    opening = ready.member.opening is not None
    with taking_turns(folder), Book(ready.state, ready.plan, opening=opening, reserve=ready.reserve) as book:
        node = Node(ready.member, book, guard=ready.guard)
        with remembering(node, folder, ready.member.facts.config.encode()):
            if not messages:
                return [node.hello(1)]
            sent = [answer for message in messages for answer in node.receive(message)]
        if node.over is not None:
            print(node.over.words, flush=True)
        return sent


def switch(told: Mapping[str, Any], name: str) -> bool:
    """Return whether something is switched on; a word such as "false" is refused, not taken for yes."""
    value = told.get(name, False)
    if value not in (True, False) or isinstance(value, str | float):
        raise InputError(f"{name} must be true or false without quotes, got {value_words(value)}")
    return bool(value)


def installed(package: str) -> str:
    """Say which version of a package there is."""
    try:
        return f"version {version(package)} is installed"
    except PackageNotFoundError:
        return "none is installed"
