"""`serve` and `join` before anybody is met: what they refuse, in one sentence and without leaving anything behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tests.cli.conftest import Shell

from sottovoce.cli.progress import Board, board
from sottovoce.config.experiment import parse
from sottovoce.core.errors import ConfigError
from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster
from sottovoce.deployment.trial.broker import Broker
from sottovoce.federation.engines.mqtt.engine import Status

FILE = """
[experiment]
name = "six"
rounds = 2
[data]
source = "digits"
clients = 3
[model]
name = "logistic"
[cohort]
sample_rate = 1
[scheme]
name = "fl-std"
"""
NOWHERE = "mqtts://127.0.0.1:9"


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federation") / "fed"
    init_federation(folder)
    add_nodes(folder, ["lyon", "oslo", "turin"])
    sign_roster(folder)
    return folder


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("six.toml").write_text(FILE)
    np.savez("mine.npz", x=np.ones((5, 8, 8, 1), np.uint8), y=np.arange(5))


def test_a_server_needs_keys_or_a_trial(shell: Shell, fed: Path) -> None:
    nothing = shell("serve", "six.toml")
    both = shell("serve", "six.toml", "--local", "3", "--keys", str(fed / "server"))
    fewer = shell("serve", "six.toml", "--local", "2")

    assert (nothing.code, both.code, fewer.code) == (2, 2, 2)
    assert "give --keys FOLDER, or --local N" in nothing.err
    assert "remove --keys" in both.err
    assert "--local must be the number of clients, 3, got 2; give --local 3, or --set data.clients=2" in fewer.err
    assert not Path("runs").exists()


def test_a_broker_that_is_not_there_is_one_sentence_and_no_folder(shell: Shell, fed: Path) -> None:
    keys = ["--keys", str(fed / "server")]
    unnamed = shell("serve", "six.toml", *keys)
    gone = shell("serve", "six.toml", *keys, "--set", f"engine.broker={NOWHERE}", "--out", "run")
    node = shell("join", NOWHERE, "--run", "six.toml", "--keys", str(fed / "nodes" / "oslo"), "--data", "mine.npz")

    assert unnamed.code == 2 and "[engine] broker is missing" in unnamed.err
    assert gone.code == node.code == 4
    for outcome in (gone, node):
        assert f"error: broker {NOWHERE}: unreachable: nothing listens" in outcome.err.splitlines()[-1]
    assert not Path("run").exists()


def test_keys_of_the_wrong_party_are_refused(shell: Shell, fed: Path) -> None:
    server = shell("serve", "six.toml", "--keys", str(fed / "nodes" / "oslo"), "--set", f"engine.broker={NOWHERE}")
    node = shell("join", NOWHERE, "--run", "six.toml", "--keys", str(fed / "server"), "--data", "mine.npz")

    assert (server.code, node.code) == (2, 2)
    assert "holds the keys of node-1" in server.err
    assert "these are the keys of the training server" in node.err


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--data", "other.npz"], "a record has shape [8, 9], the run's have [8, 8, 1]"),
        (["--data", "mine.npz", "--set", "data.clients=4"], "the roster has 3 nodes; they must be the same"),
        (["--data", "mine.npz", "--set", "client.local_step=4"], "did you mean 'local_steps'?"),
        (["--data", "nothing.npz"], "nothing.npz does not exist"),
    ],
)
def test_a_node_says_what_does_not_fit_before_it_connects(
    shell: Shell, fed: Path, more: list[str], reason: str
) -> None:
    np.savez("other.npz", x=np.ones((5, 8, 9), np.uint8), y=np.arange(5))

    outcome = shell("join", NOWHERE, "--run", "six.toml", "--keys", str(fed / "nodes" / "oslo"), *more)

    assert outcome.code == 2 and reason in outcome.err


def test_simulated_secrets_are_for_one_machine(shell: Shell, fed: Path) -> None:
    away = "mqtts://broker.example"
    keys = ["--keys", str(fed / "nodes" / "oslo"), "--data", "mine.npz", "--simulate-randomness"]
    node = shell("join", away, "--run", "six.toml", *keys)
    told = ["--keys", str(fed / "server"), "--set", f"engine.broker={away}", "--simulate-randomness"]
    server = shell("serve", "six.toml", *told)

    assert (node.code, server.code) == (2, 2)
    for outcome in (node, server):
        assert "--simulate-randomness gives everybody the same secrets" in outcome.err


def test_a_private_run_between_machines_sums_for_real(shell: Shell) -> None:
    private = ["--set", "privacy.noise_multiplier=1", "--set", "privacy.delta=1e-5", "--set", "privacy.clip_norm=1"]

    outcome = shell("serve", "six.toml", "--local", "3", *private)

    assert outcome.code == 2 and 'set secure = "real"' in outcome.err


def test_run_does_not_play_nodes(shell: Shell) -> None:
    outcome = shell("run", "six.toml", "--set", "engine.name=mqtt")

    assert outcome.code == 2 and "use sottovoce serve" in outcome.err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"broker": NOWHERE}, '[engine] broker is for name = "mqtt"'),
        ({"min_nodes": 4}, '[engine] min_nodes is for name = "mqtt"'),
        ({"name": "mqtt", "broker": "http://x"}, "[engine] broker must be an address"),
        ({"name": "mqtt", "broker": "mqtt://broker.example"}, "without TLS"),
        ({"name": "mqtt", "phase_timeout": 0.0}, "phase_timeout"),
    ],
)
def test_the_engine_table_refuses_what_nobody_reads(table: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse({"engine": table})

    assert reason in str(refused.value)


def drawn(shown: Board) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(shown.table())
    return captured.get()


@pytest.mark.parametrize("private", [False, True])
def test_the_board_shows_no_cohort_of_a_private_run(private: bool) -> None:
    shown = Board()
    shown.start("six", 40, private=private)
    shown.watch(Status(nodes=6, there=5, round=3, phase="mask", waiting_for=4))
    shown.show("six", {"round": 2, "bytes_up": 12345, "epsilon": 0.5 if private else None, "accuracy": 0.25})

    table = drawn(shown)
    assert "5 of 6" in table and "2 of 40" in table and "mask of 3" in table and "0.2500" in table
    assert ("waits for 4" in table) == (not private)
    assert ("12.3 kB" in table) == (not private)
    assert ("0.5" in table) == private or private is False


def test_without_a_terminal_there_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with board(quiet=False) as shown:
        shown.start("six", 2)
        shown.watch(Status())
        shown.show("six", {"round": 1, "bytes_up": 10, "bytes_down": 10, "accuracy": 0.5})

    assert "round 1 of 2: accuracy 0.5000" in capsys.readouterr().err


def test_a_private_run_that_has_no_epsilon_shows_no_cohort_either(capsys: pytest.CaptureFixture[str]) -> None:
    """After a void round 1 epsilon is null in every record: that is no sign that nothing is to be kept secret."""
    told = {"epsilon": None, "bytes_up": 1234, "bytes_down": 5678, "failures": {"3": "left"}, "reason": "7 answered"}
    with board(quiet=False) as shown:
        shown.start("six", 2, private=True)
        shown.show("six", {"round": 1, "void": True, **told})
        shown.show("six", {"round": 2, "accuracy": 0.5, **told})
    live = Board()
    live.start("six", 2, private=True)
    live.show("six", {"round": 2, "accuracy": 0.5, **told})

    said = capsys.readouterr().err
    assert "accuracy 0.5000" in said
    assert not any(secret in said for secret in ("kB", "1234", "failed", "answered"))
    assert not live._tally.trouble


def test_a_check_tries_everything_and_takes_no_part(shell: Shell, fed: Path) -> None:
    state = fed / "nodes" / "oslo" / "state"
    before = {path: path.stat().st_mtime_ns for path in state.rglob("*")}
    with Broker(fed) as broker:
        words = ["join", broker.url, "--run", "six.toml", "--keys", str(fed / "nodes" / "oslo"), "--data", "mine.npz"]
        good = shell(*words, "--check", "--json")
        other = shell(*words[:-1], "nothing.npz", "--check")
        missing = shell(*words, "--policy", "none.toml", "--check")
        door = shell("status", broker.url, "--keys", str(fed / "server"))
    gone = shell("join", NOWHERE, *words[2:], "--check")

    assert good.code == 0 and '"who": "oslo"' in good.out and '"trouble": null' in good.out
    assert (other.code, missing.code, gone.code) == (2, 2, 4) and "none.toml does not exist" in missing.err
    assert f"{NOWHERE}: unreachable: nothing listens" in gone.err.splitlines()[-1]
    assert door.code == 0 and "opens to server; its certificate holds for" in door.out
    assert {path: path.stat().st_mtime_ns for path in state.rglob("*")} == before


def test_what_status_cannot_show_is_one_sentence(shell: Shell, fed: Path) -> None:
    Path("empty").mkdir()
    for words, what in (
        (["status", "nowhere"], "there is no run folder nowhere"),
        (["status", "empty"], "no server of a federation has written to it"),
        (["status", NOWHERE], "give --keys FOLDER"),
        (["serve", "six.toml", "--local", "3", "--status", "127.0.0.1:99999"], "--status must be host:port"),
        (["serve", "six.toml", "--local", "3", "--log", "xml"], "--log must be text or json"),
    ):
        outcome = shell(*words)
        assert outcome.code == 2 and what in outcome.err and outcome.err.count("error:") == 1
    assert not Path("runs").exists()
