"""Arguments that several commands share."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer


def _set_wide(wide: bool) -> bool:
    from sottovoce.cli.output import set_wide  # when it is used: `--help` does not wait for numpy

    return set_wide(wide)


ExperimentFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The experiment, a TOML file.", show_default=False)
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="TABLE.KEY=VALUE", help="Change one key of the file; can be repeated.", show_default=False
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Where to write; else runs/<name>.", show_default=False)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Log = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="text|json",
        help="Write every event as one line with time and level, and no progress.",
        show_default=False,
    ),
]
StatusAt = Annotated[
    str | None,
    typer.Option(
        "--status",
        metavar="HOST:PORT",
        help="Serve /healthz and /metrics there, and the server its status page; for the operator alone.",
        show_default=False,
    ),
]
RunFolderPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
Best = Annotated[bool, typer.Option("--best", help="Take the model of the best round, not the last.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")]
Wide = Annotated[
    bool, typer.Option("--wide", callback=_set_wide, help="Do not fit tables to the terminal; lines may be long.")
]


def command_line(
    command: str,
    file: Path,
    changes: list[str] | None,
    out: Path | None,
    *,
    workers: int | None = None,
    quiet: bool = False,
    as_json: bool = False,
    resume: bool = False,
    more: Sequence[str] = (),
) -> str:
    """Return the command line that does the same again."""
    words = ["sottovoce", command, str(file)]
    for change in changes or ():
        words += ["--set", change]
    if out is not None:
        words += ["--out", str(out)]
    if workers is not None:
        words += ["--workers", str(workers)]
    flags = {"--quiet": quiet, "--json": as_json, "--resume": resume}
    words += more
    return shlex.join([*words, *(flag for flag, given in flags.items() if given)])
