"""A run that ends early had its whole budget at its disposal: `epsilon` is the plan's, whatever was played.

When a run stops depends on what it released. Read after the fact, what was consumed until then is exceeded more often
than delta says (docs/privacy.md, "When a run ends early"), so it stands beside, as `epsilon_spent`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import sottovoce as sv
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.cli.progress import Board
from sottovoce.privacy.accounting import accountant
from sottovoce.report.html import page
from sottovoce.report.rounds import epsilon_spent
from sottovoce.report.runs import facts, read_run
from sottovoce.report.tables import notes
from sottovoce.runs.folder import read_rounds, read_summary
from sottovoce.runs.loop import run
from sottovoce.runs.summary import SPENT_NOTE
from sottovoce.studies.audit.records import check_folder
from tests.runs.small import small

PRIVACY = {"epsilon": 8.0, "delta": 1e-2, "clip_norm": 0.5}
ONE = {"workers": 1}


class StopAfterTwo:
    """A callback that has seen enough, and keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def on_round(self, record: dict[str, Any], state: Any) -> None:
        self.seen.append(record)
        if record["round"] == 2:
            raise sv.Stop


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], StopAfterTwo]:
    """Play a private run of six rounds that a callback ends after two."""
    path, callback = tmp_path_factory.mktemp("stopped") / "run", StopAfterTwo()
    summary = run(small(privacy=PRIVACY, engine=ONE), path, callbacks=[callback])
    return path, summary, callback


def holds(summary: dict[str, Any], path: Path, *, charges: int) -> None:
    """Check that a run promises what its plan does, and that its reading is that of its charges."""
    assert 7.99 < summary["epsilon"] <= 8.0
    assert summary["epsilon"] == summary["privacy"]["epsilon"] == summary["epsilon_best_round"]
    assert 0 < summary["epsilon_spent"] < 0.95 * summary["epsilon"]
    assert summary["epsilon_spent_note"] == SPENT_NOTE
    assert "no guarantee" in SPENT_NOTE
    rounds = read_rounds(path)
    assert {record["epsilon"] for record in rounds} == {summary["epsilon"]}
    readings = [record["epsilon_spent"] for record in rounds]
    assert readings == sorted(readings)
    assert len(set(readings)) == charges
    assert readings[-1] == summary["epsilon_spent"]


def test_a_callback_that_stops_does_not_lower_epsilon(stopped: tuple[Path, dict[str, Any], StopAfterTwo]) -> None:
    path, summary, callback = stopped

    assert summary["rounds"] == 2
    holds(summary, path, charges=2)
    assert [record["epsilon"] for record in callback.seen] == [summary["epsilon"]] * 2
    assert callback.seen[0]["epsilon_spent"] < callback.seen[1]["epsilon_spent"] < summary["epsilon"]


def test_patience_does_not_lower_epsilon(tmp_path: Path) -> None:
    patient = {"rounds": 20, "evaluate_every": 1, "patience": 1}
    private = {**PRIVACY, "unsafe_test": True}  # held-out records are the clients'
    summary = run(small(experiment=patient, data={"held_out": 0.1}, privacy=private, engine=ONE), tmp_path / "run")

    assert summary["stopped_early"]
    holds(summary, tmp_path / "run", charges=summary["rounds"])


def test_aborted_rounds_leave_no_epsilon_at_all(tmp_path: Path) -> None:
    """That they were aborted depends on who came (A3): neither the plan's epsilon nor a lower one is promised."""
    leave = {"leave": [[round_, client, "mask"] for round_ in (5, 6) for client in range(20)]}
    summary = run(small(privacy=PRIVACY, devices=leave, engine=ONE), tmp_path / "run")

    assert summary["aborted_rounds"] == 2
    assert summary["epsilon"] is summary["epsilon_spent"] is summary["epsilon_best_round"] is None
    assert summary["privacy"]["epsilon_if_all_answer"] == pytest.approx(8.0, abs=0.01)
    assert {record["epsilon"] for record in read_rounds(tmp_path / "run")} == {None}


def test_a_run_to_the_end_has_spent_what_was_planned(tmp_path: Path) -> None:
    summary = run(small(privacy=PRIVACY, engine=ONE), tmp_path / "run")

    assert summary["epsilon_spent"] == summary["epsilon"]


def test_a_run_that_is_not_private_has_neither(tmp_path: Path) -> None:
    summary = run(small(engine=ONE), tmp_path / "run")

    assert summary["epsilon"] is None
    assert summary["epsilon_spent"] is None
    assert {(record["epsilon"], record["epsilon_spent"]) for record in read_rounds(tmp_path / "run")} == {(None, None)}


def test_report_and_api_show_the_plan_and_name_the_reading(
    stopped: tuple[Path, dict[str, Any], StopAfterTwo], tmp_path: Path
) -> None:
    path, summary, _ = stopped
    read = read_run(path)
    [record] = facts([read])
    told = " ".join(note for note, _ in notes([record]))

    assert record["epsilon"] == summary["epsilon"]
    assert "no guarantee" in told
    assert "no guarantee" in page([read])
    figure = epsilon_spent([read])
    assert figure is not None
    assert list(figure.data[0].y) == pytest.approx([line["epsilon_spent"] for line in read.rounds], rel=1e-3)
    shown = repr(sv.result(path))
    assert "epsilon   8, " in shown
    assert "spent" in shown


def test_the_board_of_a_federation_shows_the_plan_from_round_1() -> None:
    board = Board()
    board.start("run", 6, private=True)
    board.show("run", {"round": 1, "epsilon": 7.9996, "epsilon_spent": 1.25})

    cells = [str(cell) for column in board.table().columns for cell in column.cells]

    assert "8 (1.25 spent)" in cells


def test_a_folder_of_an_older_version_is_shown_with_its_plan(
    stopped: tuple[Path, dict[str, Any], StopAfterTwo], tmp_path: Path
) -> None:
    """Older versions wrote the reading under the name of the guarantee; the plan's stood in `privacy`."""
    _, summary, _ = stopped
    path = tmp_path / "old"
    path.mkdir()
    for name in ("config.toml", "ledger.jsonl", "environment.json", "preprocessing.json", "model.npz"):
        (path / name).write_bytes((stopped[0] / name).read_bytes())
    rounds = [{**line, "epsilon": line["epsilon_spent"]} for line in read_rounds(stopped[0])]
    old = {**summary, "epsilon": summary["epsilon_spent"], "epsilon_best_round": rounds[0]["epsilon"]}
    for record in (*rounds, old):
        record.pop("epsilon_spent")
    old.pop("epsilon_spent_note")
    (path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rounds))

    [unfinished] = facts([read_run(path)])
    assert (unfinished["epsilon"], unfinished["epsilon_spent"]) == (8.0, summary["epsilon_spent"])
    (path / "summary.json").write_text(json.dumps(old))
    for told in (read_summary(path), facts([read_run(path)])[0], sv.result(path).summary):
        assert told is not None
        assert told["epsilon"] == told["epsilon_best_round"] == summary["epsilon"]
        assert told["epsilon_spent"] == summary["epsilon_spent"]
    assert [line["epsilon"] for line in read_run(path).rounds] == [summary["epsilon"]] * 2


@pytest.mark.parametrize("key", ["summary", "rounds"])
def test_the_audit_accuses_a_folder_that_quotes_the_reading(
    stopped: tuple[Path, dict[str, Any], StopAfterTwo], tmp_path: Path, key: str
) -> None:
    path = tmp_path / "run"
    shutil.copytree(stopped[0], path)
    plan = protect(gather(small(privacy=PRIVACY, engine=ONE))).plan
    assert plan is not None
    before = {finding.name: finding for finding in check_folder(path, plan)}["epsilons told"]
    if key == "summary":
        summary = {**stopped[1], "epsilon": stopped[1]["epsilon_spent"]}
        (path / "summary.json").write_text(json.dumps(summary))
    else:
        rounds = [{**line, "epsilon": line["epsilon_spent"]} for line in read_rounds(path)]
        (path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rounds))
    after = {finding.name: finding for finding in check_folder(path, plan)}["epsilons told"]

    assert before.p_value == 1
    assert after.p_value == 0


def test_a_reading_taken_after_the_fact_is_no_guarantee() -> None:
    """Whoever may stop when the releases look telling exceeds the reading with many times delta.

    64 Gaussian releases at noise 8 (all together: epsilon about 4.4 at delta 1e-5). The one who stops wants the largest
    E[(1 - exp(reading - loss))+], which is the delta at which the reading would hold; backward induction on a grid of
    losses finds it, without chance. The same sum without a choice, at the end, is delta: so the grid is fine enough.
    """
    rounds, noise, delta = 64, 8.0, 1e-5
    readings = [accountant.epsilon_server([(noise, t)], delta=delta, accountant="pld") for t in range(1, rounds + 1)]
    step = 0.01
    losses = np.arange(-6.0, 14.0, step)
    mean, deviation = 1 / (2 * noise**2), 1 / noise
    moves = np.arange(-80, 81)
    weights = norm.cdf((moves + 0.5) * step, mean, deviation) - norm.cdf((moves - 0.5) * step, mean, deviation)

    def exceeded(reading: float) -> Any:
        return np.maximum(0, 1 - np.exp(np.minimum(0, reading - losses)))

    value = fixed = exceeded(readings[-1])
    for reading in reversed(readings[:-1]):
        value = np.maximum(exceeded(reading), np.convolve(value, weights[::-1], "same"))
        fixed = np.convolve(fixed, weights[::-1], "same")
    start = int(np.argmin(np.abs(losses)))
    at_the_end, stopping = (float(weights @ each[start + moves]) for each in (fixed, value))

    assert at_the_end == pytest.approx(delta, rel=0.02)
    assert stopping > 5 * delta
