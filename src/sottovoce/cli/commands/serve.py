"""`sottovoce serve`: be the server of a federation."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli.commands.run import check_learned, put_card
from sottovoce.cli.options import AsJson, Changes, ExperimentFile, Out, Quiet, command_line
from sottovoce.cli.output import messages, note, put_json
from sottovoce.cli.progress import board
from sottovoce.core.errors import InputError, RunError

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
    simulate: Annotated[
        bool, typer.Option("--simulate-randomness", help="Take all secrets from the seed: for tests on one machine.")
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
    rounds = 0

    def count(record: dict[str, Any]) -> None:
        nonlocal rounds
        rounds = int(record["round"])

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop as by Ctrl-C
    try:
        _serve(
            file, changes, out, keys, local, resume=resume, quiet=quiet, as_json=as_json, simulate=simulate, count=count
        )
    except KeyboardInterrupt:
        more = ["--keys", str(keys)] if keys is not None else ["--local", str(local)]
        more += ["--simulate-randomness"] if simulate else []
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
) -> None:
    from sottovoce.config.experiment import load
    from sottovoce.deployment.server.serve import serve as play
    from sottovoce.deployment.trial.trial import trial
    from sottovoce.runs.folder import RunFolder
    from sottovoce.runs.loop import default_folder
    from sottovoce.runs.outcome import warn_once

    experiment = load(file, [*(changes or ()), "engine.name=mqtt"])
    folder = out or default_folder(experiment)
    RunFolder.check(folder, resume=resume)
    name, general, played = experiment.experiment.name, experiment.experiment, False
    with ExitStack() as stack:
        shown = stack.enter_context(board(quiet=quiet))
        stack.enter_context(messages(shown.say, quiet=quiet, private=experiment.privacy is not None))
        shown.start(name, general.rounds, private=experiment.privacy is not None)
        warn = warn_once(shown.say)

        def observe(record: dict[str, Any]) -> None:
            nonlocal played
            played = True
            count(record)
            shown.show(name, record)
            warn(record)

        told: dict[str, Any] = {"resume": resume, "simulated": simulate, "observe": observe, "watch": shown.watch}
        if local is not None:
            made = stack.enter_context(trial(experiment, local, folder, simulated=simulate))
            experiment, keys = made.experiment, made.keys
            told |= {"broker": made.broker.url, "min_nodes": local, "check": made.check, "lasting": False}
            if made.helper is not None:
                told["helper"] = made.helper.address
        if keys is None:
            raise InputError("the server needs its keys: give --keys FOLDER")
        summary = play(experiment, folder, keys=keys, **told)
    if not played and not quiet:
        note(f"{folder} is finished already; nothing was run")
    if as_json:
        put_json(summary)
        check_learned(folder, general.least_rounds)
        return
    put_card(folder)
    check_learned(folder, general.least_rounds)
    if not quiet:
        more = "; its operator.jsonl says how many answered, and is not to be published" if summary["private"] else ""
        note(f"the run is in {folder}{more}")
