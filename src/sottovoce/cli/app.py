"""Put the commands together, and turn whatever goes wrong into one sentence and an exit code.

0  done
2  bad input
3  privacy refused
4  the run failed or was interrupted
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final, cast

import typer

from sottovoce.cli import output
from sottovoce.cli.output import ReaderGone, discard_stdout, note, put, put_json
from sottovoce.cli.registry import CommandGroup
from sottovoce.core.errors import InputError, RunError, SottovoceError

DEBUG = "SOTTOVOCE_DEBUG"

# Old versions of typer depend on click, new ones carry a copy of it. The base of the one usage error that both make
# public is found without naming either.
UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__bases__[0])

app = typer.Typer(
    name="sottovoce",
    cls=CommandGroup,
    help="Federated learning on thin links: few bytes, client-level privacy, and an honest account of both.",
    epilog="Example: sottovoce init, then sottovoce run experiment.toml --set scheme.name=fl-top",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)  # no room on the disk, or in the quota


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        put(f"sottovoce {version('sottovoce')}\n")
        raise typer.Exit


@app.callback()
def _start(
    context: typer.Context,
    _: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; with --json a failure is a document on stdout too."""
    told: list[str] = []
    before = output.written
    code = _main(arguments, told)
    if told and output.written == before and "--json" in (sys.argv[1:] if arguments is None else arguments):
        with suppress(ReaderGone, OSError, SottovoceError):
            put_json({"error": " ".join(told), "exit_code": code})
    return code


def _main(arguments: Sequence[str] | None, told: list[str]) -> int:
    """Run the command line and return its exit code; what a failure says is appended to `told`."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without "—" shows "?" and the command goes on
    try:
        command = typer.main.get_command(app)
        code = command.main(args=arguments, prog_name="sottovoce", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (ReaderGone, BrokenPipeError):
        return _reader_gone()
    except UsageError as error:
        return _usage(error, told)
    except typer.Abort:
        return _refuse("interrupted", RunError.exit_code, told)
    except SottovoceError as error:
        return _refuse(str(error), error.exit_code, told)
    except SystemExit as done:
        # typer and rich turn a broken pipe into this; an engine's broken pipe never gets here, it is a RunError.
        if isinstance(done.__context__, BrokenPipeError):
            return _reader_gone()
        return InputError.exit_code if done.code else 0  # shell completion has printed its answer
    except OSError as error:  # a full disk or a missing permission: the machine's trouble, no bug
        discard_stdout()
        where = f"{error.filename}: " if error.filename else ""
        advice = "; make room there, and start the same command again" if where and error.errno in _FULL else ""
        return _refuse(f"{where}{error.strerror or error}{advice}", RunError.exit_code, told)
    except Exception as error:
        return _refuse(f"{type(error).__name__}: {error}", RunError.exit_code, told, bug=True)
    if code == 130:  # typer's answer to Ctrl-C where no command had a better one
        return _refuse("interrupted", RunError.exit_code, told)
    return code if isinstance(code, int) else 0


def _reader_gone() -> int:
    """Leave quietly: the reader of stdout has seen enough (`| head`)."""
    discard_stdout()
    return 0


def _usage(error: typer.BadParameter, told: list[str]) -> int:
    if not error.format_message():  # a group of commands without a command has shown its help
        return 0
    told.append(error.format_message())
    note(f"error: {told[0]}")
    if error.ctx is not None:
        note(f"try: {error.ctx.command_path} --help")
    return InputError.exit_code


def _refuse(message: str, code: int, told: list[str], *, bug: bool = False) -> int:
    """Print one sentence, and the traceback where it was asked for."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["no reason was given"]
    # A worker's error carries its traceback; the first and the last line say what and why.
    told += lines if len(lines) == 1 else [lines[0], lines[-1]]
    if os.environ.get(DEBUG):
        note(f"error: {message}")
        note(traceback.format_exc().rstrip())
        return code
    note(f"error: {' '.join(told)}")
    if bug or len(lines) > 1:
        note(f"this is a bug in sottovoce or in code that it was given; set {DEBUG}=1 to see where")
    return code
