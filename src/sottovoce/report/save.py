"""Write a file that a user asked for: whole, or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from sottovoce.core.errors import InputError

__all__ = ["save"]


def save(content: bytes, path: Path, option: str) -> None:
    """Replace a file, making its folders; `option` is what the user wrote before the path."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(content)
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise InputError(f"{option} {path} cannot be written: {error.strerror}; choose another file") from None
