"""`sottovoce plan` on the command line: limits, pages, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Shell


def _private(here: Path) -> None:
    with (here / "small.toml").open("a") as file:
        file.write("\n[privacy]\nepsilon = 8.0\ndelta = 0.01\nclip_norm = 1.0\n")


def test_a_plan_can_be_solved_for_and_its_changes_can_be_set(shell: Shell, here: Path) -> None:
    _private(here)
    told = shell("plan", "small.toml", "--solve", "epsilon<=8, up<=4kB, rounds<=6", "--json").json()

    assert told["feasible"] >= len(told["solutions"]) > 0
    changes = told["solutions"][0]["changes"]
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    alone = shell("plan", "small.toml", *words, "--set", "aggregation.secure=real", "--json").json()
    assert alone["limits"]["up"] == told["solutions"][0]["up"] <= 4000
    assert alone["limits"]["epsilon"] <= 8


def test_limits_that_cannot_be_kept_end_with_2_and_nothing_on_stdout(shell: Shell, here: Path) -> None:
    _private(here)
    outcome = shell("plan", "small.toml", "--solve", "epsilon<=8, up<=1B, rounds<=6")

    assert (outcome.code, outcome.out) == (2, "")
    assert "up<=1B stands in the way" in outcome.err


def test_a_limit_that_cannot_be_read_is_named(shell: Shell) -> None:
    outcome = shell("plan", "small.toml", "--solve", "accuracy>=0.9")

    assert (outcome.code, outcome.out) == (2, "")
    assert "never promised" in outcome.err


def test_a_budget_that_cannot_be_kept_ends_with_3(shell: Shell, here: Path) -> None:
    _private(here)
    outcome = shell("plan", "small.toml", "--set", "privacy.delta=0.2")

    assert (outcome.code, outcome.out) == (3, "")


def test_a_plan_is_written_as_a_page(shell: Shell, here: Path) -> None:
    outcome = shell("plan", "small.toml", "--html", "plan.html")

    assert outcome.code == 0 and "wrote plan.html" in outcome.err
    assert "Time and energy" in outcome.out
    assert (here / "plan.html").read_text().startswith("<!doctype html>")


def test_a_plan_on_paper_tells_what_the_server_carries(shell: Shell) -> None:
    outcome = shell("plan", "small.toml", "--scale", "1e9", "1e6")

    assert outcome.code == 0 and "neighbours a client" in outcome.out
    assert shell("plan", "small.toml", "--scale", "10", "1e6").code == 2
    assert shell("plan", "small.toml", "--scale", "1e9", "1e6", "--solve", "up<=1kB").code == 2


def test_plans_can_be_tried_and_are_ranked_by_it(shell: Shell, here: Path) -> None:
    limits = ["--solve", "up<=1kB, rounds<=6", "--try", "3"]
    told = shell("plan", "small.toml", *limits, "--json").json()
    table = shell("plan", "small.toml", *limits)

    scores = [each["tried"]["score"] for each in told["solutions"] if each["tried"] and each["tried"]["score"]]
    assert scores and scores == sorted(scores, reverse=True)
    assert told["tried"]["on"] == "synthetic records of the same shape"
    assert told["devices"] == ["phone-lte"]
    assert "tried: accuracy" in table.out and "always answering the same gives" in table.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--try", "5"], "add --solve LIMITS"),
        (["--solve", "up<=1kB", "--on", "digits"], "add --try 60"),
        (["--solve", "up<=1kB, rounds<=6", "--try", "0.5"], "from 1 to 3600 seconds"),
        (["--solve", "up<=1kB, rounds<=6", "--try", "5", "--on", "digits"], "is the data of the clients"),
    ],
)
def test_a_wrong_try_is_one_sentence(shell: Shell, words: list[str], sentence: str) -> None:
    outcome = shell("plan", "small.toml", *words)

    assert outcome.code in (2, 3) and sentence in outcome.err and outcome.out == ""
