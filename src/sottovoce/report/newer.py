"""Tell whether a run folder was made by a newer version, whose keys may mean something else."""

from __future__ import annotations

import json
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

_FORMAT: Final = 1  # the newest version of preprocessing.json that this code knows


def newer(folder: Path) -> str | None:
    """Return what is newer about a folder than this version, as words; None if nothing is, or if nobody knows."""
    packages = _read(folder / "environment.json").get("packages")
    made = packages.get("sottovoce") if isinstance(packages, dict) else None
    try:
        ours = version("sottovoce")
    except PackageNotFoundError:
        ours = ""
    if isinstance(made, str) and ours and _numbers(made) > _numbers(ours):
        return f"made by sottovoce {made}, this is {ours}: what it does not know is left out"
    written = _read(folder / "preprocessing.json").get("version")
    if isinstance(written, int) and written > _FORMAT:
        return f"made by a newer sottovoce (preprocessing.json has version {written}, {_FORMAT} is known)"
    return None


def _numbers(text: str) -> list[int]:
    """Return the leading numbers of a version.

    >>> _numbers("0.10.2.dev3"), _numbers("1.0") > _numbers("0.10")
    ([0, 10, 2], True)
    """
    found = re.match(r"\d+(\.\d+)*", text)
    return [int(number) for number in found[0].split(".")] if found else []


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the report does not need these files
        return {}
    return told if isinstance(told, dict) else {}
