"""`sottovoce init`: an experiment file to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.options import AsJson
from sottovoce.cli.output import put, put_json
from sottovoce.core.errors import InputError

DOOR = "try"
EXAMPLE = "Example: sottovoce init first.toml"

_TEMPLATE = Path(__file__).with_name("experiment.toml")
_TEMPLATES = Path(__file__).with_name("templates")


def template_names() -> list[str]:
    """Return the names of the templates beside the usual one."""
    return sorted(file.stem for file in _TEMPLATES.glob("*.toml"))


def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="The file to write.")] = Path("experiment.toml"),
    template: Annotated[
        str | None,
        typer.Option("--template", metavar="NAME", help="hospital, images, iot or text.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a commented experiment file; an existing file is never overwritten."""
    source = _TEMPLATE if template is None else _TEMPLATES / f"{template}.toml"
    if template is not None and template not in template_names():
        from sottovoce.core.validate import nearest

        guess = nearest(template, template_names())
        hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(template_names())}"
        raise InputError(f"there is no template {template!r}; {hint}")
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(source.read_text(encoding="utf-8"))
    except FileExistsError:
        raise InputError(f"{file} is already there and was not changed; give another name") from None
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}; give another name") from None
    command = shlex.join(["sottovoce", "run", str(file)])
    if as_json:
        put_json({"path": str(file), "run": command})
    else:
        put(f"wrote {file}; run it with: {command}\n")
