"""Agents: real processes over a real broker, and what no server may make them do."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.checks.twin import few
from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.errors import ConfigError, InputError, PolicyError, WireError
from sottovoce.data import load
from sottovoce.deployment.keys import accept_node, add_nodes, init_federation, renew, sign_roster
from sottovoce.deployment.node.agent import AGAIN, Agent, AgentPlace, AgentStatus, _renewal, resident
from sottovoce.deployment.offer import Offers, RunOffer, Want, install, read_certificates
from sottovoce.deployment.party import Identity
from sottovoce.deployment.roster import Roster
from sottovoce.deployment.server.serve import serve
from sottovoce.deployment.trial.broker import Broker
from sottovoce.deployment.trial.children import die_with_parent
from sottovoce.deployment.trial.trial import environment
from sottovoce.deployment.watchdog import Watchdog, notify
from sottovoce.federation.engines.mqtt.greeting import PROTOCOL

pytest.importorskip("paho.mqtt.client")
pytest.importorskip("amqtt")

NAMES = ("bern", "lyon", "oslo", "turin")
PATIENCE = 240.0
RUN: dict[str, Any] = {
    "experiment": {"name": "first", "rounds": 2, "evaluate_every": 2},
    "data": {"source": "digits", "clients": 4},
    "model": {"name": "logistic"},
    "client": {"local_steps": 1, "batch_size": 16, "client_lr": 0.2},
    "cohort": {"sampling": "fixed", "sample_rate": 1.0},
    "aggregation": {"secure": "real"},
    "engine": {"name": "mqtt", "min_nodes": 4},
}


def experiment(**tables: dict[str, Any]) -> Experiment:
    return parse({name: table | tables.get(name, {}) for name, table in RUN.items()})


@dataclass
class Fleet:
    """Four agents, their broker and their server."""

    folder: Path
    broker: Broker
    agents: dict[str, subprocess.Popen[bytes]]

    @property
    def fed(self) -> Path:
        return self.folder / "fed"

    def start(self, name: str, *more: str) -> None:
        home = self.folder / name
        home.mkdir(exist_ok=True)
        if not (home / "keys").exists():  # what its operator was sent once
            shutil.copytree(self.fed / "nodes" / name, home / "keys")
        words = ["--keys", str(home / "keys"), "--data", str(self.folder / f"{name}.npz")]
        words += ["--policy", str(home / "site.toml"), "--log", "text", *more]
        with (home / "log").open("ab") as log:
            self.agents[name] = subprocess.Popen(
                [sys.executable, "-m", "sottovoce", "agent", self.broker.url, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                preexec_fn=die_with_parent,
            )

    def policy(self, name: str, text: str) -> None:
        (self.folder / name).mkdir(exist_ok=True)
        (self.folder / name / "site.toml").write_text(text)

    def log(self, name: str) -> str:
        path = self.folder / name / "log"
        return path.read_text() if path.exists() else ""

    def until(self, name: str, words: str, times: int = 1) -> None:
        limit = time.monotonic() + PATIENCE
        while self.log(name).count(words) < times:
            assert time.monotonic() < limit and self.agents[name].poll() is None, self.log(name)
            time.sleep(0.05)

    def serve(self, played: Experiment, out: str, **more: Any) -> dict[str, Any]:
        return serve(played, self.folder / out, keys=self.fed / "server", broker=self.broker.url, **more)


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    fed = folder / "fed"
    init_federation(fed)
    add_nodes(fed, NAMES)
    sign_roster(fed)
    digits = load("digits")
    for place, name in enumerate(NAMES):
        np.savez(folder / f"{name}.npz", x=digits.x_train[place::4], y=digits.y_train[place::4])
    with Broker(fed) as broker:
        made = Fleet(folder, broker, {})
        try:
            yield made
        finally:
            for process in made.agents.values():
                process.send_signal(signal.SIGTERM)
            for process in made.agents.values():
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def test_agents_play_what_their_policy_allows_run_after_run_and_take_roster_and_certificate_by_the_broker(
    tmp_path: Path,
) -> None:
    with fleet(tmp_path) as made:
        for name in NAMES:
            made.policy(name, "[rules]\nprivate = false\nmodels = ['logistic']\n")
            made.start(name)

        first = made.serve(experiment(), "first")
        for name in NAMES:
            made.until(name, "waiting for the next run")
        allowed = "[rules]\nprivate = false\n"  # three of four let another model in, while their agents run
        for name in NAMES[1:]:
            made.policy(name, allowed)
        renew(made.fed, "oslo")
        sign_roster(made.fed)
        told: dict[str, Any] = {}
        second = made.serve(
            experiment(experiment={"name": "second"}, model={"name": "mlp"}, engine={"min_nodes": 3}),
            "second",
            watch=lambda status: told.update(status=status),
        )
        made.until("bern", "the policy's models are logistic")
        for name in NAMES[1:]:
            made.until(name, "waiting for the next run", 2)
        refused = {node.name: node.refused for node in told["status"].presence()}
        for process in made.agents.values():
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(30) for process in made.agents.values()]

    assert first["rounds"] == second["rounds"] == 2
    assert refused == {"bern": "policy", "lyon": None, "oslo": None, "turin": None}
    assert "models" not in str(refused), "the server hears no rule"
    assert made.log("bern").count("the policy's models are logistic") == 1, "it is said once"
    assert "took roster 2 of 4 nodes" in made.log("lyon")
    assert Identity.read(tmp_path / "oslo" / "keys").read_roster().revision == 2, "it has the new certificate too"
    assert codes == [0, 0, 0, 0]
    lines = [json.loads(line) for line in (tmp_path / "second" / "rounds.jsonl").read_text().splitlines()]
    assert [line["senders"] for line in lines] == [3, 3]


# What an offer may bring.


@pytest.fixture
def keys(fed: Path) -> Path:
    """Return the folder of a node, as its operator was sent it."""
    return Path(shutil.copytree(fed / "nodes" / "oslo", fed.parent / "oslo"))


def offers(fed: Path, played: Experiment | None = None, said: list[str] | None = None) -> Offers:
    server = fed / "server"
    roster = Identity.read(server).read_roster()
    return Offers(
        played or few(clients=3),
        roster,
        (server / "roster.json").read_bytes(),
        read_certificates(server),
        {},
        server / "requests",
        ([] if said is None else said).append,
    )


def want(keys: Path, **more: Any) -> Want:
    identity = Identity.read(keys)
    digest = Roster.read(identity.roster, identity.pinned).digest.hex()
    told = Want("00" * 8, 1, digest, identity.fingerprint, int(identity.expires.timestamp()), "1")
    return replace(told, **more)


@pytest.mark.parametrize(
    "tables",
    [
        {"model": {"name": "evil:Model"}},
        {"scheme": {"name": "os:system"}},
        {"data": {"source": "/etc/passwd"}},
        {"data": {"source": "digits", "test": "../secret.npz"}},
        {"data": {"source": "digits", "schema": "../site.toml"}},
        {"data": {"source": "digits", "schema": "numpy.py"}},
        {"data": {"source": "digits", "schema": "~/.ssh/config.toml"}},
    ],
)
def test_an_offered_experiment_names_no_code_and_no_file_of_the_machine(tmp_path: Path, tables: dict[str, Any]) -> None:
    with pytest.raises((PolicyError, ConfigError)):
        RunOffer(tables, schema="x = 1").experiment(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_an_offer_is_the_experiment_by_its_digest_and_brings_what_is_newer_alone(fed: Path, keys: Path) -> None:
    made = offers(fed, experiment(data={"clients": 3}))

    payload, remark, _ = made.answer(1, want(keys).pack())
    offer = RunOffer.unpack(payload)

    assert offer.experiment(keys).identity() == experiment(data={"clients": 3}).identity()
    assert (offer.roster, offer.certificate, remark) == ("", "", None)
    assert not offer.announces
    renew(fed, "oslo")
    sign_roster(fed)
    newer = RunOffer.unpack(offers(fed).answer(1, want(keys).pack())[0])
    assert newer.roster and newer.certificate
    assert offers(fed).offer("oslo").announces


def test_versions_of_the_protocol_are_compared_and_not_those_of_the_package(fed: Path, keys: Path) -> None:
    same = offers(fed).answer(1, want(keys, version="9.9").pack())
    other = offers(fed).answer(1, want(keys, protocol=PROTOCOL + 1).pack())

    assert RunOffer.unpack(same[0]).tables and same[1] is None
    assert not RunOffer.unpack(other[0]).tables and "upgrade the older" in str(other[1])


def test_a_roster_and_a_certificate_are_taken_if_the_root_signed_them_and_they_are_newer(fed: Path, keys: Path) -> None:
    identity = Identity.read(keys)
    before = Roster.read(identity.roster, identity.pinned)
    renew(fed, "oslo")
    sign_roster(fed)
    newer = offers(fed).offer("oslo")

    after = install(newer, identity, before)

    assert after.revision == before.revision + 1
    assert Identity.read(keys).read_roster() == after
    with pytest.raises(InputError, match="older than 2 here"):
        install(RunOffer(roster=before_file(fed, before)), Identity.read(keys), after)


def before_file(fed: Path, roster: Roster) -> str:
    return roster.signed(bytes.fromhex((fed / "root.key").read_text())).decode()


def test_what_the_root_did_not_sign_changes_nothing(fed: Path, keys: Path, tmp_path: Path) -> None:
    identity = Identity.read(keys)
    roster = Roster.read(identity.roster, identity.pinned)
    renew(fed, "oslo")
    sign_roster(fed)
    newer = offers(fed).offer("oslo")
    init_federation(tmp_path / "other")
    add_nodes(tmp_path / "other", ["lyon", "oslo", "turin"])
    sign_roster(tmp_path / "other")
    files = {path.name: path.read_bytes() for path in keys.iterdir()}
    foreign = offers(tmp_path / "other").offer("oslo")

    for bad in (
        replace(newer, roster=newer.roster.replace("oslo", "olso")),
        replace(newer, roster=foreign.roster),
        replace(newer, certificate=foreign.certificate),
        replace(newer, certificate=offers(fed).certificates["lyon"]),
        replace(newer, certificate=""),
    ):
        with pytest.raises(InputError):
            install(bad, identity, roster)

    assert {path.name: path.read_bytes() for path in keys.iterdir()} == files


def test_a_certificate_is_renewed_by_a_request_of_the_nodes_own_key_alone(fed: Path, keys: Path) -> None:
    said: list[str] = []
    made, own = offers(fed, said=said), Identity.read(keys)
    renewal = _renewal(own)

    made.answer(1, want(keys, renewal=renewal).pack())
    made.answer(1, want(keys, renewal=renewal).pack())
    with pytest.raises(WireError, match="not that of lyon"):
        made.answer(0, want(keys, renewal=renewal).pack())

    path = fed / "server" / "requests" / "oslo.json"
    node, _ = accept_node(fed, path)
    sign_roster(fed)
    assert node.name == "oslo" and len(said) == 1 and "oslo asks for a new certificate" in said[0]
    assert install(offers(fed).offer("oslo"), own, Roster.read(own.roster, own.pinned)).revision == 2
    assert Identity.read(keys).read_roster().entries[1].fingerprint != own.fingerprint


def test_a_clone_of_the_key_is_told_once_and_makes_the_agent_unhealthy(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    status = AgentStatus(now=lambda: clock[0])

    def cut(after: float) -> None:
        status.connection(up=True)
        clock[0] += after
        status.connection(up=False, reason="connection lost: Unspecified error")

    for _ in range(20):
        cut(20.0)  # a link that flaps
    assert not status.cloned
    for _ in range(10):
        cut(1.0)
    status.connection(up=True)

    assert status.cloned and "the key was copied" in str(status.healthy)
    assert sum("the key was copied" in record.getMessage() for record in caplog.records) == 1
    assert sum("connection lost" in record.getMessage() for record in caplog.records) == 1, "it is said once"
    clock[0] += 61.0
    assert status.healthy is None, "the other one is gone"


def test_a_fresh_process_knows_what_the_one_before_did_and_refused(keys: Path, tmp_path: Path) -> None:
    place = AgentPlace("mqtts://broker.example", keys, "mine.npz", tmp_path / "site.toml")
    before, after = Agent(place), Agent(place)
    before.status.runs, before.status.answers, before.status.payload = 3, 45, [10, 20]
    before._hinder("the policy's models are logistic", policy=True)

    after.recall(before.kept())

    assert (after.status.runs, after.status.answers, after.status.payload) == (3, 45, [10, 20])
    assert after.status.refused == "policy" and after._said == before._said
    assert 0 < after._ask_at - time.monotonic() <= AGAIN
    assert resident() > 1 << 20


def test_systemd_hears_of_an_agent_that_is_ready_and_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not notify("READY=1"), "nobody listens"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(tmp_path / "notify"))
        ear.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "40000")
        dog = Watchdog()
        dog.start()
        heard = [ear.recv(100), ear.recv(100)]
        dog.stop()
        while heard[-1] != b"STOPPING=1":
            heard.append(ear.recv(100))

    assert heard[:2] == [b"READY=1", b"WATCHDOG=1"]


def test_an_agent_that_is_stuck_is_silent() -> None:
    dog = Watchdog()
    dog.beat(busy=False)
    assert dog.alive
    dog._seen -= 121
    assert not dog.alive
    dog.beat(busy=True)
    dog._seen -= 3600
    assert dog.alive, "it may train for an hour"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"policy": "nothing.toml"}, "nothing.toml does not exist"),
        ({"data": "nothing.npz"}, "nothing.npz does not exist"),
        ({"broker": "mqtt://broker.example"}, "without TLS"),
        ({"broker": "mqtts://broker.example:99999"}, "broker must be an address"),
        ({"keys": "server"}, "these are the keys of the server"),
        ({"keys": "nowhere"}, "is no folder with keys"),
    ],
)
def test_what_an_operator_gave_wrongly_is_one_sentence_before_anybody_is_met(
    fed: Path, keys: Path, tmp_path: Path, change: dict[str, str], words: str
) -> None:
    (tmp_path / "site.toml").write_text("")
    np.savez(tmp_path / "mine.npz", x=np.ones((5, 8, 8, 1), np.uint8), y=np.arange(5))
    home = {"server": fed / "server", "nowhere": tmp_path / "nowhere"}.get(change.get("keys", ""), keys)
    place = AgentPlace(
        change.get("broker", "mqtts://broker.example"),
        home,
        change.get("data", str(tmp_path / "mine.npz")),
        Path(change.get("policy", str(tmp_path / "site.toml"))),
    )

    with pytest.raises(InputError, match=words):
        place.check()
