"""Three arms at one epsilon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sottovoce.cli import main
from sottovoce.cli.commands.study import study
from sottovoce.config.experiment import Experiment, load, parse
from sottovoce.core.errors import InputError
from sottovoce.search import runner
from sottovoce.studies import ballots

FILE = Path(__file__).parents[2] / "experiments" / "threats" / "ballots-small.toml"


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """Replace runs by what they would be asked: accuracy falls with the share of attackers where words are shared."""
    seen: list[Experiment] = []

    def pretend(experiment: Experiment, folder: Path, **keys: Any) -> dict[str, Any]:
        seen.append(experiment)
        part = 0.0 if experiment.threat is None else float(experiment.threat.fraction)
        shared = experiment.secure == "ideal"
        return {
            "accuracy_final": 0.9 - (part if shared else 0) - 0.01 * experiment.experiment.seed,
            "attack_success_final": None if experiment.threat is None else part,
            "diverged": shared and part > 0.1,
            "bytes_up_per_client_round": 900 if shared else 226,
        }

    monkeypatch.setattr(runner, "run", pretend)
    return seen


def test_every_arm_has_the_same_epsilon_seeds_and_attackers(played: list[Experiment], tmp_path: Path) -> None:
    cells = ballots.play_arms(load(FILE), tmp_path, attacks=["out-backdoor"], fractions=[0.1, 0.2], seeds=2)

    assert len(cells) == len(played) == 2 * 3 * 2
    assert {experiment.privacy and experiment.privacy.epsilon for experiment in played} == {8.0}
    assert {experiment.secure for experiment in played} == {"ideal", "ideal-ballot"}
    assert sum(experiment.threat is None for experiment in played) == 4
    assert len({experiment.experiment.name for experiment in played}) == len(played)


def test_rows_are_averages_over_seeds(played: list[Experiment], tmp_path: Path) -> None:
    cells = ballots.play_arms(load(FILE), tmp_path, attacks=["out-backdoor"], fractions=[0.2], seeds=2)

    rows = {(row.arm, row.attack): row for row in ballots.rows_of(cells, {"shares": 11.0, "ballots": 1.0})}

    attacked = rows["shares", "out-backdoor"]
    assert attacked.accuracy == pytest.approx(0.685) and attacked.accuracy_lowest == pytest.approx(0.68)
    assert (attacked.lost, attacked.votes, attacked.attack_success) == (2, 11.0, 0.2)
    assert rows["ballots", "out-backdoor"].lost == 0 and rows["ballots", ""].attack_success is None


def test_the_command_prints_one_table(played: list[Experiment], tmp_path: Path) -> None:
    given = ["ballots", str(FILE), "--attack", "out-backdoor", "--fraction", "0.1", "--out", str(tmp_path)]

    told = CliRunner().invoke(study, [*given, "--json"])
    shown = CliRunner().invoke(study, [*given, "--quiet"])

    rows = json.loads(told.stdout)["rows"]
    assert {row["arm"]: row["votes"] for row in rows}["ballots"] == 1.0
    assert {row["arm"]: row["votes"] for row in rows}["shares"] > 1.5
    assert "out-backdoor" in shown.stdout


def test_a_run_that_is_not_private_has_no_arms(tmp_path: Path) -> None:
    tables = load(FILE).tables()
    del tables["privacy"], tables["aggregation"]
    with pytest.raises(InputError, match="one epsilon"):
        ballots.play_arms(parse(tables), tmp_path, attacks=[], fractions=[], seeds=1)


def test_the_boost_of_a_file_is_for_shares_alone() -> None:
    threat = {"attack": "out-backdoor", "fraction": 0.1, "boost": 50.0}
    tables = {**load(FILE).tables(), "threat": threat}

    boosts = {arm: ballots.arm_of(parse(tables), arm, "out-backdoor", 0.1, 1).threat for arm in ballots.ARMS}

    assert boosts["shares"] is not None and boosts["shares"].boost == 50
    assert boosts["ballots"] is not None and boosts["ballots"].boost is None


def test_the_command_says_so_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "open.toml"
    file.write_text('[data]\nsource = "digits"\nclients = 20\n')

    assert main(["study", "ballots", str(file), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "error: the arms of a study of ballots have one epsilon; add [privacy]\n"
