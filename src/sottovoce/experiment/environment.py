"""Say what a run runs on, for environment.json."""

from __future__ import annotations

import logging
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sottovoce.experiment.given import Given
from sottovoce.experiment.parts import Parts
from sottovoce.federation.local import cores
from sottovoce.models import choose_trainer

__all__ = ["describe_environment"]


def describe_environment(parts: Parts, given: Given) -> dict[str, Any]:
    """Return what the run runs on; which trainer the workers take is logged too."""
    packages = ("sottovoce", "numpy", "scipy", "torch", "scikit-learn", "dp-accounting", "cryptography")
    client = parts.experiment.client
    choice = choose_trainer(parts.network, parts.training(), client.trainer, client.device)
    logging.getLogger(__name__).info("trainer: %s", choice)
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": cores(),
        "packages": {name: _version(name) for name in packages},
        "trainer": choice.trainer,
        "trainer_reason": choice.reason,
        **({"given": given.names} if given.names else {}),
        "pid": os.getpid(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _version(package: str) -> str | None:
    """Return the version of a package that is installed; None for one that is not, as torch may be."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
