"""Our round on a real Flower fleet: a SuperLink, SuperNodes as processes, TLS, nodes known by their keys."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.deployment.flower_app import write_app
from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster
from sottovoce.deployment.trial import deal, deployable
from sottovoce.experiment.config import Experiment, parse, to_toml
from sottovoce.experiment.parts import gather
from sottovoce.experiment.run import run
from tests.engines.flower.fleet import Fleet

NODES = 3
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


class Trial:
    """A federation on a fleet: the experiment, its folders, and the fleet."""

    def __init__(self, fleet: Fleet, folder: Path, experiment: Experiment) -> None:
        self.fleet, self.folder, self.experiment = fleet, folder, experiment
        self.out = folder / "out"

    def join(self, number: int, *, registered: bool = True) -> None:
        """Start a SuperNode with the records of a client, known to the SuperLink or not."""
        key = self.fleet.new_key(f"key{number}")
        if registered:
            self.fleet.register(key)
        told = {"run": str(self.folder / "experiment.toml"), "keys": str(self.folder / "fed" / "nodes" / f"n{number}")}
        told |= {"data": str(self.folder / f"node{number}.npz")}
        self.fleet.add_node(f"n{number}", key, {**told, "simulate-randomness": 1})

    def submit(self) -> None:
        """Write the app and submit it."""
        write_app(
            self.experiment, self.folder / "app", keys=self.folder / "fed" / "server", out=self.out, simulated=True
        )
        self.fleet.flwr("run", str(self.folder / "app"), "here")

    def end(self) -> Any:
        """Wait for the end of the run, and return the summary."""
        self.until((self.out / "summary.json").exists)
        return json.loads((self.out / "summary.json").read_text())

    def rounds(self) -> list[Any]:
        """Return the rounds that are done."""
        file = self.out / "rounds.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def until(self, true: Callable[[], object]) -> None:
        """Wait."""
        patience = time.monotonic() + 200
        while not true():
            assert time.monotonic() < patience, self.fleet.log("superlink")[-3000:]
            time.sleep(0.2)


@contextmanager
def trial(folder: Path, tables: dict[str, Any], **engine: float) -> Iterator[Trial]:
    experiment = parse({**tables, "engine": {"name": "flower", **engine}})
    dealt = gather(parse(tables))
    experiment = deployable(experiment, dealt)
    init_federation(folder / "fed")
    add_nodes(folder / "fed", [f"n{number}" for number in range(NODES)])
    sign_roster(folder / "fed")
    deal(dealt, folder)
    (folder / "experiment.toml").write_text(to_toml(experiment.tables()))
    broker = folder / "fed" / "broker"  # its certificate is for this machine, and a SuperLink may have it too
    with Fleet(
        folder / "fleet", broker / "cert.pem", broker / "key.pem", folder / "fed" / "public" / "ca.pem"
    ) as fleet:
        yield Trial(fleet, folder, experiment)


def same_model(ours: Path, theirs: Path) -> bool:
    with np.load(ours / "model.npz") as one, np.load(theirs / "model.npz") as other:
        return sorted(one.files) == sorted(other.files) and all((one[name] == other[name]).all() for name in one.files)


def test_private_top_under_masks_is_bit_equal_to_the_local_engine(tmp_path: Path) -> None:
    local = tmp_path / "local"
    run(parse(TABLES), local)
    with trial(tmp_path, TABLES) as held:
        for number in range(NODES):
            held.join(number)
        held.submit()
        summary = held.end()

    assert summary["rounds"] == 2
    assert same_model(held.out, local)
    states = list((tmp_path / "fed" / "nodes").glob("n*/state/*/sealed"))
    assert len(states) == NODES
    for name in ("superlink", "n0", "n1", "n2"):
        assert "Traceback" not in held.fleet.log(name)


def test_a_killed_supernode_and_one_with_an_unregistered_key_are_clients_that_left(tmp_path: Path) -> None:
    plain = {name: table for name, table in TABLES.items() if name != "privacy"}
    plain |= {"scheme": {"name": "fl-std"}, "aggregation": {"secure": "none"}}
    with trial(tmp_path, plain, min_nodes=2, train_timeout=20.0) as held:
        held.join(0)
        held.join(1)
        held.join(2, registered=False)
        held.submit()
        held.until(lambda: len(held.rounds()) == 1)
        held.fleet.kill("n1")
        summary = held.end()

    first, second = held.rounds()
    assert summary["rounds"] == 2
    assert (first["senders"], set(first["failures"])) == (2, {"2"})
    assert (second["senders"], set(second["failures"])) == (1, {"1", "2"})
    assert "did not answer within 20 s" in second["failures"]["1"]
