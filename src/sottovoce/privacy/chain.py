"""The chain of a ledger's lines: each names the hash of the one before, and only the last can be torn."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from sottovoce.core.errors import PrivacyError

__all__ = ["GENESIS", "Verdict", "chained", "hash_of", "open_locked", "split_torn", "verify"]

GENESIS: Final = "0" * 64


class Verdict(NamedTuple):
    """The result of checking a ledger: the rounds that whole lines charge, and what is wrong, if anything."""

    charged: list[int]
    problem: str | None


def verify(path: Path) -> Verdict:
    """Check the chain of a ledger without locking or changing it; a torn end, of a run that is writing, is left out."""
    charged: list[int] = []
    last, digest = GENESIS, None
    try:
        lines, _ = split_torn(path.read_bytes())
    except FileNotFoundError:
        return Verdict([], f"there is no {path.name}")
    except OSError as error:
        return Verdict([], f"{path.name} cannot be read: {error.strerror}")
    for index, line in enumerate(lines):
        entry = chained(line, index, last)
        if entry is None:
            return Verdict(charged, f"{path.name} line {index + 1} is damaged: the chain of hashes is broken")
        if (entry.get("kind") == "open") != (index == 0):
            return Verdict(charged, f"{path.name} line {index + 1} is of kind {entry.get('kind')!r}")
        if entry.get("digest") != (digest or entry.get("digest")):
            return Verdict(charged, f"{path.name} line {index + 1} belongs to another plan")
        if entry.get("kind") == "charge" and isinstance(entry.get("round"), int):
            charged.append(entry["round"])
        last, digest = entry["hash"], entry.get("digest")
    return Verdict(charged, None if lines else f"{path.name} is empty")


def chained(line: bytes, index: int, last: str) -> dict[str, Any] | None:
    """Return what a line holds if it follows the line whose hash is `last`."""
    try:
        entry: dict[str, Any] = json.loads(line)
        bare = {key: value for key, value in entry.items() if key != "hash"}
        sound = (entry["index"], entry["previous"], entry["hash"]) == (index, last, hash_of(bare))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return entry if sound else None


def open_locked(path: Path, *, patience: float = 0.0) -> Any:
    """Open a ledger's file for one process; wait so many seconds for another one that has it."""
    deadline = time.monotonic() + patience
    while True:
        file = path.open("a+b")
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _still_there(path, file):
                return file
            file.close()  # it was removed while we waited: nobody else would see what we write
        except OSError:
            file.close()
            if time.monotonic() >= deadline:
                raise PrivacyError(f"{path.name} is in use by another process; one run keeps one ledger") from None
            time.sleep(0.02)


def _still_there(path: Path, file: Any) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def split_torn(content: bytes) -> tuple[list[bytes], bytes]:
    """Return the whole lines and the torn end, which a kill can leave only at the end."""
    lines = content.split(b"\n")
    return lines[:-1], lines[-1]


def hash_of(entry: dict[str, Any]) -> str:
    """Return the hash of a line without its own."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
