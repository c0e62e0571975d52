"""`sottovoce init`: an experiment file to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.options import AsJson
from sottovoce.cli.output import put, put_json
from sottovoce.core.errors import InputError

__all__ = ["EXAMPLE", "init"]

EXAMPLE = "Example: sottovoce init first.toml"

_TEMPLATE = Path(__file__).with_name("experiment.toml")


def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="The file to write.")] = Path("experiment.toml"),
    as_json: AsJson = False,
) -> None:
    """Write a commented experiment file; an existing file is never overwritten."""
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(_TEMPLATE.read_text(encoding="utf-8"))
    except FileExistsError:
        raise InputError(f"{file} is already there and was not changed; give another name") from None
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}; give another name") from None
    command = shlex.join(["sottovoce", "run", str(file)])
    if as_json:
        put_json({"path": str(file), "run": command})
    else:
        put(f"wrote {file}; run it with: {command}\n")
