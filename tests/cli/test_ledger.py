from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.statement.test_ledgers import site_ledger

from .conftest import Shell

PRIVATE = ["--set", "privacy.noise_multiplier=1.0", "--set", "privacy.delta=1e-3", "--set", "privacy.clip_norm=0.5"]


@pytest.fixture
def run(shell: Shell, here: Path) -> Path:
    assert shell("run", "small.toml", *PRIVATE, "--out", "run", "--quiet").code == 0
    return here / "run"


def test_show_verify_and_export_agree_on_a_run(shell: Shell, run: Path) -> None:
    (shown,) = shell("ledger", "show", "run", "--json").json()
    assert shown["charges"] == shown["limit"] == 6
    assert shown["plan"][:12] in shell("ledger", "show", "run").out
    assert shell("ledger", "verify", "run", "--json").json()["verdict"] == "true"
    outcome = shell("ledger", "export", "run", "--out", "account.json")
    assert (outcome.code, outcome.out) == (0, "")
    (exported,) = json.loads(Path("account.json").read_text())["ledgers"]
    assert [entry["hash"] for entry in exported["entries"]][-1] == shown["head"]


def test_a_damaged_ledger_is_shown_up_to_there_and_neither_verified_nor_exported(shell: Shell, run: Path) -> None:
    path = run / "ledger.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"round": 4', b'"round": 5', 1))

    shown = shell("ledger", "show", "run")
    assert shown.code == 0 and "warning: " in shown.err and "damaged" in shown.err
    outcome = shell("ledger", "verify", "run")
    assert outcome.code == 3 and "FALSE" in outcome.out
    exported = shell("ledger", "export", "run", "--out", "account.json")
    assert exported.code == 3 and not Path("account.json").exists()


def test_the_ledger_of_a_site_is_exported_only_on_request(shell: Shell, here: Path) -> None:
    site_ledger(here / "node")

    outcome = shell("ledger", "export", "node")
    assert outcome.code == 3 and "--whole" in outcome.err and not outcome.out
    (exported,) = shell("ledger", "export", "node", "--whole").json()["ledgers"]
    assert exported["keeper"] == "site" and len(exported["entries"]) == 4
    assert "epsilon does not hold" in shell("ledger", "show", "node").err


def test_a_run_without_privacy_has_no_ledger(shell: Shell, finished: Path) -> None:
    outcome = shell("ledger", "verify", str(finished))

    assert outcome.code == 2 and "nothing was charged" in outcome.err


def test_a_file_that_is_no_ledger_is_refused_and_not_shown_as_an_empty_one(shell: Shell, run: Path) -> None:
    outcome = shell("ledger", "show", "run/config.toml")

    assert outcome.code == 2 and "is no ledger" in outcome.err
