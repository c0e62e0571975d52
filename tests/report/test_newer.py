from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sottovoce.core.errors import InputError
from sottovoce.report import facts, page, read_run, read_runs, rows
from sottovoce.report.tables import warnings

from .conftest import Maker


def _made_by(path: Path, version: str) -> Path:
    (path / "environment.json").write_text(json.dumps({"packages": {"sottovoce": version}}))
    return path


def test_a_newer_folder_is_shown_and_said_to_be_newer(make_run: Maker) -> None:
    newer, older = _made_by(make_run("newer"), "99.0.1"), _made_by(make_run("older"), "0.0.1")

    records = facts([read_run(newer), read_run(older)])

    assert "made by sottovoce 99.0.1" in records[0]["newer"] and records[1]["newer"] is None
    assert len(warnings(records)) == 1
    assert page([read_run(newer)]).count("made by sottovoce 99.0.1") == 1


def test_a_newer_form_of_a_file_is_told_too(make_run: Maker) -> None:
    path = make_run()
    (path / "preprocessing.json").write_text('{"version": 2}')

    assert "preprocessing.json has version 2" in str(read_run(path).newer)


def test_a_newer_folder_that_cannot_be_read_says_both(make_run: Maker) -> None:
    newer = _made_by(make_run("newer"), "99.0")
    (newer / "rounds.jsonl").write_text('{"turn": 1}\n{"turn": 2}\n')

    _, (damaged,) = read_runs([newer, make_run("sound")])

    assert "is not the record of a round" in damaged["reason"] and "made by sottovoce 99.0" in damaged["reason"]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"packages": 3}', '{"packages": {"sottovoce": 7}}'])
def test_a_damaged_environment_says_nothing(make_run: Maker, content: str) -> None:
    path = make_run()
    (path / "environment.json").write_text(content)

    assert read_run(path).newer is None


ODD: list[Any] = [[], {}, "odd", -1, 1e400, True, [1, "x"], {"default": "x"}]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_summary_with_values_of_other_kinds_is_reported_or_called_damaged(make_run: Maker, odd: Any) -> None:
    """A newer version may write under a known key what this one does not expect; no key may break the page."""
    path, sound = make_run("odd", private=True, threat={"attack": "random", "fraction": 0.1}), make_run("sound")
    joules = {part: {"low": 1.0, "default": 2.0, "high": 3.0} for part in ("radio_bytes", "radio_sessions", "training")}
    summary = json.loads((path / "summary.json").read_text())
    summary |= {"joules_per_client": joules, "devices": {"phone": 1.0}, "seconds_simulated": 9.0, "dropouts": None}
    more = ("warm_start", "vote", "joules_per_client_run", "bytes_per_client_phase")
    keys = [*summary, *more, "clients", "expected_cohort", "budget_spent", "failures", "note", "rejected_rounds"]
    for key in keys:
        (path / "summary.json").write_text(json.dumps(summary | {key: odd}))
        runs, damaged = read_runs([path, sound])
        try:
            rows([*facts(runs), *damaged])
            _without_plotly(runs, damaged)
        except InputError:
            raise
        except Exception as error:
            pytest.fail(f"{key} = {odd!r}: {type(error).__name__}: {error}")


def _without_plotly(runs: Any, damaged: Any) -> None:
    """Gather everything that the page shows; drawing it is the same for all values."""
    from sottovoce.report.devices import device_section
    from sottovoce.report.html import _details, _highlights
    from sottovoce.report.phases import client_bytes
    from sottovoce.report.tables import notes
    from sottovoce.report.trade import COSTS, points

    told = facts(runs)
    _highlights([*told, *damaged], "accuracy")
    notes([*told, *damaged])
    device_section(told)
    _details(runs, told)
    for run, record in zip(runs, told, strict=True):
        client_bytes(run, record)
    for cost in COSTS.values():
        points(runs, told, cost, "accuracy")
