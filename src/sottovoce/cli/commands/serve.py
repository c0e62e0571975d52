"""`sottovoce serve`: be the server of a federation."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.commands.run import check_learned, put_card
from sottovoce.cli.options import AsJson, Changes, ExperimentFile, Log, Out, Quiet, StatusAt, command_line
from sottovoce.cli.output import messages, note, put_json, saying
from sottovoce.cli.progress import board
from sottovoce.core.errors import InputError, RunError

if TYPE_CHECKING:
    from sottovoce.federation.engines.mqtt.engine import Status

DOOR = "deploy"
EXAMPLE = "Example: sottovoce serve experiment.toml --local 6, for a trial on this machine"


def serve(
    file: ExperimentFile,
    changes: Changes = None,
    out: Out = None,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", metavar="FOLDER", help="The folder with the server's keys.", show_default=False),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    log: Log = None,
    status: StatusAt = None,
    simulate: Annotated[
        bool, typer.Option("--simulate-randomness", help="Take all secrets from the seed: for tests on one machine.")
    ] = False,
    epochs: Annotated[
        bool,
        typer.Option(
            "--epochs",
            help="Go on with the newest roster whenever one is signed: nodes join and leave (docs/deploy.md).",
        ),
    ] = False,
    local: Annotated[
        int | None,
        typer.Option(
            "--local",
            metavar="N",
            min=1,
            help="Start broker, keys and N nodes on this machine too, for a trial.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run an experiment with the nodes of a federation as its clients."""
    if local is None and keys is None:
        raise InputError("the server needs its keys: give --keys FOLDER, or --local N for a trial on this machine")
    if local is not None and keys is not None:
        raise InputError("--local makes keys of its own, for this trial; remove --keys")
    if local is not None and epochs:
        raise InputError("--epochs follows rosters that somebody signs, and --local has none; give --keys FOLDER")
    rounds = 0

    def count(record: dict[str, Any]) -> None:
        nonlocal rounds
        rounds = int(record["round"])

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop as by Ctrl-C
    try:
        _serve(
            file,
            changes,
            out,
            keys,
            local,
            resume=resume,
            quiet=quiet,
            as_json=as_json,
            simulate=simulate,
            count=count,
            log=log,
            status=status,
            epochs=epochs,
        )
    except KeyboardInterrupt:
        more = ["--keys", str(keys)] if keys is not None else ["--local", str(local)]
        more += [*(["--simulate-randomness"] if simulate else []), *(["--epochs"] if epochs else [])]
        more += [*(["--log", log] if log else []), *(["--status", status] if status else [])]
        again = command_line("serve", file, changes, out, quiet=quiet, as_json=as_json, resume=True, more=more)
        when = f"after round {rounds}" if rounds else "before the first round was done"
        note(f"interrupted {when}; go on with: {again}")
        raise typer.Exit(RunError.exit_code) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _serve(
    file: Path,
    changes: list[str] | None,
    out: Path | None,
    keys: Path | None,
    local: int | None,
    count: Callable[[dict[str, Any]], None],
    *,
    resume: bool,
    quiet: bool,
    as_json: bool,
    simulate: bool,
    log: str | None,
    status: str | None,
    epochs: bool,
) -> None:
    from sottovoce.config.experiment import load
    from sottovoce.deployment.server.serve import serve as play
    from sottovoce.deployment.status import FleetStatus, keeping, serve_status
    from sottovoce.deployment.trial.trial import trial
    from sottovoce.runs.folder import RunFolder
    from sottovoce.runs.loop import default_folder
    from sottovoce.runs.outcome import warn_once

    experiment = load(file, [*(changes or ()), "engine.name=mqtt"])
    folder = out or default_folder(experiment)
    if not epochs:
        RunFolder.check(folder, resume=resume)
    name, general, played = experiment.experiment.name, experiment.experiment, False
    with ExitStack() as stack:
        private = experiment.privacy is not None
        shown = stack.enter_context(board(quiet=quiet or log is not None))
        say = saying(log, shown.say)
        stack.enter_context(messages(shown.say, quiet=quiet, private=private, form=log))
        fleet = FleetStatus(name, general.rounds, private=private)
        if status is not None:
            page = serve_status(status, fleet)
            stack.callback(page.close)
            if not page.place.loopback:
                say("warning: whoever reaches the status page sees who takes part in which round: keep it to operators")
            if not quiet:
                say(f"the status page is at {page.address}")
        stack.enter_context(keeping(fleet, folder))
        shown.start(name, general.rounds, private=experiment.privacy is not None)
        warn = warn_once(say)

        def observe(record: dict[str, Any]) -> None:
            nonlocal played
            played = True
            count(record)
            shown.show(name, record)
            fleet.observe(record)
            if log is not None and not quiet:
                measured = f", accuracy {record['accuracy']:.4g}" if record.get("accuracy") is not None else ""
                say(f"round {record['round']} of {general.rounds} is over{measured}")
            warn(record)

        def watch(engine: Status) -> None:
            shown.watch(engine)
            fleet.watch(engine)

        told: dict[str, Any] = {"resume": resume, "simulated": simulate, "observe": observe, "watch": watch}
        if local is not None:
            made = stack.enter_context(trial(experiment, local, folder, simulated=simulate))
            experiment, keys = made.experiment, made.keys
            told |= {"broker": made.broker.url, "min_nodes": local, "check": made.check, "lasting": False}
            if made.helper is not None:
                told["helper"] = made.helper.address
        if keys is None:
            raise InputError("the server needs its keys: give --keys FOLDER")
        try:
            if epochs:
                from sottovoce.deployment.server.epochs import play_epochs

                told |= {"out": folder, "keys": keys, "file": file, "began": fleet.restart}
                summary, folder = play_epochs(experiment, **told)
            else:
                summary = play(experiment, folder, keys=keys, file=file, **told)
        except BaseException as error:
            fleet.end("interrupted" if isinstance(error, KeyboardInterrupt) else f"failed: {error}")
            raise
        fleet.end("done")
    say = saying(log)
    if not played and not quiet:
        say(f"{folder} is finished already; nothing was run")
    if as_json:
        put_json(summary)
        check_learned(folder, general.least_rounds)
        return
    put_card(folder)
    check_learned(folder, general.least_rounds)
    if not quiet:
        more = "; its operator.jsonl says how many answered, and is not to be published" if summary["private"] else ""
        say(f"the run is in {folder}{more}")
