"""Runs between machines: equal to a simulation where seeds make them so, else private, resumable and honest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.api.result import Result
from sottovoce.assembly.elsewhere import gather_for_server
from sottovoce.checks.twin import few
from sottovoce.core.errors import InputError, PrivacyError, RunError
from sottovoce.federation.engine import Request
from sottovoce.report.html import write_html
from sottovoce.report.runs import facts, read_run
from sottovoce.report.tables import card, notes
from sottovoce.runs.folder import read_operator, read_rounds
from sottovoce.runs.loop import run
from sottovoce.statement.evidence import gather_evidence
from sottovoce.statement.statement import make_statement
from sottovoce.statement.verify import verify_run
from tests.runs.machines import ONE, REAL, SCHEMES, federation, private
from tests.runs.played import ledger, model


@pytest.mark.parametrize("scheme", SCHEMES)
def test_seeds_make_a_run_between_machines_equal_to_a_simulation_bit_for_bit(scheme: str, tmp_path: Path) -> None:
    experiment = private(scheme)
    deployed, _ = federation(experiment, simulated=True)
    alone = run(experiment, tmp_path / "alone")
    together = run(experiment, tmp_path / "together", parties=deployed)

    assert np.array_equal(model(tmp_path / "alone"), model(tmp_path / "together"))
    assert read_rounds(tmp_path / "alone") == read_rounds(tmp_path / "together")
    assert ledger(tmp_path / "alone") == ledger(tmp_path / "together")
    assert together["note"] == "simulated: not private"
    assert {key: together[key] for key in alone} == alone


def test_a_run_that_is_not_private_is_equal_too(tmp_path: Path) -> None:
    experiment = few(clients=6, experiment={"rounds": 3, "evaluate_every": 1}, **ONE)
    deployed, _ = federation(experiment, simulated=True)
    run(experiment, tmp_path / "alone")
    run(experiment, tmp_path / "together", parties=deployed)

    assert np.array_equal(model(tmp_path / "alone"), model(tmp_path / "together"))


def test_two_runs_of_one_seed_share_nothing_that_is_secret(tmp_path: Path) -> None:
    """Half of nine clients are drawn: the same cohorts in six rounds happen by chance in one of 10^16 pairs of runs."""
    experiment = few(experiment={"rounds": 6, "evaluation": "none"}, cohort={"sample_rate": 0.5})
    cohorts, models = [], []
    for name in ("one", "two"):
        deployed, engines = federation(experiment)
        run(experiment, tmp_path / name, parties=deployed)
        cohorts.append([clients for _, phase, clients in engines[0].requests if phase == "train"])
        models.append(model(tmp_path / name))

    assert cohorts[0] != cohorts[1]
    assert not np.array_equal(*models)


def test_the_summary_of_a_deployed_run_says_against_whom_epsilon_does_not_hold(tmp_path: Path) -> None:
    experiment = private()
    deployed, _ = federation(experiment)
    summary = run(experiment, tmp_path / "run", parties=deployed)
    rounds = read_rounds(tmp_path / "run")

    assert summary["note"] == "deployment"
    assert summary["deployed"] is True
    assert summary["void_rounds"] == 0
    assert summary["epsilon"] == pytest.approx(rounds[-1]["epsilon"])
    assert summary["epsilon_reason"] is None
    assert "the broker" in summary["epsilon_not_against"]
    assert summary["epsilon_server"] == summary["privacy"]["epsilon_server"]
    assert [kind for kind, _ in ledger(tmp_path / "run")] == ["open", *["draws", "charge"] * 3]


def test_a_trial_whose_secrets_follow_from_a_seed_is_called_a_simulation_everywhere(tmp_path: Path) -> None:
    experiment = private()
    seeded, _ = federation(experiment, simulated=True)
    summary = run(experiment, tmp_path / "run", parties=seeded)
    statement = make_statement(gather_evidence(tmp_path / "run"))

    assert summary["note"] == "simulated: not private"
    assert summary["deployed"] is False
    assert statement["simulated"] is True
    assert "protects nobody" in statement["in_one_sentence"]
    assert not verify_run(tmp_path / "run").of("false")


def lose(*rounds: int, phase: str = "mask") -> Any:
    def lost(request: Request, client: int) -> bool:
        return request.round in rounds and request.phase == phase

    return lost


@pytest.mark.parametrize(
    ("scheme", "phase"), [("fl-std", "share"), ("fl-std", "unmask"), ("fl-sign", "unmask"), ("adaptive", "share")]
)
def test_a_private_round_without_quorum_looks_like_any_other(scheme: str, phase: str, tmp_path: Path) -> None:
    experiment = private(scheme, aggregation={"answer_rate": None})
    deployed, _ = federation(experiment, lost=lose(2, phase=phase))
    summary = run(experiment, tmp_path / "run", parties=deployed)
    rounds, operator = read_rounds(tmp_path / "run"), read_operator(tmp_path / "run")

    assert [record.keys() for record in rounds] == [rounds[0].keys()] * 3
    assert ledger(tmp_path / "run")[1:] == [(kind, round_) for round_ in (1, 2, 3) for kind in ("draws", "charge")]
    assert summary["aborted_rounds"] == 0
    assert {record["epsilon"] for record in rounds} == {summary["epsilon"]} == {None}, "nobody vouched for answers"
    assert "answer_rate" in summary["epsilon_reason"]
    assert ["reason" in record for record in operator] == [False, True, False]
    assert [record["rounds_without_quorum"] for record in operator] == [0, 1, 1]
    assert len({record["loss"] for record in rounds}) == 3  # the model moved by the noise


def test_what_a_round_without_quorum_adds_is_noise_of_the_plans_variance(tmp_path: Path) -> None:
    """Two-sided, at 1e-6: the model of 650 weights moves by noise of the plan's standard deviation alone."""
    experiment = private(experiment={"rounds": 1}, privacy={"noise_multiplier": 4.0})
    deployed, _ = federation(experiment, lost=lose(1, phase="consistency"))
    summary = run(experiment, tmp_path / "run", parties=deployed)
    parts = gather_for_server(experiment, deployed)
    moved = model(tmp_path / "run") - np.concatenate(
        [parts.network.tensors(parts.start)[name].ravel() for name in sorted(parts.network.tensors(parts.start))]
    )
    ratio = float(moved.std()) * 6 / summary["privacy"]["noise_stddev"]

    assert abs(ratio - 1) < 4.9 / np.sqrt(2 * len(moved))


def test_without_privacy_a_round_without_quorum_is_aborted_as_in_a_simulation(tmp_path: Path) -> None:
    experiment = few(clients=6, experiment={"rounds": 3}, aggregation=REAL, **ONE)
    deployed, _ = federation(experiment, lost=lose(2))
    summary = run(experiment, tmp_path / "run", parties=deployed)

    assert summary["aborted_rounds"] == 1
    assert [record.get("aborted") for record in read_rounds(tmp_path / "run")] == [None, True, None]


def test_when_nobody_answers_the_server_pauses_longer_each_time_and_epsilon_is_null_from_then_on(
    tmp_path: Path,
) -> None:
    pauses: list[float] = []
    experiment = private(experiment={"rounds": 6})
    deployed, _ = federation(experiment, lost=lose(2, 3, 4, phase="advertise"), sleep=pauses.append, longest=3.0)
    summary = run(experiment, tmp_path / "run", parties=deployed)
    rounds = read_rounds(tmp_path / "run")
    epsilons = [record["epsilon"] for record in rounds]

    assert [record["epsilon_spent"] is None for record in rounds] == [epsilon is None for epsilon in epsilons]
    assert summary["epsilon_spent"] is None
    assert pauses == [1.0, 2.0, 3.0]
    assert [epsilon is None for epsilon in epsilons] == [False, True, True, True, True, True]
    assert summary["epsilon"] is None
    assert summary["privacy"]["epsilon"] is None
    assert summary["epsilon_best_round"] is None
    assert "a round had too few answers" in summary["epsilon_reason"]
    assert summary["epsilon_server"] is not None


def test_too_many_rounds_without_quorum_end_the_run_and_it_can_be_resumed(tmp_path: Path) -> None:
    experiment = private(experiment={"rounds": 5})
    deployed, _ = federation(experiment, lost=lose(2, 3), max_aborts=2)
    with pytest.raises(RunError, match=r"round 3: 2 rounds had too few answers .* go on with --resume"):
        run(experiment, tmp_path / "run", parties=deployed)
    deployed, engines = federation(experiment, max_aborts=2)
    summary = run(experiment, tmp_path / "run", resume=True, parties=deployed)

    assert engines[0].requests[0][0] == 4
    assert [record["round"] for record in read_rounds(tmp_path / "run")] == [1, 2, 3, 4, 5]
    assert not any("void" in record for record in read_rounds(tmp_path / "run"))
    assert summary["epsilon"] is None
    assert "a round had too few answers" in summary["epsilon_reason"]


def test_an_observer_that_stops_leaves_no_round_open(tmp_path: Path) -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["round"] == 2:
            raise KeyboardInterrupt

    experiment = private()
    deployed, _ = federation(experiment)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "run", observe=stop, parties=deployed)
    deployed, engines = federation(experiment)
    summary = run(experiment, tmp_path / "run", resume=True, parties=deployed)

    assert engines[0].requests[0][0] == 3
    assert summary["void_rounds"] == 0
    assert summary["epsilon"] is not None


def interrupt(round_: int, phase: str) -> Any:
    """Return a way to lose answers that stops the server while a round is open."""

    def lost(request: Request, client: int) -> bool:
        if (request.round, request.phase) == (round_, phase):
            raise KeyboardInterrupt
        return False

    return lost


@pytest.mark.parametrize(
    ("round_", "phase", "charged"),
    [(1, "advertise", False), (1, "unmask", True), (2, "mask", False), (2, "unmask", True)],
)
def test_a_round_that_was_open_is_void_and_its_number_is_never_used_again(
    phase: str, charged: bool, round_: int, tmp_path: Path
) -> None:
    experiment, path = private(), tmp_path / "run"
    deployed, _ = federation(experiment, lost=interrupt(round_, phase))
    with pytest.raises(KeyboardInterrupt):
        run(experiment, path, parties=deployed)
    before = ledger(path)
    seen: list[int] = []
    deployed, engines = federation(experiment)
    summary = run(experiment, path, resume=True, parties=deployed, observe=lambda record: seen.append(record["round"]))
    rounds, operator = read_rounds(path), read_operator(path)

    assert ledger(path)[: len(before)] == before
    assert ledger(path).count(("charge", round_)) == charged
    assert min(played for played, _, _ in engines[0].requests) == round_ + 1
    assert [record["round"] for record in rounds] == [record["round"] for record in operator] == [1, 2, 3]
    assert [record.get("void", False) for record in rounds] == [number == round_ for number in (1, 2, 3)]
    assert [record["epsilon"] is None for record in rounds] == [number >= round_ for number in (1, 2, 3)]
    assert seen == [1, 2, 3]
    assert summary["void_rounds"] == 1
    assert summary["rounds"] == 3
    assert summary["epsilon"] is None
    assert "void" in summary["epsilon_reason"]


def test_a_void_round_keeps_the_draws_that_it_made(tmp_path: Path) -> None:
    experiment, path = private(), tmp_path / "run"
    deployed, _ = federation(experiment, lost=interrupt(2, "advertise"))
    with pytest.raises(KeyboardInterrupt):
        run(experiment, path, parties=deployed)
    run(experiment, path, resume=True, parties=federation(experiment)[0])
    with np.load(path / "checkpoint" / "state.npz") as state:
        assert state["draws"].tolist() == [3] * 6


def test_a_checkpoint_that_forgets_draws_is_refused(tmp_path: Path) -> None:
    experiment, path = private(), tmp_path / "run"
    deployed, _ = federation(experiment, lost=interrupt(2, "mask"))
    with pytest.raises(KeyboardInterrupt):
        run(experiment, path, parties=deployed)
    (path / "checkpoint" / "opened.npz").unlink()
    with pytest.raises(PrivacyError, match=r"counts other draws than ledger.jsonl has recorded"):
        run(experiment, path, resume=True, parties=federation(experiment)[0])


def test_a_simulation_does_not_go_on_between_machines_nor_the_other_way_round(tmp_path: Path) -> None:
    experiment = few(clients=6, experiment={"rounds": 2}, **ONE)

    def stop(record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "alone", observe=stop)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "together", observe=stop, parties=federation(experiment)[0])
    with pytest.raises(InputError, match="of a simulation, which cannot go on between machines"):
        run(experiment, tmp_path / "alone", resume=True, parties=federation(experiment)[0])
    with pytest.raises(InputError, match="of a run between machines, which cannot go on as a simulation"):
        run(experiment, tmp_path / "together", resume=True)


def test_a_run_goes_on_with_the_roster_that_it_began_with(tmp_path: Path) -> None:
    experiment = few(clients=6, experiment={"rounds": 2}, **ONE)

    def stop(record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "run", observe=stop, parties=federation(experiment)[0])
    deployed, _ = federation(experiment)
    renumbered = replace(deployed, keys={**deployed.keys, 0: deployed.keys[5], 5: deployed.keys[0]})
    with pytest.raises(InputError, match="was begun with another roster"):
        run(experiment, tmp_path / "run", resume=True, parties=renumbered)
    assert run(experiment, tmp_path / "run", resume=True, parties=replace(renumbered, lasting=False))["rounds"] == 2


def test_the_id_of_a_run_is_drawn_once_and_kept(tmp_path: Path) -> None:
    experiment = private(experiment={"rounds": 2})
    deployed, _ = federation(experiment, lost=interrupt(1, "mask"))
    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "run", parties=deployed)
    drawn = json.loads((tmp_path / "run" / "environment.json").read_text())["run"]
    run(experiment, tmp_path / "run", resume=True, parties=federation(experiment)[0])

    assert json.loads((tmp_path / "run" / "environment.json").read_text())["run"] == drawn
    assert len(bytes.fromhex(drawn)) == 16


def test_reports_cope_with_a_private_run_that_has_no_epsilon_against_outsiders(tmp_path: Path) -> None:
    experiment, path = private(), tmp_path / "run"
    deployed, _ = federation(experiment, lost=lose(1, phase="advertise"))
    summary = run(experiment, path, parties=deployed)
    (told,) = facts([read_run(path)])
    said = [note for note, _ in notes([told])]

    assert summary["epsilon"] is None
    assert told["ledger"]["intact"]
    assert any("no epsilon against outsiders: a round had too few answers" in note for note in said)
    assert "against the server" in repr(Result(path))
    assert "too few answers" in repr(Result(path))
    told_first = next(line for line in _first_column(card(told)) if line.startswith("epsilon against"))
    assert told_first.endswith("the server")
    write_html([read_run(path)], tmp_path / "page.html")


def _first_column(table: Any) -> list[str]:
    return [str(cell) for cell in table.columns[0].cells]


def test_keys_of_a_session_work_between_machines_and_after_a_restart(tmp_path: Path) -> None:
    experiment = private(aggregation={"key_life": "session"})
    deployed, _ = federation(experiment, lost=interrupt(2, "mask"))
    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "run", parties=deployed)
    deployed, engines = federation(experiment)
    run(experiment, tmp_path / "run", resume=True, parties=deployed)
    phases = [(round_, phase) for round_, phase, _ in engines[0].requests]

    assert phases[:3] == [(3, "enrol"), (3, "introduce"), (3, "mask")]
    assert not any("reason" in record for record in read_operator(tmp_path / "run") if "void" not in record)
