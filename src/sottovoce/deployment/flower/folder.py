"""Write the app folder that `flwr run` takes: two small modules around `deployment.flower`, and the experiment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from sottovoce.assembly.elsewhere import check_deployable
from sottovoce.config.experiment import Experiment, to_toml
from sottovoce.core.errors import InputError
from sottovoce.core.files import new_folder, write_new
from sottovoce.deployment.party import Identity

_PYPROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "sottovoce-run"
version = "0.1.0"
description = "A run of sottovoce on a Flower fleet; nodes must have sottovoce[flower] installed."
license = "Apache-2.0"
dependencies = ["flwr>=1.41,<2"]

[tool.hatch.build.targets.wheel]
packages = ["."]

# Nothing else is sent to the nodes, whatever is put into this folder.
[tool.flwr.app]
publisher = "sottovoce"
fab-include = ["/sottovoce_run/__init__.py", "/sottovoce_run/server.py", "/sottovoce_run/client.py", \
"/sottovoce_run/experiment.toml"]

[tool.flwr.app.components]
serverapp = "sottovoce_run.server:app"
clientapp = "sottovoce_run.client:app"

# On the machine of the SuperLink: the server's keys, and the run folder. Change them with flwr run -c 'out="..."'; go
# on after a stop with flwr run -c 'resume=true'.
[tool.flwr.app.config]
keys = {keys}
out = {out}
resume = false
simulate-randomness = {simulated}
"""

_FILES: Final = {
    "__init__.py": '"""A run of sottovoce on a Flower fleet."""\n',
    "server.py": '"""The server of the run."""\n\nfrom pathlib import Path\n\n'
    "from sottovoce.deployment.flower.fleet import server_app\n\n"
    'app = server_app(Path(__file__).with_name("experiment.toml"))\n',
    "client.py": '"""A node of the run: its experiment, keys and data are named by its own operator."""\n\n'
    "from sottovoce.deployment.flower.fleet import client_app\n\napp = client_app()\n",
}


def write_app(experiment: Experiment, folder: Path, *, keys: Path, out: Path, simulated: bool = False) -> None:
    """Write the app of an experiment into a new folder, whole or not at all."""
    check_deployable(experiment)
    identity = Identity.read(keys)
    if identity.id is not None:
        raise InputError(f"{keys} holds the keys of {identity.user}; the server needs its own, in FED/server")
    clients = len(identity.read_roster().entries)
    if clients != experiment.data.clients:
        raise InputError(
            f"[data] clients = {experiment.data.clients}, but the roster has {clients} nodes; they must be the same"
        )
    for name, path in (("--out", out), ("--keys", keys)):
        if path.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{name} {path} is inside the app folder {folder}; keep what stays here outside of it")
    if not folder.parent.is_dir():
        raise InputError(f"--to {folder}: there is no folder {folder.parent}; make it, or choose another")
    if folder.exists():
        raise InputError(f"{folder} is already there and was not changed; give another name")
    with new_folder(folder) as fresh:
        told = _PYPROJECT.format(
            keys=json.dumps(str(keys.resolve())),
            out=json.dumps(str(out.resolve())),
            simulated=json.dumps(simulated),
        )
        write_new(fresh / "pyproject.toml", told.encode())
        (fresh / "sottovoce_run").mkdir()
        for name, text in _FILES.items():
            write_new(fresh / "sottovoce_run" / name, text.encode())
        write_new(fresh / "sottovoce_run" / "experiment.toml", to_toml(experiment.tables()).encode())
