"""`sottovoce flower` writes an app folder, whole or not at all; it needs no flwr."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.cli.conftest import Shell

from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster

EXPERIMENT = """
[data]
clients = 2
[cohort]
sample_rate = 1
"""


def federation(folder: Path) -> Path:
    init_federation(folder / "fed")
    add_nodes(folder / "fed", ["lyon", "oslo"])
    sign_roster(folder / "fed")
    (folder / "e.toml").write_text(EXPERIMENT)
    return folder / "fed"


def test_the_app_has_two_modules_the_experiment_and_the_servers_folders(shell: Shell, tmp_path: Path) -> None:
    fed, app = federation(tmp_path), tmp_path / "app"

    words = ("--keys", str(fed / "server"), "--out", str(tmp_path / "out"), "--to", str(app), "--json")
    done = shell("flower", "e.toml", *words)

    assert done.json()["app"] == str(app)
    told = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert told["config"]["keys"] == str(fed / "server") and told["config"]["out"] == str(tmp_path / "out")
    assert told["config"]["simulate-randomness"] is False
    for part in told["components"].values():
        module, _, name = part.partition(":")
        source = (app / f"{module.replace('.', '/')}.py").read_text()
        assert f"{name} = " in source
        ast.parse(source)
    experiment = tomllib.loads((app / "sottovoce_run" / "experiment.toml").read_text())
    assert experiment["engine"]["name"] == "flower" and experiment["data"]["clients"] == 2


def test_wrong_keys_a_taken_folder_and_an_experiment_for_simulations_are_refused(shell: Shell, tmp_path: Path) -> None:
    fed, app = federation(tmp_path), tmp_path / "app"

    def refused(*words: str) -> str:
        done = shell("flower", "e.toml", "--to", str(app), *words)
        assert done.code == 2
        return done.err

    assert "holds the keys of node-0" in refused("--keys", str(fed / "nodes" / "lyon"))
    assert "is no folder with keys" in refused("--keys", str(fed / "nowhere"))
    attack = ("--set", "threat.attack=random-update", "--set", "threat.fraction=0.5")
    assert "[threat] cannot be played in a deployed run" in refused(*attack, "--keys", str(fed / "server"))
    assert not app.exists()
    (fed / "server" / "roster.json").rename(fed / "elsewhere")
    assert "roster.json is missing; whoever holds the root key signs it" in refused("--keys", str(fed / "server"))
    (fed / "elsewhere").rename(fed / "server" / "roster.json")
    assert not app.exists()
    app.mkdir()
    assert "is already there and was not changed" in refused("--keys", str(fed / "server"))
    (app / "mine").touch()
    assert "is already there and was not changed" in refused("--keys", str(fed / "server"))
    assert [file.name for file in app.iterdir()] == ["mine"]


def test_what_a_fleet_cannot_play_or_must_not_send_is_refused_before_anything_is_written(
    shell: Shell, tmp_path: Path
) -> None:
    fed, app = federation(tmp_path), tmp_path / "app"
    (tmp_path / "words.toml").write_text("these are words")

    def refused(file: str, *words: str) -> str:
        done = shell("flower", file, "--keys", str(fed / "server"), *words)
        assert done.code == 2 and not app.exists() and done.err.count("error: ") == 1
        return done.err

    ballot = ("--set", "aggregation.secure=ballot", "--set", "privacy.noise_multiplier=1")
    assert "needs a helper, which a Flower fleet has no place for" in refused("e.toml", "--to", str(app), *ballot)
    assert "not TOML" in refused("words.toml", "--to", str(app))
    assert "is inside the app folder" in refused("e.toml", "--to", str(app), "--out", str(app / "run"))
    assert "there is no folder" in refused("e.toml", "--to", str(tmp_path / "nowhere" / "app"))
    assert "the roster has 2 nodes" in refused("e.toml", "--to", str(app), "--set", "data.clients=3")


def test_without_flwr_the_apps_say_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['flwr.app'] = None\n"
        "from sottovoce.core.errors import InputError\n"
        "try:\n    import sottovoce.deployment.flower.fleet\n"
        "except InputError as error:\n    print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert "a Flower fleet needs flwr of version 1.41 or newer, and " in said
    assert "is installed; install it with: pip install 'sottovoce[flower]', in an environment of its own" in said


def test_run_refuses_a_fleet_and_says_what_plays_it(shell: Shell, here: Path) -> None:
    done = shell("run", "small.toml", "--set", "engine.name=flower", "--set", "engine.workers=0")

    assert done.code == 2
    assert 'name = "flower" is played by nodes, which sottovoce run has none of; use sottovoce flower' in done.err
    assert not (here / "runs").exists()
