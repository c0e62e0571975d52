from __future__ import annotations

import json
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.core.errors import InputError, RunError
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.ledger import Ledger
from sottovoce.runs.folder import read_operator, read_rounds
from sottovoce.runs.loop import run
from sottovoce.studies.audit import audit_run
from sottovoce.studies.audit.records import check_folder, read_experiment
from tests.studies.audit.small import federation, quickly


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    run(federation(engine={"workers": 1}), folder)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture(scope="module")
def plan() -> PrivacyPlan:
    solved = protect(gather(federation())).plan
    assert solved is not None
    return solved


def accused(folder: Path, plan: PrivacyPlan) -> list[str]:
    return [finding.name for finding in check_folder(folder, plan) if finding.p_value == 0]


def edit_rounds(folder: Path, **keys: object) -> None:
    records = [{**record, **keys} for record in read_rounds(folder)]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_run_as_it_was_written_passes(folder: Path, plan: PrivacyPlan) -> None:
    assert accused(folder, plan) == []
    assert len(check_folder(folder, plan)) == 8


def test_a_run_between_machines_is_compared_with_the_plan_that_machines_solve(folder: Path, plan: PrivacyPlan) -> None:
    keys = {field.name: getattr(plan.request, field.name) for field in fields(plan.request)}
    theirs = PrivacyPlan.solve(**keys | {"deployment": True})
    shutil.rmtree(folder / "checkpoint")
    (folder / "ledger.jsonl").unlink()
    with Ledger.of_server(folder / "ledger.jsonl", theirs) as ledger:
        for record in read_rounds(folder):
            ledger.charge(record["round"])

    assert accused(folder, plan) == []


def test_the_audit_of_a_run_holds_the_checks_of_its_folder(folder: Path) -> None:
    found = audit_run(folder, quickly())

    assert not found.accused, found.reasons
    assert {"ledger chain", "ledger plan", "rounds charged"} <= {test.name for test in found.tests}


def test_a_round_that_was_never_charged_is_found(folder: Path, plan: PrivacyPlan) -> None:
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_bytes(b"".join(lines[:-2]))  # draws and charge of the last round

    assert accused(folder, plan) == ["rounds charged", "draws bound"]


def test_a_broken_chain_is_found(folder: Path, plan: PrivacyPlan) -> None:
    text = (folder / "ledger.jsonl").read_text()
    (folder / "ledger.jsonl").write_text(text.replace('"round": 2', '"round": 9', 1))

    assert "ledger chain" in accused(folder, plan)


def test_a_ledger_of_another_plan_is_found(folder: Path) -> None:
    solved = protect(gather(federation(privacy={"noise_multiplier": 1.1}))).plan
    assert solved is not None

    assert "ledger plan" in accused(folder, solved)


def test_a_run_without_a_ledger_is_accused_of_everything_it_released(folder: Path, plan: PrivacyPlan) -> None:
    (folder / "ledger.jsonl").unlink()

    assert accused(folder, plan) == ["ledger chain", "ledger plan", "rounds charged", "draws bound"]


def test_cohort_sizes_in_public_records_are_found(folder: Path, plan: PrivacyPlan) -> None:
    edit_rounds(folder, cohort=6)

    assert accused(folder, plan) == ["secrets of cohorts"]


def test_a_cohort_size_is_found_under_any_name_and_in_any_measure(tmp_path: Path) -> None:
    folder, longer = tmp_path / "run", federation(engine={"workers": 1}, experiment={"rounds": 10})
    run(longer, folder)
    solved = protect(gather(longer)).plan
    assert solved is not None
    assert accused(folder, solved) == []

    sizes = [record["cohort"] for record in read_operator(folder)]
    records = [{**record, "loss": 3.5 - size / 7} for record, size in zip(read_rounds(folder), sizes, strict=True)]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert accused(folder, solved) == ["secrets of cohorts"]


def test_a_secret_deep_in_the_summary_is_found(folder: Path, plan: PrivacyPlan) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    summary["privacy"]["rounds"] = [{"senders": 4}]
    (folder / "summary.json").write_text(json.dumps(summary))

    assert accused(folder, plan) == ["secrets of cohorts"]


def test_a_run_with_measurements_passes_and_one_that_did_not_charge_them_does_not(tmp_path: Path) -> None:
    measured = federation(
        engine={"workers": 1},
        experiment={"evaluation": "federated"},
        client={"held_out": 0.2},
        privacy={"evaluation_noise_multiplier": 3.0},
    )
    run(measured, tmp_path / "run")
    solved = protect(gather(measured)).plan
    assert solved is not None
    assert accused(tmp_path / "run", solved) == []

    lines = (tmp_path / "run" / "ledger.jsonl").read_text().splitlines(keepends=True)
    assert json.loads(lines[-1])["round"] < 0, "the last charge is that of the last measurement"
    (tmp_path / "run" / "ledger.jsonl").write_text("".join(lines[:-1]))
    assert accused(tmp_path / "run", solved) == ["rounds charged"]


def test_an_epsilon_that_promises_too_much_is_found(folder: Path, plan: PrivacyPlan) -> None:
    edit_rounds(folder, epsilon=0.5)
    assert accused(folder, plan) == ["epsilons told"]

    edit_rounds(folder, epsilon=plan.epsilon)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "epsilon_server": 1.0}))
    assert accused(folder, plan) == ["epsilons told"]


def test_no_number_of_an_audit_tells_who_was_drawn(folder: Path, plan: PrivacyPlan) -> None:
    assert all(finding.statistic is None for finding in check_folder(folder, plan))


def test_what_is_no_run_or_not_whole_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run"):
        read_experiment(tmp_path)
    environment = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps({**environment, "given": ["dataset"]}))
    with pytest.raises(InputError, match="given as Python objects"):
        read_experiment(folder)
    (folder / "environment.json").write_text("{")
    with pytest.raises(RunError, match="damaged"):
        read_experiment(folder)


def test_a_damaged_checkpoint_is_no_traceback(folder: Path, plan: PrivacyPlan) -> None:
    (folder / "checkpoint" / "state.npz").write_bytes(b"nothing")

    with pytest.raises(RunError, match="damaged"):
        check_folder(folder, plan)
