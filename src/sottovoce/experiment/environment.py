"""Say what a run runs on, for environment.json."""

from __future__ import annotations

import logging
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from sottovoce.core.errors import PrivacyError
from sottovoce.experiment.folder import read_environment
from sottovoce.experiment.given import NOTHING, Given
from sottovoce.experiment.parts import Parts
from sottovoce.federation.local import cores
from sottovoce.models import choose_trainer
from sottovoce.privacy import Ledger

__all__ = ["check_environment", "describe_environment"]

_DECIDE: Final = ("python", "machine", "trainer")  # beside the packages: what the bits of an update depend on


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


def check_environment(path: Path, parts: Parts, ledger: Ledger | None, done: int) -> None:
    """Raise if rounds that were charged would be repeated on something else than what the run was started on.

    A resumed simulation repeats rounds after its checkpoint with the same noise. If the clients' updates come out
    otherwise, the difference of the two sums has no noise at all.
    """
    before, now = read_environment(path), describe_environment(parts, NOTHING)
    changed = [name for name in _DECIDE if before.get(name) != now[name]]
    was, packages = before.get("packages"), now["packages"]
    needed = [name for name in packages if name != "torch" or now["trainer"] == "torch"]
    changed += [name for name in needed if not isinstance(was, dict) or was.get(name) != packages[name]]
    if not changed:
        return
    words = f"{path} was started with another version or kind of {', '.join(changed)}"
    if ledger is not None and (repeated := max(ledger.rounds, default=0)) > done:
        raise PrivacyError(
            f"{words}, and rounds {done + 1} to {repeated} would be repeated with the same noise and other updates; "
            "resume with what is in its environment.json, or choose another --out"
        )
    logging.getLogger(__name__).warning("%s: the model may differ in some bits from an undisturbed run", words)


def _version(package: str) -> str | None:
    """Return the version of a package that is installed; None for one that is not, as torch may be."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
