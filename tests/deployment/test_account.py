"""One account a data set: whatever is played on the same records adds up on the node, and is not forgotten."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sottovoce.cli import main
from sottovoce.core.errors import PolicyError, PrivacyError
from sottovoce.deployment.node.account import DataAccount, bind, check_accounts, read_account
from sottovoce.deployment.node.state import Book
from sottovoce.deployment.policy import DataRule
from sottovoce.privacy import PrivacyPlan
from tests.deployment.test_node import PRIVATE, plan_of, table

A, B, C = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture(scope="module")
def plan() -> PrivacyPlan:
    return plan_of(PRIVATE)


def account(folder: Path, year: int = 2026, **limits: float) -> DataAccount:
    rule = DataRule(**limits) if limits else None  # type: ignore[arg-type]
    return DataAccount(folder / "accounts", "patients", rule, lambda: datetime(year, 5, 1, tzinfo=UTC))


def test_experiments_on_one_data_set_compose_and_the_one_too_many_is_refused(tmp_path: Path, plan: PrivacyPlan) -> None:
    limits = {"epsilon_server": 1.6 * plan.epsilon_server, "delta": 1e-3}
    kept = account(tmp_path, **limits)
    kept.charge(A, "training", plan, "client")
    kept.charge(A, "training", plan, "client")  # once
    kept.charge(B, "statistics", plan, "client")
    before = kept.path.read_bytes()

    with pytest.raises(PolicyError, match="epsilon_server"):
        kept.check(C, plan, "client")
    with pytest.raises(PolicyError, match="patients"):
        kept.charge(C, "tuning", plan, "client")
    assert kept.path.read_bytes() == before
    told = read_account(kept.path).told()
    assert [each["name"] for each in told["experiments"]] == ["training", "statistics"]
    assert told["together"]["epsilon_server"] == pytest.approx(2 * plan.epsilon_server)
    assert told["if_all_were_fixed_beforehand"]["epsilon_server"] < 2 * plan.epsilon_server


def test_two_data_sets_have_two_accounts(tmp_path: Path, plan: PrivacyPlan) -> None:
    limits = {"epsilon_server": 1.1 * plan.epsilon_server, "delta": 1e-3}
    account(tmp_path, **limits).charge(A, "one", plan, "client")
    other = DataAccount(tmp_path / "accounts", "staff", DataRule(**limits))  # type: ignore[arg-type]
    other.charge(B, "two", plan, "client")

    assert {path.name for path in (tmp_path / "accounts").glob("*.jsonl")} == {"patients.jsonl", "staff.jsonl"}


def test_a_new_year_has_a_new_limit_and_the_sum_of_all_years_stays(tmp_path: Path, plan: PrivacyPlan) -> None:
    one = plan.epsilon_server
    limits = {"epsilon_server_a_year": 1.1 * one, "epsilon_server": 1.6 * one, "delta": 1e-3}
    account(tmp_path, 2026, **limits).charge(A, "first", plan, "client")
    with pytest.raises(PolicyError, match="in 2026"):
        account(tmp_path, 2026, **limits).charge(B, "second", plan, "client")
    account(tmp_path, 2027, **limits).charge(B, "second", plan, "client")
    with pytest.raises(PolicyError, match="in 2027"):
        account(tmp_path, 2027, **limits).charge(A, "first", plan, "client")  # it goes on this year
    with pytest.raises(PolicyError, match="in all"):
        account(tmp_path, 2028, **limits).charge(C, "third", plan, "client")


def test_an_experiment_that_goes_on_next_year_counts_in_both_years_and_once_in_all(
    tmp_path: Path, plan: PrivacyPlan
) -> None:
    for year in (2026, 2027):
        account(tmp_path, year).charge(A, "long", plan, "client")
    told = read_account(account(tmp_path).path).told()

    assert [each["year"] for each in told["experiments"]] == [2026, 2027]
    assert told["together"]["epsilon_server"] == pytest.approx(plan.epsilon_server)


def test_a_limit_for_persons_is_not_kept_by_an_account_of_records(tmp_path: Path, plan: PrivacyPlan) -> None:
    account(tmp_path).charge(A, "records", plan, "record")
    with pytest.raises(PolicyError, match="unit"):
        DataAccount(tmp_path / "accounts", "patients", DataRule(unit="person")).check(B, plan, "client")


def test_a_node_charges_its_account_before_its_first_message_leaves(tmp_path: Path, plan: PrivacyPlan) -> None:
    kept = account(tmp_path)
    seen: list[int] = []

    def reserve() -> None:
        kept.charge(A, "run", plan, "client")
        seen.append(len(read_account(kept.path).charges))

    with Book(tmp_path / "exp", plan, reserve=reserve) as book:
        table(PRIVATE, {1: book}).play(range(1, 3))

    assert seen == [1, 1]  # every round asks, the first one pays


def used(folder: Path, name: str, experiment: str, plan: PrivacyPlan) -> Path:
    state = folder / name
    with Book(state, plan) as book:
        book.charge(1)
    bind(state, "patients", experiment)
    return state


def test_an_account_that_was_deleted_or_cut_is_found_by_ledgers_beside_it(tmp_path: Path, plan: PrivacyPlan) -> None:
    kept = account(tmp_path)
    for name, experiment in (("one", A), ("two", B)):
        kept.charge(experiment, name, plan, "client")
        used(tmp_path, name, experiment, plan)
    check_accounts(tmp_path / "three", limited=True)
    lines = kept.path.read_bytes().splitlines(keepends=True)
    kept.path.write_bytes(b"".join(lines[:2]))
    with pytest.raises(PrivacyError, match="cut or replaced"):
        check_accounts(tmp_path / "three", limited=True)
    for path in kept.path.parent.iterdir():
        path.unlink()
    with pytest.raises(PrivacyError, match="does not count"):
        check_accounts(tmp_path / "three", limited=False)


def test_a_ledger_of_no_account_is_refused_where_a_policy_has_limits(tmp_path: Path, plan: PrivacyPlan) -> None:
    with Book(tmp_path / "old", plan) as book:
        book.charge(1)
    check_accounts(tmp_path / "new", limited=False)
    check_accounts(tmp_path / "old", limited=True)  # it is charged when it plays again
    with pytest.raises(PrivacyError, match="no account counts"):
        check_accounts(tmp_path / "new", limited=True)


def test_an_experiment_does_not_move_to_another_account(tmp_path: Path, plan: PrivacyPlan) -> None:
    state = used(tmp_path, "one", A, plan)
    bind(state, "patients", A)
    with pytest.raises(PolicyError, match="'patients'"):
        bind(state, "fresh", A)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_every_flipped_bit_of_an_account_is_found(tmp_path: Path, plan: PrivacyPlan, place: int, bit: int) -> None:
    kept = account(tmp_path)
    kept.charge(A, "one", plan, "client")
    honest = kept.path.read_bytes()
    content = bytearray(honest)
    content[place % len(content)] ^= 1 << bit
    kept.path.write_bytes(content)
    problem = read_account(kept.path).problem
    kept.path.write_bytes(honest)

    assert problem is not None and read_account(kept.path).problem is None


def test_ledger_show_verify_and_export_read_the_account_of_a_node(
    tmp_path: Path, plan: PrivacyPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "node" / "state"
    state.mkdir(parents=True)
    account(state).charge(A, "training", plan, "client")
    used(state, "one", A, plan)

    node = str(tmp_path / "node")

    assert main(["ledger", "show", node, "--json"]) == 0
    assert [each.get("data") for each in json.loads(capsys.readouterr().out)] == [None, "patients"]
    assert main(["ledger", "show", node]) == 0 and "training" in capsys.readouterr().out
    assert main(["ledger", "verify", node]) == 0
    capsys.readouterr()
    assert main(["ledger", "export", str(state / "accounts")]) == 0
    assert json.loads(capsys.readouterr().out)["ledgers"][0]["data"] == "patients"
    path = account(state).path
    path.write_bytes(path.read_bytes().replace(b"training", b"trainins"))
    assert main(["ledger", "verify", node]) == 3
