"""Write a file that a user asked for: whole, or not at all."""

from __future__ import annotations

from pathlib import Path

from sottovoce.core.errors import InputError
from sottovoce.core.files import replace_file


def save(content: bytes, path: Path, option: str) -> None:
    """Replace a file, making its folders; `option` is what the user wrote before the path."""
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise InputError(f"{option} {path} cannot be written: {error.strerror}; choose another file") from None
