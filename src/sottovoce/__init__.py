"""Federated learning on thin links: few bytes, few joules, and an honest account of both.

>>> import sottovoce as sv
>>> result = sv.simulate("digits", "mlp", scheme="fl-sign", clients=20, rounds=2, workers=1)
>>> result["scheme"], len(result.rounds)
('fl-sign', 2)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sottovoce.api.estimators import FederatedClassifier, FederatedRegressor
    from sottovoce.api.files import load, result, run
    from sottovoce.api.privacy import Privacy
    from sottovoce.api.result import Result
    from sottovoce.api.simulate import simulate
    from sottovoce.assembly.overrides import Stop
    from sottovoce.config.experiment import Experiment, parse
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
    from sottovoce.data import Dataset
    from sottovoce.models import Network
    from sottovoce.planning.plan import plan
    from sottovoce.schemes import Scheme
    from sottovoce.search.sweep import sweep

__all__ = [
    "ConfigError",
    "DataError",
    "Dataset",
    "Experiment",
    "FederatedClassifier",
    "FederatedRegressor",
    "InputError",
    "Network",
    "Privacy",
    "PrivacyError",
    "Result",
    "RunError",
    "Scheme",
    "SecAggError",
    "SottovoceError",
    "Stop",
    "WireError",
    "load",
    "parse",
    "plan",
    "result",
    "run",
    "simulate",
    "sweep",
]

_HOMES = {
    "Dataset": "data",
    "Experiment": "config.experiment",
    "FederatedClassifier": "api.estimators",
    "FederatedRegressor": "api.estimators",
    "Network": "models",
    "Privacy": "api.privacy",
    "Result": "api.result",
    "Scheme": "schemes",
    "Stop": "assembly.overrides",
    "load": "api.files",
    "parse": "config.experiment",
    "plan": "planning.plan",
    "result": "api.files",
    "run": "api.files",
    "simulate": "api.simulate",
    "sweep": "search.sweep",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `sottovoce --help` does not wait for numpy."""
    if name == "__version__":
        from importlib.metadata import version

        return version("sottovoce")
    if name not in __all__:
        raise AttributeError(f"module 'sottovoce' has no attribute {name!r}")
    home = _HOMES.get(name, "core.errors")
    return getattr(import_module(f"sottovoce.{home}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
