"""Turn an experiment file into a finished run folder."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sottovoce.experiment.config import Experiment, load, parse
    from sottovoce.experiment.plan import plan
    from sottovoce.experiment.run import run
    from sottovoce.experiment.sweep import sweep

__all__ = ["Experiment", "load", "parse", "plan", "run", "sweep"]

_HOMES = {"Experiment": "config", "load": "config", "parse": "config"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: reading a run folder needs none of the rooms below."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"sottovoce.experiment.{_HOMES.get(name, name)}"), name)
