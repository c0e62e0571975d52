"""C1: a node's ledger that was cut or deleted was accepted, although marks beside it proved more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sottovoce.checks.twin import few
from sottovoce.core.errors import PrivacyError
from sottovoce.deployment.node.state import Book
from sottovoce.federation.stages.evaluation import EVALUATION
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.ledger import verify
from tests.deployment.test_node import plan_of

RUN, OTHER = b"r" * 16, b"o" * 16
ROUNDS = 35
MANY = few(
    clients=4,
    aggregation={"secure": "real"},
    experiment={"rounds": 40},
    privacy={"noise_multiplier": 8.0, "delta": 1e-5, "clip_norm": 0.5},
)


@pytest.fixture(scope="module")
def plan() -> PrivacyPlan:
    return plan_of(MANY)


def give(book: Book, rounds: range, run: bytes = RUN) -> None:
    """Do what a node does in each round: say what comes, mask, charge."""
    mark, _ = book.enter(run)
    for round_ in rounds:
        book.intend(round_)
        mark.before_mask(round_)
        book.charge(round_)


@pytest.fixture
def account(tmp_path: Path, plan: PrivacyPlan) -> Path:
    """Return the folder of a node that has taken part in 35 rounds."""
    with Book(tmp_path / "state", plan) as book:
        give(book, range(1, ROUNDS + 1))
    return tmp_path / "state"


def cut(folder: Path) -> None:
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_bytes(b"".join(lines[:18]))


def cut_with_its_head(folder: Path) -> None:
    """Restore ledger and head from a copy of round 17; the marks are newer."""
    cut(folder)
    last = json.loads((folder / "ledger.jsonl").read_bytes().splitlines()[-1])
    (folder / "ledger.head").write_text(json.dumps({"lines": 18, "hash": last["hash"], "next": None}))


def empty(folder: Path) -> None:
    (folder / "ledger.jsonl").write_bytes(b"")


def delete(folder: Path) -> None:
    (folder / "ledger.jsonl").unlink()


def delete_with_its_head(folder: Path) -> None:
    delete(folder)
    (folder / "ledger.head").unlink()


def keep_the_run_alone(folder: Path) -> None:
    delete_with_its_head(folder)
    for mark in folder.glob("mark-*"):
        mark.unlink()


def cut_without_a_head(folder: Path) -> None:
    cut(folder)
    (folder / "ledger.head").unlink()


def spoil_the_head(folder: Path) -> None:
    (folder / "ledger.head").write_text("{}")


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        cut_with_its_head,
        empty,
        delete,
        delete_with_its_head,
        keep_the_run_alone,
        cut_without_a_head,
        spoil_the_head,
    ],
)
def test_an_account_that_knows_less_than_what_lies_beside_it_is_refused_and_not_changed(
    damage: Callable[[Path], None], account: Path, plan: PrivacyPlan
) -> None:
    damage(account)
    before = {path.name: path.read_bytes() for path in account.iterdir()}

    with pytest.raises(PrivacyError, match="restore the newest copy of the folder") as refused:
        Book(account, plan)

    assert refused.value.exit_code == 3
    assert {path.name: path.read_bytes() for path in account.iterdir()} == before


def test_one_charge_stands_for_one_mark(account: Path, plan: PrivacyPlan) -> None:
    """Two runs have masked round 35, and an older copy of ledger and head has charged it once."""
    before = {name: (account / name).read_bytes() for name in ("ledger.jsonl", "ledger.head")}
    with Book(account, plan) as book:
        give(book, range(ROUNDS, ROUNDS + 1), OTHER)
    for name, data in before.items():
        (account / name).write_bytes(data)

    with pytest.raises(PrivacyError, match=f"round {ROUNDS} was masked"):
        Book(account, plan)


def test_an_account_that_is_whole_is_opened_as_often_as_one_likes(account: Path, plan: PrivacyPlan) -> None:
    for _ in range(3):
        with Book(account, plan) as book:
            assert book.spent == ROUNDS
    moved = Path(shutil.copytree(account, account.with_name("moved")))
    with Book(moved, plan) as book:
        give(book, range(ROUNDS + 1, ROUNDS + 2))
        assert book.spent == ROUNDS + 1


def test_a_round_whose_mark_outlived_a_kill_is_charged_and_nothing_is_refused(account: Path, plan: PrivacyPlan) -> None:
    with Book(account, plan) as book:
        mark, _ = book.enter(RUN)
        book.intend(ROUNDS + 1)
        mark.before_mask(ROUNDS + 1)  # killed here

    with Book(account, plan) as book:
        assert book.spent == ROUNDS + 1
    with Book(account, plan) as book:
        assert book.spent == ROUNDS + 1


def test_a_kill_before_the_mark_or_after_the_charge_changes_nothing(account: Path, plan: PrivacyPlan) -> None:
    with Book(account, plan) as book:
        book.intend(ROUNDS + 1)  # killed here

    with Book(account, plan) as book:
        assert book.spent == ROUNDS
        mark, _ = book.enter(RUN)
        book.intend(ROUNDS + 1)
        mark.before_mask(ROUNDS + 1)
        assert book._ledger is not None
        book._ledger.charge(ROUNDS + 1)  # killed here, before the head is written
    with Book(account, plan) as book:
        assert book.spent == ROUNDS + 1


def test_a_torn_line_counts_as_the_charge_that_it_was(account: Path, plan: PrivacyPlan) -> None:
    content = (account / "ledger.jsonl").read_bytes()
    (account / "ledger.jsonl").write_bytes(content[:-20])

    for _ in range(2):
        with Book(account, plan) as book:
            assert book.spent == ROUNDS


def test_measurements_have_marks_of_their_own(account: Path, plan: PrivacyPlan) -> None:
    with Book(account, plan) as book:
        _, beside = book.enter(RUN)
        book.intend(EVALUATION + 5)
        beside.before_mask(EVALUATION + 5)

    with pytest.raises(PrivacyError, match="round -5 was masked"):
        (account / "ledger.head").write_text((account / "ledger.head").read_text().replace("-5", "null"))
        Book(account, plan)
    assert verify(account / "ledger.jsonl").problem is None


def test_a_cut_that_no_mark_shows_is_shown_by_the_head(account: Path, plan: PrivacyPlan) -> None:
    """Another run is at round 3, which the first run has charged too."""
    before = (account / "ledger.jsonl").read_bytes()
    with Book(account, plan) as book:
        give(book, range(1, 4), OTHER)
    (account / "ledger.jsonl").write_bytes(before)

    with pytest.raises(PrivacyError, match="does not have the line 39 that it had"):
        Book(account, plan)
