from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from sottovoce.privacy.noise import path

from .conftest import SMALL, Shell

PRIVATE = SMALL + '\n[privacy]\nnoise_multiplier = 1.0\ndelta = 1e-2\nclip_norm = 0.5\naccountant = "rdp"\n'
FAST = ("--quick", "--games", "6", "--seeds", "1")


@pytest.fixture
def private(here: Path) -> str:
    (here / "private.toml").write_text(PRIVATE)
    return "private.toml"


def test_audit_prints_the_proven_beside_the_shown(shell: Shell, private: str) -> None:
    outcome = shell("audit", private, *FAST)

    assert outcome.code == 0, outcome.err
    assert "not accused" in outcome.out
    assert "outsiders (epsilon)" in outcome.out and "the server (epsilon_server)" in outcome.out
    assert "A lower bound is no proof" in outcome.err


def test_audit_of_ballots_names_both_aggregators(shell: Shell, private: str) -> None:
    outcome = shell("audit", private, *FAST, "--set", "aggregation.secure=ballot", "--out", "found.json")

    assert outcome.code == 0, outcome.err
    assert "the leader (epsilon_server)" in outcome.out and "the helper (epsilon_server)" in outcome.out
    assert "the server (epsilon_server)" not in outcome.out


def test_audit_as_json_has_the_contract_and_out_writes_the_same(shell: Shell, private: str, here: Path) -> None:
    document = shell("audit", private, *FAST, "--json", "--quiet", "--out", "found.json").json()

    assert document == json.loads((here / "found.json").read_text())
    assert document["accused"] is False
    assert 0 <= document["epsilon_lower"] <= document["epsilon"]
    assert 0 <= document["epsilon_server_lower"] <= document["epsilon_server"]
    assert (document["confidence"], document["games"], document["canaries"]) == (0.95, 6, 20)
    assert {"name", "statistic", "p_value", "threshold", "rejected"} == set(document["tests"][0])


def test_the_audit_of_a_run_is_written_into_its_folder(shell: Shell, private: str, here: Path) -> None:
    assert shell("run", private, "--out", "run", "--quiet").code == 0

    outcome = shell("audit", "run", *FAST, "--json")

    assert outcome.code == 0, outcome.err
    assert json.loads((here / "run" / "audit.json").read_text()) == outcome.json()
    assert "rounds charged" in [test["name"] for test in outcome.json()["tests"]]


def test_an_accusation_exits_with_3_and_says_why(shell: Shell, private: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fraction_tables", "centred_tables"):
        real = getattr(path, name)
        monkeypatch.setattr(path, name, lambda variance, *more, real=real: real(variance * Fraction(1, 4), *more))

    outcome = shell("audit", private, *FAST)

    assert outcome.code == 3
    assert "ACCUSED" in outcome.out
    assert "accused: the noise of one client has 0." in outcome.err


def test_a_run_whose_ledger_was_cut_is_accused(shell: Shell, private: str, here: Path) -> None:
    assert shell("run", private, "--out", "run", "--quiet").code == 0
    lines = (here / "run" / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (here / "run" / "ledger.jsonl").write_bytes(b"".join(lines[:-2]))

    outcome = shell("audit", "run", *FAST, "--json")

    assert outcome.code == 3
    assert outcome.json()["reasons"][0].startswith("1 rounds were released and never charged")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("small.toml",), "no epsilon to audit"),
        (("gone.toml",), "there is no experiment file"),
        ((".",), "holds no run"),
        (("private.toml", "--out", "nowhere/found.json"), "cannot be written"),
        (("private.toml", "--confidence", "1"), "confidence must be"),
        (("private.toml", "--games", "1"), "--games"),
    ],
)
def test_what_cannot_be_audited_exits_2_with_a_sentence(
    shell: Shell, private: str, arguments: tuple[str, ...], told: str
) -> None:
    outcome = shell("audit", *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert told in outcome.err


def test_a_run_that_is_not_private_exits_2(shell: Shell, finished: Path) -> None:
    outcome = shell("audit", str(finished))

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert not (finished / "audit.json").exists()


def test_a_run_folder_is_audited_as_it_was_run(shell: Shell, finished: Path) -> None:
    assert shell("audit", str(finished), "--set", "privacy.epsilon=8").code == 2
