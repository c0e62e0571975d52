"""A node whose every request starts a process: it resumes, and nobody gets a second vector of a round."""

from __future__ import annotations

import errno
import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.config.experiment import parse
from sottovoce.core.errors import InputError
from sottovoce.deployment.flower import node_memory
from sottovoce.deployment.flower.node import answers, switch
from sottovoce.deployment.party import read_signing_key
from sottovoce.federation.engines.mqtt.envelope import Kind, kind_of, phase_of
from sottovoce.privacy.ledger import verify
from sottovoce.privacy.plan import process as apart
from sottovoce.privacy.plan.request import PrivacyRequest
from sottovoce.privacy.plan.solve import solve_request
from sottovoce.runs.loop import run
from tests.deployment.processes import NODES, Killed, Processes, federate
from tests.runs.played import model

TABLES: dict[str, Any] = {
    "experiment": {"name": "processes", "seed": 4, "rounds": 2, "evaluate_every": 2},
    "data": {"source": "digits", "clients": NODES},
    "model": {"name": "logistic"},
    "client": {"local_steps": 2},
    "cohort": {"sample_rate": 1},
    "privacy": {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 0.5},
    "aggregation": {"secure": "real"},
}


def round_of(message: bytes) -> int:
    return int.from_bytes(message[22:30], "little")


def payload(message: bytes) -> bytes:
    return message[42:-64]


def asks(message: bytes, round_: int, phase: str) -> bool:
    return (kind_of(message), round_of(message), phase_of(message)) == (Kind.ASK, round_, phase)


def vectors(fleet: Processes, node: int) -> list[tuple[int, bytes]]:
    """Return the masked vectors that left a node, with their rounds."""
    sent = [text for by, text in fleet.said if by == node and kind_of(text) == Kind.ANSWER and phase_of(text) == "mask"]
    return [(round_of(text), payload(text)) for text in sent]


def charged(fleet: Processes, node: int) -> list[int]:
    verdict = verify(fleet.state(node) / "ledger.jsonl")
    assert verdict.problem is None
    return list(verdict.charged)


@pytest.fixture(scope="module", autouse=True)
def solved_here() -> Iterator[list[PrivacyRequest]]:
    """Solve plans in this process, each once; return the requests for which somebody wanted one solved."""
    known: dict[PrivacyRequest, dict[str, Any]] = {}
    wanted: list[PrivacyRequest] = []

    def solve(request: PrivacyRequest) -> dict[str, Any]:
        wanted.append(request)
        if request not in known:
            known[request] = solve_request(request)
        return known[request]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apart, "_solve", solve)
        yield wanted


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Processes:
    """Return a federation whose server was killed in round 1, when all had sent their vectors, and was resumed."""
    fleet = federate(tmp_path_factory.mktemp("played"), TABLES, simulated=False)
    with pytest.raises(Killed):
        fleet.serve(die=lambda message: asks(message, 1, "unmask"))
    fleet.serve(resume=True)
    return fleet


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Processes:
    """Return a federation whose server was killed in round 1 when it had asked node 0, the first, for its vector.

    Node 0 has not heard it yet.
    """
    fleet = federate(tmp_path_factory.mktemp("asked"), TABLES, simulated=False)
    on_its_way: list[bytes] = []

    def die(message: bytes) -> bool:
        if asks(message, 1, "mask"):
            on_its_way.append(message)
        return bool(on_its_way)

    with pytest.raises(Killed):
        fleet.serve(die=die)
    fleet.heard.append((0, on_its_way[0]))
    shutil.copytree(fleet.folder / "fed", fleet.folder / "before")
    return fleet


@pytest.fixture
def masking(asked: Processes) -> Processes:
    """Return that federation as it was then."""
    shutil.rmtree(asked.folder / "fed")
    shutil.copytree(asked.folder / "before", asked.folder / "fed")
    asked.said.clear()
    return asked


def test_a_round_that_was_open_is_void_and_nodes_and_server_have_charged_it(played: Processes) -> None:
    records = [json.loads(line) for line in (played.folder / "out" / "rounds.jsonl").read_text().splitlines()]

    assert [(record["round"], "void" in record) for record in records] == [(1, True), (2, False)]
    for node in range(NODES):
        assert charged(played, node) == [1, 2]
        assert [round_ for round_, _ in vectors(played, node)] == [1, 2]
    server = verify(played.folder / "out" / "ledger.jsonl")
    assert server.problem is None and 2 in server.charged
    summary = json.loads((played.folder / "out" / "summary.json").read_text())
    assert summary["void_rounds"] == 1 and summary["epsilon"] is None


def test_a_run_that_was_killed_between_two_rounds_ends_with_the_model_of_the_simulation(tmp_path: Path) -> None:
    run(parse(TABLES), tmp_path / "local")
    fleet = federate(tmp_path, TABLES, simulated=True)

    def die(record: dict[str, Any]) -> None:
        if record["round"] == 1:
            raise Killed

    with pytest.raises(Killed):
        fleet.serve(observe=die)
    fleet.serve(resume=True)

    assert (model(tmp_path / "out") == model(tmp_path / "local")).all()


def test_no_message_that_is_played_again_gets_another_vector_or_another_charge(played: Processes) -> None:
    before = [charged(played, node) for node in range(NODES)]
    given = {vector for node in range(NODES) for vector in vectors(played, node)}
    old = [text for _, text in played.heard]
    greetings = [text for to, text in played.heard if to == 0 and kind_of(text) == Kind.WELCOME]

    played.answer(0, *old)
    played.answer(0, *reversed(old))
    for greeting in greetings:
        played.answer(0, *(each for message in old for each in (greeting, message)))
    played.answer(0, *(message[:-70] + bytes([message[-70] ^ 1]) + message[-69:] for message in old))

    assert [charged(played, node) for node in range(NODES)] == before
    assert {vector for node in range(NODES) for vector in vectors(played, node)} == given


def test_an_old_state_does_not_get_a_second_vector(masking: Processes) -> None:
    (ask,) = masking.asks(0, "mask")
    old = (masking.state(0) / "sealed").read_bytes()
    masking.answer(0, ask)
    assert len(vectors(masking, 0)) == 1

    (masking.state(0) / "sealed").write_bytes(old)
    (refused,) = masking.answer(0, ask)

    assert kind_of(refused) == Kind.REFUSAL and b"rounds only rise" in refused
    assert len(vectors(masking, 0)) == 1 and charged(masking, 0) == [1]


def test_a_state_in_a_folder_that_was_moved_is_forgotten_and_its_marks_are_not(masking: Processes) -> None:
    (ask,) = masking.asks(0, "mask")
    old = (masking.state(0) / "sealed").read_bytes()
    masking.answer(0, ask)
    (masking.state(0) / "sealed").write_bytes(old)
    home = masking.folder / "fed" / "nodes" / "n0"
    shutil.move(home, masking.folder / "moved")
    told = {**masking.told(0), "keys": str(masking.folder / "moved")}

    (hello,) = answers(told, [ask])

    assert kind_of(hello) == Kind.HELLO  # it does not know the run
    shutil.move(masking.folder / "moved", home)
    assert charged(masking, 0) == [1]


def test_a_process_killed_after_it_sealed_sends_the_same_bytes_when_it_is_asked_again(masking: Processes) -> None:
    (ask,) = masking.asks(0, "mask")

    first, again = masking.answer(0, ask), masking.answer(0, ask)

    assert first == again and kind_of(first[0]) == Kind.ANSWER
    assert charged(masking, 0) == [1]


def test_a_full_disk_lets_no_vector_out_and_its_charge_stays(
    masking: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ask,) = masking.asks(0, "mask")
    real = node_memory.replace_file

    def full(path: Path, *rest: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(node_memory, "replace_file", full)
    with pytest.raises(OSError, match="No space left"):
        masking.answer(0, ask)
    monkeypatch.setattr(node_memory, "replace_file", real)
    (refused,) = masking.answer(0, ask)

    assert vectors(masking, 0) == [] and charged(masking, 0) == [1]
    assert kind_of(refused) == Kind.REFUSAL


def test_two_processes_of_one_node_at_once_send_the_same_bytes_and_charge_once(masking: Processes) -> None:
    (ask,) = masking.asks(0, "mask")
    threads = [threading.Thread(target=masking.answer, args=(0, ask)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    one, other = vectors(masking, 0)
    assert one == other and charged(masking, 0) == [1]


def test_a_message_for_another_node_or_of_another_federation_is_not_answered(
    masking: Processes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (ask,) = masking.asks(0, "mask")
    other = federate(tmp_path_factory.mktemp("other"), TABLES, simulated=False)

    assert masking.answer(1, ask) == []
    assert other.answer(0, ask) == []
    assert vectors(masking, 1) == []


def test_no_secret_stays_in_a_nodes_folder_or_leaves_it(played: Processes) -> None:
    for node in range(NODES):
        home = played.folder / "fed" / "nodes" / f"n{node}"
        key, seal = read_signing_key(home / "signing.key"), (played.state(node) / "seal.key").read_bytes()
        written = [
            file.read_bytes() for file in (home / "state").rglob("*") if file.is_file() and file.name != "seal.key"
        ]
        written += [file.read_bytes() for file in (played.folder / "out").rglob("*") if file.is_file()]
        written += [text for _, text in [*played.heard, *played.said]]
        assert not any(secret in text for text in written for secret in (key, key.hex().encode(), seal))
        modes = {file.name: file.stat().st_mode & 0o077 for file in played.state(node).iterdir()}
        assert modes["sealed"] == modes["seal.key"] == modes["plans"] == played.state(node).stat().st_mode & 0o077 == 0


def test_a_plan_is_solved_once_and_a_changed_file_of_it_is_solved_anew(
    played: Processes, solved_here: list[PrivacyRequest]
) -> None:
    solved_here.clear()
    (hello,) = answers(played.told(0), [])
    assert not solved_here
    path = played.state(0) / "plans"
    path.write_bytes(path.read_bytes()[:-1])
    assert payload(answers(played.told(0), [])[0]) == payload(hello) and len(solved_here) == 1
    answers(played.told(0), [])
    assert len(solved_here) == 1


def test_a_kept_plan_is_that_of_its_own_request(tmp_path: Path, solved_here: list[PrivacyRequest]) -> None:
    solved_here.clear()
    answers(federate(tmp_path, TABLES, simulated=False).told(0), [])
    (one,) = solved_here
    other = replace(one, noise_multiplier=2.0)

    assert node_memory.kept_plan(tmp_path, one, lambda: {"noise": 1}) == {"noise": 1}
    assert node_memory.kept_plan(tmp_path, other, lambda: {"noise": 2}) == {"noise": 2}
    assert node_memory.kept_plan(tmp_path, one, lambda: {"noise": 3}) == {"noise": 1}
    assert node_memory.kept_plan(tmp_path, other, lambda: {"noise": 3}) == {"noise": 2}


def test_what_is_missing_or_wrong_in_a_nodes_configuration_is_said_in_one_sentence(played: Processes) -> None:
    told = played.told(0)
    with pytest.raises(InputError, match="--node-config lacks keys, data; give run"):
        answers({"run": told["run"]}, [])
    for name, wrong, words in (
        ("run", played.folder / "nowhere.toml", "there is no experiment file"),
        ("keys", played.folder / "nowhere", "is no folder with keys"),
        ("keys", played.folder / "fed" / "server", "these are the keys of the training server"),
        ("data", played.folder / "nowhere.csv", "does not exist"),
        ("simulate-randomness", "false", 'must be true or false without quotes, got "false"'),
    ):
        with pytest.raises(InputError, match=words):
            answers({**told, name: wrong if name == "simulate-randomness" else str(wrong)}, [])
    assert not (played.folder / "fed" / "server" / "state").exists()


@pytest.mark.parametrize(("value", "on"), [(True, True), (False, False), (1, True), (0, False)])
def test_a_switch_is_a_truth_value(value: object, on: bool) -> None:
    assert switch({"resume": value}, "resume") is on
    assert switch({}, "resume") is False


@pytest.mark.parametrize("value", ["true", "", 2, 1.0, None])
def test_a_switch_is_nothing_else(value: object) -> None:
    with pytest.raises(InputError, match="resume must be true or false"):
        switch({"resume": value}, "resume")


def test_records_of_sites_are_units_on_a_fleet_too(tmp_path: Path) -> None:
    units = {name: table for name, table in TABLES.items() if name not in ("client", "scheme", "cohort")}
    units["privacy"] = {"unit": "record", "epsilon_server": 8.0, "delta": 1e-5}
    units["aggregation"] = {"secure": "real", "threshold": 3}
    run(parse(units), tmp_path / "local")

    summary = federate(tmp_path, units, simulated=True).serve()

    assert summary["unit"] == "record"
    assert np.array_equal(model(tmp_path / "out"), model(tmp_path / "local"))
