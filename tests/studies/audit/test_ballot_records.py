from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.federation.aggregation.ballots.account import HELPER_LEDGER, HelperAccount
from sottovoce.privacy import PrivacyPlan
from sottovoce.runs.loop import run
from sottovoce.studies.audit import audit_run
from sottovoce.studies.audit.records import check_folder
from tests.studies.audit.small import federation, quickly

COUNTED = {"secure": "ideal-ballot"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    run(federation(engine={"workers": 1}, aggregation=COUNTED), folder)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def solved(**privacy: Any) -> PrivacyPlan:
    plan = protect(gather(federation(aggregation=COUNTED, privacy=privacy))).plan
    assert plan is not None
    return plan


def accused(folder: Path, plan: PrivacyPlan) -> list[str]:
    return [finding.name for finding in check_folder(folder, plan) if finding.p_value == 0]


def rewritten(folder: Path, lines: list[dict[str, Any]]) -> None:
    """Write another account of the same plan, whose chain holds: the helper was never so careful."""
    (folder / HELPER_LEDGER).unlink()
    with HelperAccount.open(folder, solved()) as account:
        ledger = account._ledger
        for line in lines:
            if line["kind"] == "charge":
                ledger.charge(line["round"])
            if line["kind"] == "ballots":
                ledger.note("ballots", line["round"], {key: line[key] for key in ("clients", "session", "counter")})


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / HELPER_LEDGER).read_text().splitlines()]


def test_a_run_of_ballots_passes_and_its_audit_names_the_checks(folder: Path) -> None:
    found = audit_run(folder, quickly(games=2, seeds=1))

    assert not found.accused, found.reasons
    assert {
        *("helper's chain", "helper's plan", "rounds charged by the helper", "helper's charges within the budget"),
        *("helper reserved before it charged", "participations by the helper", "helper's transfers"),
    } <= {test.name for test in found.tests}
    assert all(finding.statistic is None for finding in check_folder(folder, solved())), "an audit may be published"


def test_a_helper_without_an_account_is_accused(folder: Path) -> None:
    (folder / HELPER_LEDGER).unlink()

    assert accused(folder, solved()) == ["helper's chain", "helper's plan", "rounds charged by the helper"]


def test_a_round_that_the_helper_never_charged_is_found(folder: Path) -> None:
    lines = (folder / HELPER_LEDGER).read_bytes().splitlines(keepends=True)
    assert b'"charge"' in lines[-1]
    (folder / HELPER_LEDGER).write_bytes(b"".join(lines[:-1]))

    assert accused(folder, solved()) == ["rounds charged by the helper"]


def test_a_broken_chain_of_the_helper_is_found(folder: Path) -> None:
    text = (folder / HELPER_LEDGER).read_text()
    (folder / HELPER_LEDGER).write_text(text.replace('"round": 2', '"round": 9', 1))

    assert "helper's chain" in accused(folder, solved())


def test_an_account_of_another_plan_is_found(folder: Path) -> None:
    assert {"ledger plan", "helper's plan"} <= set(accused(folder, solved(noise_multiplier=1.1)))


def test_a_client_that_was_counted_too_often_is_found(folder: Path) -> None:
    strict = solved(max_participations=1)
    lines = [{**line, "clients": [3]} if line["kind"] == "ballots" else line for line in lines_of(folder)]
    rewritten(folder, lines)

    assert "participations by the helper" not in accused(folder, solved())
    assert "participations by the helper" in accused(folder, strict)


def test_transfers_that_went_back_are_found(folder: Path) -> None:
    lines = [
        {**line, "counter": 1000 - line["round"]} if line["kind"] == "ballots" else line for line in lines_of(folder)
    ]
    rewritten(folder, lines)

    assert accused(folder, solved()) == ["helper's transfers"]


def test_a_charge_before_anybody_was_written_down_is_found(folder: Path) -> None:
    lines = lines_of(folder)
    rewritten(folder, sorted(lines, key=lambda line: line["kind"] != "charge"))

    assert accused(folder, solved()) == ["helper reserved before it charged"]


def test_a_helper_elsewhere_keeps_its_own_account(folder: Path) -> None:
    """Then the run's folder has none, and its ledger says that it is a deployment's."""
    (folder / HELPER_LEDGER).unlink()
    text = (folder / "ledger.jsonl").read_text()
    (folder / "ledger.jsonl").write_text(text.replace('"deployment": false', '"deployment": true', 1))

    assert not [name for name in accused(folder, solved()) if "helper" in name]
