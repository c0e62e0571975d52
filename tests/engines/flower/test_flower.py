"""Our round on a real Flower fleet: a SuperLink, SuperNodes as processes, TLS, nodes known by their keys."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.parts import gather
from sottovoce.config.experiment import parse, to_toml
from sottovoce.deployment.flower.folder import write_app
from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster
from sottovoce.deployment.trial.trial import deal, deployable
from sottovoce.runs.journal import read_begun
from sottovoce.runs.loop import run
from tests.deployment.test_units import visits
from tests.engines.flower.fleet import Fleet

NODES = 4
TABLES: dict[str, Any] = {
    "experiment": {"name": "fleet", "seed": 4, "rounds": 2, "evaluate_every": 1},
    "data": {"source": "digits", "clients": NODES},
    "model": {"name": "mlp"},
    "client": {"local_steps": 2},
    "cohort": {"sample_rate": 1},
    "scheme": {"name": "fl-top", "ratio": 0.1, "public": "leaves", "public_samples": 100},
    "privacy": {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 0.5},
    "aggregation": {"secure": "real"},
}


DYING = """
import builtins, os, signal
told = print

def dying(*words, **more):
    told(*words, **more)
    if words[0] == "round 1 is done" and not (died := Path({died!r})).exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)

builtins.print = dying
"""


class Trial:
    """A federation on a fleet: the experiment, its folders, and the fleet."""

    def __init__(self, fleet: Fleet, folder: Path, tables: dict[str, Any]) -> None:
        self.fleet, self.folder = fleet, folder
        self.play(tables)

    def play(self, tables: dict[str, Any], **engine: float) -> None:
        """Give everybody the file of an experiment."""
        experiment = parse({**tables, "engine": {"name": "flower", **engine}})
        self.experiment = deployable(experiment, gather(parse(tables)))
        name = self.experiment.experiment.name
        self.out, self.app = self.folder / f"{name}-out", self.folder / f"{name}-app"
        (self.folder / "experiment.toml").write_text(to_toml(self.experiment.tables()))

    def join(self, number: int, *, registered: bool = True) -> None:
        """Start a SuperNode with the records of a client, known to the SuperLink or not."""
        key = self.fleet.new_key(f"key{number}-{registered}")
        if registered:
            self.fleet.register(key)
        told = {"run": str(self.folder / "experiment.toml"), "keys": str(self.folder / "fed" / "nodes" / f"n{number}")}
        told |= {"data": str(self.folder / f"node{number}.npz")}
        self.fleet.add_node(f"n{number}", key, {**told, "simulate-randomness": 1})

    def submit(self, also: str = "") -> None:
        """Write the app, with more code for the server, and submit it."""
        write_app(self.experiment, self.app, keys=self.folder / "fed" / "server", out=self.out, simulated=True)
        with (self.app / "sottovoce_run" / "server.py").open("a") as file:
            file.write(also)
        self.fleet.flwr("run", str(self.app), "here")

    def resume(self) -> None:
        """Go on, as docs/flower.md says."""
        self.fleet.flwr("run", str(self.app), "here", "-c", "resume=true")

    def end(self) -> Any:
        """Wait for the end of the run, and return the summary."""
        self.until((self.out / "summary.json").exists)
        return json.loads((self.out / "summary.json").read_text())

    def rounds(self) -> list[Any]:
        """Return the rounds that are done."""
        file = self.out / "rounds.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def opened(self) -> int:
        """Return the round that was opened last; 0 before the first."""
        opened = read_begun(self.out)
        return 0 if opened is None else opened.round

    def until(self, true: Callable[[], object]) -> None:
        """Wait."""
        patience = time.monotonic() + 300
        while not true():
            assert time.monotonic() < patience, self.fleet.log("superlink")[-3000:]
            time.sleep(0.2)


@contextmanager
def trial(folder: Path, tables: dict[str, Any]) -> Iterator[Trial]:
    init_federation(folder / "fed")
    add_nodes(folder / "fed", [f"n{number}" for number in range(NODES)])
    sign_roster(folder / "fed")
    deal(gather(parse(tables)), folder)
    broker = folder / "fed" / "broker"  # its certificate is for this machine, and a SuperLink may have it too
    with Fleet(
        folder / "fleet", broker / "cert.pem", broker / "key.pem", folder / "fed" / "public" / "ca.pem"
    ) as fleet:
        yield Trial(fleet, folder, tables)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """Return a fleet with a SuperNode for every client; the tests of this file use it one after the other."""
    with trial(tmp_path_factory.mktemp("fleet"), TABLES) as held:
        for number in range(NODES):
            held.join(number)
        yield held


def same_model(ours: Path, theirs: Path) -> bool:
    with np.load(ours / "model.npz") as one, np.load(theirs / "model.npz") as other:
        return sorted(one.files) == sorted(other.files) and all((one[name] == other[name]).all() for name in one.files)


def test_private_top_under_masks_is_bit_equal_to_the_local_engine_also_when_the_server_is_killed_between_rounds(
    held: Trial, tmp_path: Path
) -> None:
    held.submit(DYING.format(died=str(tmp_path / "died")))
    run(parse(TABLES), tmp_path / "local")
    held.until((tmp_path / "died").exists)
    held.resume()
    summary = held.end()

    assert summary["rounds"] == 2 and summary["void_rounds"] == 0
    assert same_model(held.out, tmp_path / "local")
    states = list((held.folder / "fed" / "nodes").glob("n*/state/*/sealed"))
    assert len(states) == NODES
    for name in ("superlink", *(f"n{node}" for node in range(NODES))):
        assert "Traceback" not in held.fleet.log(name)


def test_what_is_sent_to_every_node_holds_no_key_and_no_record(held: Trial) -> None:
    keys = [file.read_bytes().strip() for file in (held.folder / "fed").rglob("*.key")]
    keys += [file.read_bytes().strip() for file in (held.folder / "fed").rglob("key.pem")]
    sent = [file for file in (held.folder / "fleet" / "home" / "apps").rglob("*") if file.is_file()]

    assert len(keys) > NODES and any(file.name == "client.py" for file in sent)
    for file in sent:
        assert not any(key in file.read_bytes() for key in keys)
        assert file.suffix in (".py", ".toml", ".pyc") or file.name in ("CONTENT", "RECORD"), file


@pytest.mark.parametrize("unit", ["record", "person"])
def test_units_of_sites_on_supernodes_train_the_model_of_a_simulation(held: Trial, tmp_path: Path, unit: str) -> None:
    tables: dict[str, Any] = {
        "experiment": {"name": f"{unit}s", "seed": 4, "rounds": 1, "evaluation": "none"},
        "data": {"source": "digits", "clients": NODES},
        "model": {"name": "logistic"},
        "privacy": {"unit": unit, "epsilon_server": 8.0, "delta": 1e-4},
        "aggregation": {"secure": "real", "threshold": 3},
    }
    if unit == "person":
        visits(tmp_path)
        keys = {"label": "died", "schema": "hospitals.toml", "person": "patient"}
        tables["data"] = {"source": "hospital_[1-4].csv", "folder": str(tmp_path), "clients": NODES, **keys}
        tables["privacy"] |= {"min_units": 40, "max_rows": 2}
    deal(gather(parse(tables)), held.folder)
    held.play(tables)
    held.submit()
    local = run(parse(tables), tmp_path / "local")
    summary = held.end()
    deal(gather(parse(TABLES)), held.folder)

    assert (summary["unit"], summary["void_rounds"]) == (unit, 0)
    assert summary["units"] == local["units"]
    assert same_model(held.out, tmp_path / "local")


def test_a_killed_server_a_killed_supernode_and_one_with_an_unregistered_key(held: Trial) -> None:
    plain = {name: table for name, table in TABLES.items() if name != "privacy"}
    plain |= {"scheme": {"name": "fl-std"}, "aggregation": {"secure": "none"}}
    plain["experiment"] = {**TABLES["experiment"], "name": "plain", "rounds": 2}
    held.play(plain, min_nodes=2, train_timeout=75.0)
    held.fleet.kill("n2")
    held.join(2, registered=False)
    held.submit()
    held.until(lambda: held.opened() == 1)
    held.fleet.kill_within("superlink", "flwr-serverapp")
    held.resume()
    held.until(lambda: held.opened() == 2)
    held.fleet.kill("n1")
    summary = held.end()

    first, second = held.rounds()
    assert (summary["rounds"], summary["void_rounds"]) == (2, 1)
    assert first["void"] and first["senders"] == 0
    assert (second["senders"], set(second["failures"])) == (NODES - 2, {"1", "2"})
    assert "did not answer within 75 s" in second["failures"]["1"]
    assert second["failures"]["2"] == "is gone"
