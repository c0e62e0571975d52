"""Federated learning on thin links: few bytes, few joules, and an honest account of both.

>>> import sottovoce
>>> experiment = sottovoce.parse({"experiment": {"rounds": 5}, "scheme": {"name": "fl-sign"}})
>>> experiment.make_scheme().name
'fl-sign'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sottovoce.core.errors import (
        ConfigError,
        DataError,
        InputError,
        PrivacyError,
        RunError,
        SecAggError,
        SottovoceError,
        WireError,
    )
    from sottovoce.experiment.config import Experiment, load, parse
    from sottovoce.experiment.plan import plan
    from sottovoce.experiment.run import run
    from sottovoce.experiment.sweep import sweep

__all__ = [
    "ConfigError",
    "DataError",
    "Experiment",
    "InputError",
    "PrivacyError",
    "RunError",
    "SecAggError",
    "SottovoceError",
    "WireError",
    "load",
    "parse",
    "plan",
    "run",
    "sweep",
]


_HOMES = {"Experiment": "config", "load": "config", "parse": "config"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `sottovoce --help` does not wait for numba."""
    if name == "__version__":
        from importlib.metadata import version

        return version("sottovoce")
    if name not in __all__:
        raise AttributeError(f"module 'sottovoce' has no attribute {name!r}")
    home = "core.errors" if name.endswith("Error") else f"experiment.{_HOMES.get(name, name)}"
    return getattr(import_module(f"sottovoce.{home}"), name)
