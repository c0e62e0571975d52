"""Whole federations of processes over TLS on this machine: they equal the simulation bit for bit, whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.config.experiment import parse, to_toml
from sottovoce.data import load as load_data
from sottovoce.deployment.server.serve import serve
from sottovoce.deployment.trial.broker import mosquitto
from sottovoce.deployment.trial.trial import Trial, own_folder, trial
from sottovoce.federation.engine import Engine, Reply, Request
from sottovoce.federation.engines.mqtt.engine import MqttEngine
from sottovoce.federation.wrappers.base import Around
from sottovoce.privacy.ledger import verify
from sottovoce.runs.loop import run
from tests.deployment.wired import until

needs_mosquitto = pytest.mark.skipif(mosquitto() is None, reason="mosquitto is not installed")

Tables = dict[str, dict[str, Any]]


def tables(clients: int = 6, rounds: int = 2, **more: dict[str, Any]) -> Tables:
    base: Tables = {
        "experiment": {"name": "trial", "rounds": rounds},
        "data": {"source": "digits", "clients": clients},
        "model": {"name": "logistic"},
        "client": {"local_steps": 2, "client_lr": 0.5},
        "cohort": {"sample_rate": 1},
        "scheme": {"name": "fl-std"},
        "engine": {"name": "mqtt", "min_nodes": clients},
    }
    for name, table in more.items():
        base[name] = {**base.get(name, {}), **table}
    return base


def simulated(told: Tables, out: Path, **more: dict[str, Any]) -> bytes:
    """Return the model of the same experiment, simulated."""
    run(parse({**told, **more, "engine": {"workers": 1}}), out)
    return (out / "model.npz").read_bytes()


@dataclass
class Meddling(Around):
    """An engine that does things to processes right before a phase is asked for."""

    plans: dict[tuple[int, str], list[Callable[[], None]]] = field(default_factory=dict)

    def send(self, request: Request) -> Reply:
        for act in self.plans.pop((request.round, request.phase), []):
            act()
        return self.engine.send(request)


@needs_mosquitto
def test_killed_stopped_and_cut_off_nodes_are_those_that_leave(tmp_path: Path) -> None:
    public = tmp_path / "public.npz"
    digits = load_data("digits")
    np.savez(
        public,
        **{f"x_{part}": digits.x_train[:200] for part in ("train", "test")},
        **{f"y_{part}": digits.y_train[:200].astype(np.int64) for part in ("train", "test")},
    )
    told = tables(
        rounds=7,
        scheme={"name": "fl-top", "ratio": 0.1, "public": str(public)},
        aggregation={"secure": "real"},
        privacy={"noise_multiplier": 1.0, "delta": 1e-2, "clip_norm": 0.5},
        engine={"train_timeout": 8.0},
    )
    phases = ["advertise", "share", "mask", "consistency", "unmask"]
    leave = [[number + 1, 5, phase] for number, phase in enumerate(phases)] + [[6, 4, "mask"]]
    with trial(parse(told), 6, tmp_path / "ours", simulated=True, kind="mosquitto") as made:
        inner: list[MqttEngine] = []

        def around(engine: Engine) -> Engine:
            assert isinstance(engine, MqttEngine)
            inner.append(engine)
            plans: dict[tuple[int, str], list[Callable[[], None]]] = {}
            for number, phase in enumerate(phases):
                plans[number + 1, phase] = [lambda: kill(made, 5), lambda: until(lambda: engine.status.there == 5)]
                plans.setdefault((number + 2, "advertise"), [])[:0] = [
                    lambda: made.start(5),
                    lambda: until(lambda: engine.status.there == 6, 60.0),
                ]
            plans[1, "advertise"] = plans.pop((1, "advertise"))
            plans[6, "mask"] = [lambda: made.nodes[4].send_signal(signal.SIGSTOP)]
            plans[6, "unmask"] = [lambda: made.nodes[4].send_signal(signal.SIGCONT)]
            plans[7, "share"] = [lambda: made.broker.stop(kill=True), made.broker.start]
            return Meddling(engine, plans)

        summary = serve(
            made.experiment,
            tmp_path / "ours",
            keys=made.keys,
            broker=made.broker.url,
            simulated=True,
            min_nodes=6,
            around=around,
            check=made.check,
        )
    theirs = simulated(told, tmp_path / "theirs", devices={"leave": leave})

    assert (tmp_path / "ours" / "model.npz").read_bytes() == theirs
    assert inner[0].status.late >= 1  # what the stopped node sent when it woke up
    assert "simulated: not private" in json.dumps(summary)
    for record in map(json.loads, (tmp_path / "ours" / "rounds.jsonl").read_text().splitlines()):
        assert "wire_up" not in record and "cohort" not in record
    operator = [json.loads(line) for line in (tmp_path / "ours" / "operator.jsonl").read_text().splitlines()]
    assert all(record["wire_up"] > record["bytes_up"] for record in operator if "wire_up" in record)
    assert [record["senders"] for record in operator] == [5, 5, 5, 6, 6, 5, 6]
    assert not list(tmp_path.glob(".ours.trial-*"))


def kill(made: Trial, number: int) -> None:
    made.nodes[number].kill()
    made.nodes[number].wait()


@pytest.mark.parametrize(
    "told",
    [tables(clients=3), tables(clients=3, scheme={"name": "fl-sign"}, aggregation={"secure": "real"})],
    ids=["fl-std", "fl-sign"],
)
def test_a_trial_equals_the_simulation_also_over_amqtt(told: Tables, tmp_path: Path) -> None:
    with trial(parse(told), 3, tmp_path / "ours", simulated=True, kind="amqtt") as made:
        serve(
            made.experiment,
            tmp_path / "ours",
            keys=made.keys,
            broker=made.broker.url,
            simulated=True,
            min_nodes=3,
            check=made.check,
        )
        for process in made.nodes:
            assert process.wait(20) == 0
        said = [made.last_words(number) for number in range(3)]

    assert (tmp_path / "ours" / "model.npz").read_bytes() == simulated(told, tmp_path / "theirs")
    assert all(words.startswith(f"the run is done: node {number} gave ") for number, words in enumerate(said))
    records = [json.loads(line) for line in (tmp_path / "ours" / "rounds.jsonl").read_text().splitlines()]
    last = records[-1]
    messages = 3 * max(1, len(last.get("phases", ())))
    assert last["bytes_up"] < last["wire_up"] <= last["bytes_up"] + 600 * messages
    assert last["bytes_down"] < last["wire_down"] <= last["bytes_down"] + 600 * messages


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_server_that_ends_leaves_no_process_behind(how: signal.Signals, tmp_path: Path) -> None:
    told = tables(clients=2, rounds=4000)
    file, out = tmp_path / "experiment.toml", tmp_path / "run"
    file.write_text(to_toml(parse(told).tables()))
    command = [sys.executable, "-m", "sottovoce", "serve", str(file), "--local", "2", "--out", str(out)]
    command += ["--simulate-randomness", "--set", "experiment.evaluate_every=4000"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    until(lambda: _rounds(out) >= 5, 60.0)
    started = _children(process.pid)
    process.send_signal(how)
    _, said = process.communicate(timeout=60)

    assert len(started) >= 3
    if how == signal.SIGTERM:
        assert process.returncode == 4
        assert "go on with: sottovoce serve" in said and "--resume" in said
        assert not list(tmp_path.glob(".run.trial-*"))
    if how == signal.SIGTERM or sys.platform.startswith("linux"):
        assert not any(_alive(child) for child in started)


def test_what_a_killed_server_left_is_removed_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    left = tmp_path / ".run.trial-left"
    (left / "fed").mkdir(parents=True)
    other = tmp_path / ".other.trial-left"
    other.mkdir()

    with own_folder(tmp_path / "run") as first:
        (first / "key").write_text("secret")
        assert not left.exists()
        with own_folder(tmp_path / "run") as second:
            assert (first / "key").exists() and second != first
            assert second.stat().st_mode & 0o777 == 0o700

    assert sorted(tmp_path.iterdir()) == [other]


@needs_mosquitto
def test_a_server_that_was_killed_goes_on_with_the_nodes_that_waited(tmp_path: Path) -> None:
    told = tables(
        clients=4,
        rounds=12,
        aggregation={"secure": "real"},
        privacy={"noise_multiplier": 3.0, "delta": 1e-2, "clip_norm": 0.5},
    )
    out = tmp_path / "run"
    with trial(parse(told), 4, out, simulated=False, kind="mosquitto") as made:
        command = [sys.executable, "-m", "sottovoce", "serve", str(made.folder / "experiment.toml"), "--out", str(out)]
        command += ["--keys", str(made.keys), "--set", f"engine.broker={made.broker.url}", "--json"]
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: _rounds(out) >= 3, 60.0)
        first.kill()
        first.wait()
        again = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=100, check=False)
        for process in made.nodes:
            assert process.wait(20) == 0
        states = list((made.folder / "fed" / "nodes").glob("*/state/*"))
        charged = [verify(state / "ledger.jsonl") for state in states if state.name != "accounts"]
        secret = [(made.folder / "fed" / "nodes" / f"node{number}" / "signing.key").read_text() for number in range(4)]
        written = [file.read_bytes() for state in states for file in state.iterdir()]
        written += [log.read_bytes() for log in made.folder.glob("*.log")]
        modes = {file.stat().st_mode & 0o077 for file in made.folder.glob("*.npz")}

    assert again.returncode == 0, again.stderr
    records = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    assert [record["round"] for record in records] == list(range(1, 13))
    assert len(charged) == 4 and all(verdict.problem is None for verdict in charged)
    assert all(len(set(verdict.charged)) == len(verdict.charged) <= 12 for verdict in charged)
    assert verify(out / "ledger.jsonl").problem is None
    assert not any(key.strip().encode() in text for key in secret for text in written)
    assert modes == {0}


def _rounds(out: Path) -> int:
    path = out / "rounds.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def _children(parent: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def _alive(process: int) -> bool:
    limit = time.monotonic() + 5
    while time.monotonic() < limit:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True
