"""Write files and folders so that a reader, also after a crash, finds the old one, the new one or none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sottovoce.core.errors import InputError
from sottovoce.core.files import sync_folder

__all__ = ["PRIVATE", "PUBLIC", "new_folder", "read_private", "replace_file", "write_new"]

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644


def write_new(path: Path, data: bytes, mode: int = PUBLIC) -> None:
    """Write a file that is not there yet; a private one is never readable by others, not even for a moment."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # whatever the umask
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def replace_file(path: Path, data: bytes, mode: int = PUBLIC) -> None:
    """Write a file in place of the one that may be there, at once."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)  # left by a command that was killed
    try:
        write_new(fresh, data, mode)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a folder to fill; it gets its name when it is whole, and goes away if filling it fails."""
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent))  # mode 0700
    try:
        yield fresh
        for folder in (fresh, *(each for each in fresh.rglob("*") if each.is_dir())):
            sync_folder(folder)
        try:
            fresh.rename(path)
        except OSError:
            if path.exists():
                raise InputError(f"{path} is already there and was not changed; give another name") from None
            raise
        sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def read_private(path: Path) -> bytes:
    """Return what is in a file with a secret, if nobody but its owner may read it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        if (mode := os.fstat(descriptor).st_mode & 0o777) & 0o077:
            raise InputError(f"{path} holds a secret and has mode {mode:o}, must be 600; type: chmod 600 {path}")
        try:
            return file.read()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
