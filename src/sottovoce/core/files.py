"""Write files and folders so that a reader, also after a crash of the machine, finds the old one, the new one or none.

All writes go the same way: a draft beside the file, with its permissions from the moment it is made, is brought to the
disk, takes the file's name, and then the folder is brought to the disk, because a file's own fsync does not cover its
name.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sottovoce.core.errors import InputError

PRIVATE: Final = 0o600
PUBLIC: Final = 0o666  # less the umask, as for any other program's files


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on disk."""
    _sync(path)


def write_new(path: Path, data: bytes, mode: int = PUBLIC) -> None:
    """Write a file that is not there yet; a private one is never readable by others, not even for a moment."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes | str, mode: int = PUBLIC) -> None:
    """Write a file in place of the one that may be there, at once; on return it is on disk."""
    with replacing(path, mode) as draft:
        draft.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing(path: Path, mode: int = PUBLIC, suffix: str = "") -> Iterator[Path]:
    """Give an empty draft to write to, which takes a file's place when the block ends well; else it goes away.

    Guarantee: the file is the old one or the new one, whole, whenever the machine stops; after the block it is the new
    one. With mode `PRIVATE` nobody else can ever read it.
    """
    try:
        _remove_left(path)
        with _replacing(path, mode, suffix) as draft:
            yield draft
    except OSError as error:
        if error.errno is not None and error.filename is None:  # a full disk tells no path
            error.filename = str(path)
        raise


@contextmanager
def _replacing(path: Path, mode: int, suffix: str) -> Iterator[Path]:
    draft = path.with_name(f".{path.name}.{os.getpid()}.new{suffix}")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield draft
        _sync(draft)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync(path.parent)


@contextmanager
def new_folder(path: Path, mode: int = 0o700) -> Iterator[Path]:
    """Give a folder to fill; it gets its name when it is whole, and goes away if filling it fails."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode)
    try:
        yield fresh
        for each in (*fresh.rglob("*"), fresh):
            _sync(each)
        try:
            fresh.rename(path)
        except OSError:
            if path.exists():
                raise InputError(f"{path} is already there and was not changed; give another name") from None
            raise
        _sync(path.parent)
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


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_left(path: Path) -> None:
    """Remove drafts of processes that were killed; one of a process that lives is not touched."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.new*"):
        number = left.name[len(path.name) + 2 :].split(".", 1)[0]
        if number.isdecimal() and int(number) != os.getpid() and not _alive(int(number)):
            with suppress(OSError):
                left.unlink()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
