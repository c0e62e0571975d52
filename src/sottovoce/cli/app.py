"""Put the commands together, and turn whatever goes wrong into one sentence and an exit code.

0  done
2  bad input
3  privacy refused
4  the run failed or was interrupted
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, cast

import typer

from sottovoce.cli import (
    attacks,
    audit,
    count,
    data,
    devices,
    explain,
    export,
    flower,
    infer,
    init,
    join,
    keys,
    plan,
    predict,
    privacy,
    report,
    reproduce,
    run,
    schemes,
    serve,
    study,
    sweep,
    tune,
)
from sottovoce.cli.output import ReaderGone, discard_stdout, note, put
from sottovoce.core.errors import InputError, RunError, SottovoceError

__all__ = ["app", "main"]

DEBUG = "SOTTOVOCE_DEBUG"

# Old versions of typer depend on click, new ones carry a copy of it. The base of the one usage error that both make
# public is found without naming either.
UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__bases__[0])

app = typer.Typer(
    name="sottovoce",
    help="Federated learning on thin links: few bytes, client-level privacy, and an honest account of both.",
    epilog="Example: sottovoce init, then sottovoce run experiment.toml --set scheme.name=fl-top",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


app.command("init", epilog=init.EXAMPLE)(init.init)
app.command("run", epilog=run.EXAMPLE)(run.run)
app.command("sweep", epilog=sweep.EXAMPLE)(sweep.sweep)
app.command("serve", epilog=serve.EXAMPLE)(serve.serve)
app.command("join", epilog=join.EXAMPLE)(join.join)
app.command("count", epilog=count.EXAMPLE)(count.count)
app.command("flower", epilog=flower.EXAMPLE)(flower.flower)
app.command("tune", epilog=tune.EXAMPLE)(tune.tune)
app.command("plan", epilog=plan.EXAMPLE)(plan.plan)
app.command("privacy", epilog=privacy.EXAMPLE)(privacy.privacy)
app.command("audit", epilog=audit.EXAMPLE)(audit.audit)
app.command("report", epilog=report.EXAMPLE)(report.report)
app.command("reproduce", epilog=reproduce.EXAMPLE)(reproduce.reproduce)
app.command("predict", epilog=predict.EXAMPLE)(predict.predict)
app.command("export", epilog=export.EXAMPLE)(export.export)
app.command("schemes", epilog=schemes.EXAMPLE)(schemes.schemes)
app.command("attacks", epilog=attacks.EXAMPLE)(attacks.attacks)
app.command("devices", epilog=devices.EXAMPLE)(devices.devices)
app.command("explain", epilog=explain.EXAMPLE)(explain.explain)
app.add_typer(data.app, name="data")
app.add_typer(infer.app, name="infer")
app.add_typer(keys.app, name="keys")
app.add_typer(study.app, name="study")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
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
        return _usage(error)
    except typer.Abort:
        return _refuse("interrupted", RunError.exit_code)
    except SottovoceError as error:
        return _refuse(str(error), error.exit_code, bug=False)
    except SystemExit as done:
        # typer and rich turn a broken pipe into this; an engine's broken pipe never gets here, it is a RunError.
        if isinstance(done.__context__, BrokenPipeError):
            return _reader_gone()
        return InputError.exit_code if done.code else 0  # shell completion has printed its answer
    except OSError as error:  # a full disk or a missing permission: the machine's trouble, no bug
        discard_stdout()
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror or error}", RunError.exit_code)
    except Exception as error:
        return _refuse(f"{type(error).__name__}: {error}", RunError.exit_code, bug=True)
    if code == 130:  # typer's answer to Ctrl-C where no command had a better one
        return _refuse("interrupted", RunError.exit_code)
    return code if isinstance(code, int) else 0


def _reader_gone() -> int:
    """Leave quietly: the reader of stdout has seen enough (`| head`)."""
    discard_stdout()
    return 0


def _usage(error: typer.BadParameter) -> int:
    note(f"error: {error.format_message()}")
    if error.ctx is not None:
        note(f"try: {error.ctx.command_path} --help")
    return InputError.exit_code


def _refuse(message: str, code: int, *, bug: bool = False) -> int:
    """Print one sentence, and the traceback where it was asked for."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["no reason was given"]
    if os.environ.get(DEBUG):
        note(f"error: {message}")
        note(traceback.format_exc().rstrip())
        return code
    # A worker's error carries its traceback; the first and the last line say what and why.
    note(f"error: {lines[0]}" if len(lines) == 1 else f"error: {lines[0]} {lines[-1]}")
    if bug or len(lines) > 1:
        note(f"this is a bug in sottovoce or in code that it was given; set {DEBUG}=1 to see where")
    return code
