"""A run that learned nothing ends as a failure, and its operator hears of the first round without a sum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sottovoce.runs.outcome import learned, shortfall, warn_once

GOOD = {"round": 1, "cohort": 3, "senders": 3}
SHORT = {"round": 2, "cohort": 3, "senders": 1, "reason": "1 masked vector, but the threshold is 2", "aborted": True}


def write(folder: Path, rounds: list[dict[str, Any]], operator: list[dict[str, Any]] | None = None) -> Path:
    folder.joinpath("rounds.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rounds))
    if operator is not None:
        folder.joinpath("operator.jsonl").write_text("".join(json.dumps(each) + "\n" for each in operator))
    return folder


@pytest.mark.parametrize("key", ["reason", "aborted", "void", "rejected"])
def test_a_round_without_an_opened_sum_is_not_a_round_that_learned(key: str) -> None:
    assert learned(GOOD)
    assert not learned({**GOOD, key: True})
    assert not learned({**GOOD, "senders": 0})


def test_the_share_of_rounds_is_counted_as_the_operator_sees_it(tmp_path: Path) -> None:
    """A covered round looks in `rounds.jsonl` like any other."""
    public = [{"round": each, "bytes_up": 5, "epsilon": 1.0} for each in (1, 2)]
    write(tmp_path, public, [GOOD, {**SHORT, "aborted": None}])

    assert shortfall(tmp_path, 0) is None
    assert shortfall(tmp_path, 0.5) is None
    told = shortfall(tmp_path, 0.6)
    assert told is not None and "only 1 of 2 rounds" in told and "operator.jsonl" in told


def test_no_round_at_all_falls_short_of_any_share(tmp_path: Path) -> None:
    told = shortfall(write(tmp_path, [SHORT]), 0)
    assert told is not None and "nothing was learned: none of 1 rounds" in told and "rounds.jsonl" in told


def test_the_first_round_without_a_sum_is_announced_and_no_other() -> None:
    said: list[str] = []
    warn = warn_once(said.append)
    for record in (GOOD, {"round": 2, "cohort": 0, "senders": 0}, {**SHORT, "private": True}, SHORT):
        warn(record)

    assert said == ["warning: round 2 taught the model nothing: operator.jsonl says why; this is said once"]
