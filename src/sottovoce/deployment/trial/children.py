"""Let the processes of a trial end with the one that started them, also when that one is killed."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def _prctl() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        found: Callable[..., int] = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    return found


_FOUND: Final = _prctl()  # looked up before anybody forks


def die_with_parent() -> None:
    """Ask Linux to end this process when its parent's thread does; elsewhere do nothing. For `preexec_fn`."""
    if _FOUND is not None:
        _FOUND(_PR_SET_PDEATHSIG, signal.SIGTERM)
