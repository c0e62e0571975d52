"""kill -9 of processes: five `join`s and a `serve` over a real broker, where all rows of a person are protected."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sottovoce.config.experiment import Experiment, parse, to_toml
from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster
from sottovoce.deployment.node.account import read_account
from sottovoce.deployment.trial.broker import Broker
from sottovoce.deployment.trial.trial import environment
from sottovoce.privacy.ledger import verify
from sottovoce.runs.loop import run
from tests.deployment.test_units import hospitals, visits

pytest.importorskip("paho.mqtt.client")
pytest.importorskip("amqtt")

PHASES = ("advertise", "share", "mask", "consistency", "unmask")
SITES, VICTIM = 5, 1
OF_SITE, OF_SERVER = range(1, 6), range(6, 11)  # rounds in which the site, or the server, is killed in each phase
ROUNDS = 11
ROOT = Path(__file__).parents[2]
PATIENCE = 600.0
NOISE: dict[str, Any] = {"epsilon_server": None, "noise_multiplier": 20.0, "delta": 1e-4}  # soon solved


def experiment(folder: Path, **tables: dict[str, Any]) -> Experiment:
    """Return a run of five hospitals with 40 patients each, who have three rows."""
    return hospitals(
        experiment={"rounds": ROUNDS},
        data={"folder": str(folder), "person": "patient"},
        privacy={"unit": "person", "units": [40] * SITES, "min_units": 40, **NOISE},
        aggregation={"threshold": 4},
        **tables,
    )


class Lives:
    """The processes of a federation; whoever is killed is started again."""

    def __init__(self, folder: Path, broker: str, *, simulated: bool) -> None:
        self.folder, self.broker, self.simulated = folder, broker, simulated
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.deaths = {"server": 0, "victim": 0}

    def start(self, name: str, place: str, *words: str) -> None:
        more = ["--simulate-randomness"] if self.simulated else []
        command = [sys.executable, "-m", "tests.deployment.mortal", place, *words, *more]
        with (self.folder / f"{name}.log").open("ab") as log:
            told = environment() | {"DIARY": str(self.folder / f"{name}.diary")}
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, env=told, cwd=ROOT)

    def site(self, number: int) -> None:
        place = PHASES[self.deaths["victim"]] if number == VICTIM and self.deaths["victim"] < len(PHASES) else "never"
        data = str(self.folder / f"hospital_{number + 1}.csv")
        keys = str(self.folder / "fed" / "nodes" / f"n{number}")
        run_file = str(self.folder / "experiment.toml")
        self.start(f"site{number}", place, "join", self.broker, "--run", run_file, "--keys", keys, "--data", data)

    def server(self) -> None:
        life = self.deaths["server"]
        place = f"{OF_SERVER[life]} {PHASES[life]}" if life < len(PHASES) else "never"
        words = [str(self.folder / "experiment.toml"), "--keys", str(self.folder / "fed" / "server"), "--quiet"]
        words += ["--out", str(self.folder / "out"), *(["--resume"] if life else [])]
        self.start("server", place, "serve", *words)

    def play(self) -> None:
        """Let them live until the server ends by itself."""
        self.server()
        for number in range(SITES):
            self.site(number)
        until = time.monotonic() + PATIENCE
        while (code := self.processes["server"].poll()) != 0:
            assert time.monotonic() < until, self.words()
            if code is not None:
                assert code == -signal.SIGKILL, self.words()
                self.deaths["server"] += 1
                self.server()
            for number in range(SITES):
                ended = self.processes[f"site{number}"].poll()
                if ended == -signal.SIGKILL and number == VICTIM:
                    # Not before its round is over: the server gives who lost its connection time to be back.
                    if self.rounds() > self.deaths["victim"]:
                        self.deaths["victim"] += 1
                        self.site(VICTIM)
                else:
                    assert ended in (None, 0), self.words()
            time.sleep(0.02)

    def rounds(self) -> int:
        """Count the rounds that are over."""
        told = self.folder / "out" / "rounds.jsonl"
        return len(told.read_text().splitlines()) if told.exists() else 0

    def words(self) -> str:
        return "\n".join(f"{log.name}: {log.read_text()[-2000:]}" for log in sorted(self.folder.glob("*.log")))

    def left(self, number: int) -> int:
        """Count the masked vectors that a site sent."""
        return len(set((self.folder / f"site{number}.diary").read_text().split()))

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
            process.wait(20)


@contextmanager
def lives(folder: Path, *, simulated: bool) -> Iterator[Lives]:
    visits(folder)
    fed = folder / "fed"
    init_federation(fed)
    add_nodes(fed, [f"n{number}" for number in range(SITES)])
    sign_roster(fed)
    with Broker(fed) as broker:
        tables = experiment(folder).tables()
        tables["engine"] = {"name": "mqtt", "broker": broker.url, "min_nodes": SITES, "phase_timeout": 60.0}
        (folder / "experiment.toml").write_text(to_toml(parse(tables).tables()))
        made = Lives(folder, broker.url, simulated=simulated)
        try:
            yield made
        finally:
            made.end()


@pytest.mark.slow
def test_processes_killed_in_every_phase_train_the_model_of_a_simulation(tmp_path: Path) -> None:
    with lives(tmp_path, simulated=True) as played:
        played.play()
        assert played.deaths == {"server": 5, "victim": 5}
    # A round that a killed server had begun is void: nobody's sum is released, as where everybody left.
    leave = [[round_, VICTIM, phase] for round_, phase in zip(OF_SITE, PHASES, strict=True)]
    leave += [[round_, site, "advertise"] for round_ in OF_SERVER for site in range(SITES)]
    run(
        parse({**experiment(tmp_path).tables(), "devices": {"leave": leave}, "engine": {"workers": 1}}),
        tmp_path / "alone",
    )

    assert (tmp_path / "out" / "model.npz").read_bytes() == (tmp_path / "alone" / "model.npz").read_bytes()


@pytest.mark.slow
def test_processes_killed_in_every_phase_have_charged_what_they_sent(tmp_path: Path) -> None:
    with lives(tmp_path, simulated=False) as played:
        played.play()
        assert played.deaths == {"server": 5, "victim": 5}

    check_ledgers(tmp_path, [played.left(number) for number in range(SITES)])


def check_ledgers(folder: Path, left: list[int]) -> None:
    """Compare the ledgers with what left: a site pays before its vector leaves, the server before it opens a sum."""
    server = verify(folder / "out" / "ledger.jsonl")
    assert server.problem is None and server.charged == [*OF_SITE, OF_SERVER[-1], ROUNDS]
    for number in range(SITES):
        [ledger] = (folder / "fed" / "nodes" / f"n{number}" / "state").glob("*/ledger.jsonl")
        own = verify(ledger)
        # The server was killed before it asked for masked vectors, or after: rounds 6 to 8, and 9 and 10.
        asked = [*OF_SITE, *OF_SERVER[3:], ROUNDS]
        if number == VICTIM:  # killed before it made its vector in rounds 1 and 2, and before it left in round 3
            asked = asked[2:]
        assert own.problem is None and own.charged == asked
        assert left[number] == len(asked) - (number == VICTIM)
        [account] = (folder / "fed" / "nodes" / f"n{number}" / "state" / "accounts").glob("*.jsonl")
        assert len(read_account(account).charges) == 1, "the whole plan is charged once"
