"""`sottovoce examples`: the experiment files that come with the package."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sottovoce.cli.options import AsJson
from sottovoce.cli.output import put, put_json, put_tables, width
from sottovoce.core.errors import InputError

DOOR = "try"
examples = typer.Typer(
    help="List the experiment files that come with sottovoce, or copy one.",
    epilog="Example: sottovoce examples get quickstart",
    invoke_without_command=True,
)

FOLDER: Final = Path(__file__).parents[2] / "experiments"  # as config.experiment.EXAMPLES, without its imports


def names() -> list[str]:
    """Return the names of all examples: paths below the folder, without `.toml`; those at the top come first."""
    files = (file.relative_to(FOLDER).with_suffix("") for file in FOLDER.rglob("*.toml"))
    return [path.as_posix() for path in sorted(files, key=lambda path: (len(path.parts), path.parts))]


@examples.callback()
def _list(context: typer.Context, as_json: AsJson = False) -> None:
    """List the examples: what each is, and the data that it needs."""
    if context.invoked_subcommand is not None:
        return
    described = [_described(name) for name in names()]
    if as_json:
        put_json(described)
        return
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False)
    drawn.add_column("name", no_wrap=True)
    drawn.add_column("data", no_wrap=True)
    drawn.add_column("what it is", overflow="fold")
    for each in described:
        drawn.add_row(*(Text(each[key] or "") for key in ("name", "data", "about")))
    put_tables(drawn, at_most=min(width(), 120))
    put("\nCopy one: sottovoce examples get NAME. Data that are not embedded: sottovoce data fetch NAME.\n")


@examples.command("get", epilog="Example: sottovoce examples get quickstart")
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An example, as listed.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The file to write; else NAME.toml here.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy an example into this folder; an existing file is never overwritten."""
    source = _file(name)
    target = out if out is not None else Path(source.name)
    beside = {target.parent / file.relative_to(source.parent): file for file in _beside(source)}
    if there := [str(path) for path in (target, *beside) if path.exists()]:
        raise InputError(f"{there[0]} is already there and was not changed; name another file with --out")
    try:
        with target.open("x", encoding="utf-8") as written:
            # The commands in its comments name the file; they shall work where it is now.
            written.write(source.read_text(encoding="utf-8").replace(_place(name), shlex.quote(str(target))))
        for path, file in beside.items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(file.read_bytes())
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}; name another file with --out") from None
    command = _described(name)["command"]
    command = command and command.replace(_place(name), shlex.quote(str(target)))
    if as_json:
        put_json({"path": str(target), "beside": [str(path) for path in beside], "run": command})
    else:
        also = f" and {len(beside)} files that it names" if beside else ""
        put(f"wrote {target}{also}" + (f"; run it with: {command}\n" if command else "\n"))


def _file(name: str) -> Path:
    known, plain = names(), _plain(name)
    if plain not in known:
        from sottovoce.core.validate import nearest

        guess = nearest(plain, known)
        hint = f"did you mean {guess!r}?" if guess else "`sottovoce examples` lists them"
        raise InputError(f"there is no example {name!r}; {hint}")
    return FOLDER / f"{plain}.toml"


def _beside(file: Path) -> list[Path]:
    """Return the tables and the schema of the package that an example names by their place beside it."""
    data = tomllib.loads(file.read_text(encoding="utf-8")).get("data", {})
    patterns = [data[key] for key in ("source", "schema") if isinstance(data.get(key), str) and "/" in data[key]]
    return [found for pattern in patterns for found in sorted(file.parent.glob(pattern))]


def _plain(name: str) -> str:
    return name.removeprefix("experiments/").removesuffix(".toml")


def _place(name: str) -> str:
    """Return the path of an example in a checkout, which its own comments use."""
    return f"experiments/{_plain(name)}.toml"


def _described(name: str) -> dict[str, Any]:
    """Return what a file says of itself: a sentence, its data, the command that reads it."""
    file = _file(name)
    text = file.read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    return {
        "name": _plain(name),
        "about": _first_sentence(text),
        "data": tables.get("data", {}).get("source") or tables.get("study", {}).get("data"),
        "command": _command(text, tables, _place(name)),
    }


def _first_sentence(text: str) -> str:
    """Return the comment at the top of a file, up to the first word that ends a sentence."""
    comment = []
    for line in text.splitlines():
        if not line.startswith("#") or re.match(r"#\s+sottovoce ", line):
            break
        comment.append(line.removeprefix("#").strip())
    words = " ".join(comment).split()
    for index, word in enumerate(words):
        if word.endswith(".") and word not in ("Tab.", "Fig."):
            return " ".join([*words[:index], word[:-1]])
    return " ".join(words)


def _command(text: str, tables: dict[str, Any], place: str) -> str | None:
    """Return the command that the file's comment gives, else `run` or `sweep`; a schema is part of an experiment."""
    if "experiment" not in tables and "study" not in tables:
        return None
    if written := re.search(rf"^#\s+(sottovoce .*{re.escape(place)}.*)$", text, re.MULTILINE):
        return written.group(1).strip()
    if "study" in tables:
        return f"sottovoce study mechanisms {place}"
    return f"sottovoce {'sweep' if 'sweep' in tables else 'run'} {place}"
