"""Find the processes that a test has started, also those that are nobody's children."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["MARK", "actors", "alive", "eventually_none", "marked"]

MARK = "SOTTOVOCE_TEST_MARK"  # in the environment, which every process hands down


@contextmanager
def marked() -> Iterator[str]:
    """Mark all processes that are started inside."""
    mark, before = uuid.uuid4().hex, os.environ.get(MARK, "")
    os.environ[MARK] = mark
    try:
        yield mark
    finally:
        os.environ[MARK] = before


def alive(mark: str) -> dict[int, str]:
    """Return the marked processes with their names, without this one; one that has ended already is none."""
    found: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().split(b"\0")[0].decode()
        except OSError:
            continue
    return found


def actors(mark: str) -> list[int]:
    """Return the processes of workers."""
    return sorted(pid for pid, name in alive(mark).items() if name.startswith("ray::SottovoceWorker"))


def eventually_none(mark: str, seconds: float = 30.0) -> dict[int, str]:
    """Wait until no marked process is left; return those that are left all the same."""
    end = time.monotonic() + seconds
    while (left := alive(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    return left
