"""Make sure that written files survive a crash of the machine."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync_folder"]


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on disk; a file's own fsync does not cover its name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
