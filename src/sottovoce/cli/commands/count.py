"""`sottovoce count`: be the helper of a federation."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.options import AsJson, Changes, ExperimentFile, Log, Quiet, StatusAt
from sottovoce.cli.output import messages, note, put_json, saying

if TYPE_CHECKING:
    from sottovoce.deployment.helper.frames import HelperAddress
    from sottovoce.deployment.status import Family

DOOR = "deploy"
EXAMPLE = "Example: sottovoce count experiment.toml --keys helper --listen 0.0.0.0:8900"


def count(
    file: ExperimentFile,
    keys: Annotated[Path, typer.Option("--keys", metavar="FOLDER", help="The folder with the helper's keys.")],
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where the server calls.")],
    changes: Changes = None,
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="FOLDER", help="Where the helper's account is kept.", show_default="in --keys"),
    ] = None,
    quiet: Quiet = False,
    simulate: Annotated[
        bool, typer.Option("--simulate-randomness", help="Take all secrets from the seed: for tests on one machine.")
    ] = False,
    as_json: AsJson = False,
    log: Log = None,
    status: StatusAt = None,
) -> None:
    """Count secret ballots with the training server, as the second of two aggregators (docs/ballots.md)."""
    from sottovoce.config.experiment import load
    from sottovoce.deployment.helper.count import count as answer
    from sottovoce.deployment.status import serve_health

    say, listening = saying(log), False

    def ready(place: HelperAddress) -> None:
        nonlocal listening
        listening = True
        if not quiet:
            say(f"listening at {place}")

    def families() -> list[Family]:
        return [("sottovoce_helper_listening", "Whether the helper listens", "gauge", [({}, float(listening))])]

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop as by Ctrl-C
    try:
        with messages(note, quiet=quiet, form=log), ExitStack() as stack:
            if status is not None:
                page = serve_health(status, lambda: None if listening else "it does not listen yet", families)
                stack.callback(page.close)
                if not quiet:
                    say(f"/healthz and /metrics are at {page.address}")

            experiment = load(file, [*(changes or ()), "engine.name=mqtt"])
            run, rounds = answer(
                experiment,
                keys,
                listen,
                state,
                simulated=simulate,
                ready=ready,
            )
    finally:
        signal.signal(signal.SIGTERM, before)
    if as_json:
        put_json({"run": run or None, "rounds": rounds})
    elif not quiet:
        say(f"stopped; {rounds} rounds are charged in the account")
