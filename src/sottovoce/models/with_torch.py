"""Ask for torch where it is needed, and say in one sentence who needs it when it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

from sottovoce.core.errors import InputError

__all__ = ["INSTALL", "has_torch", "needs_torch"]

INSTALL = "pip install 'sottovoce[torch]'"


def has_torch() -> bool:
    """Tell whether torch is installed, without importing it."""
    return find_spec("torch") is not None


def needs_torch(what: str) -> None:
    """Raise unless torch is installed; `what` needs it.

    >>> needs_torch("--to torch")
    """
    if not has_torch():
        raise InputError(f"{what} needs torch, which is not installed; install it with: {INSTALL}")
