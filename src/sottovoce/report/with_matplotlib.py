"""Ask for matplotlib before a picture is drawn; interactive pages need none."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from sottovoce.core.errors import InputError

__all__ = ["can_draw"]


def can_draw(png: Path | None) -> None:
    """Raise if a picture is wanted and matplotlib, which draws it, is not installed; called before any work is done."""
    if png is not None and find_spec("matplotlib") is None:
        raise InputError(
            "--png needs matplotlib, which is not installed; install it with: pip install 'sottovoce[png]'"
        )
