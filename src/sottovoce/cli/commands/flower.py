"""`sottovoce flower`: the app folder for an existing Flower fleet."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.options import AsJson, Changes, ExperimentFile, Out
from sottovoce.cli.output import note, put_json

DOOR = "deploy"
EXAMPLE = "Example: sottovoce flower experiment.toml --keys fed/server --out runs/fleet --to app, then: flwr run app"


def flower(
    file: ExperimentFile,
    keys: Annotated[
        Path,
        typer.Option("--keys", metavar="FOLDER", help="The folder with the server's keys, where the SuperLink runs."),
    ],
    changes: Changes = None,
    out: Out = None,
    to: Annotated[
        Path, typer.Option("--to", metavar="FOLDER", help="Where the app is written; it must not be there yet.")
    ] = Path("flower-app"),
    simulate: Annotated[
        bool, typer.Option("--simulate-randomness", help="Take all secrets from the seed: for tests on one machine.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the app that a Flower fleet runs: `flwr run FOLDER` plays the experiment on its SuperNodes."""
    from sottovoce.config.experiment import load
    from sottovoce.deployment.flower.folder import write_app
    from sottovoce.runs.loop import default_folder

    experiment = load(file, [*(changes or ()), "engine.name=flower"])
    folder = default_folder(experiment) if out is None else out
    write_app(experiment, to, keys=keys, out=folder, simulated=simulate)
    if as_json:
        put_json({"app": str(to), "out": str(folder), "keys": str(keys)})
        return
    note(f"{to} holds the app; submit it with: flwr run {shlex.quote(str(to))}")
