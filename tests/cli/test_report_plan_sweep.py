from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sottovoce.cli.commands.sweep import _labels

from .conftest import Shell


def test_report_prints_a_table_and_writes_a_page(shell: Shell, finished: Path, here: Path) -> None:
    outcome = shell("report", str(finished), "--html", "page.html")

    assert outcome.code == 0
    assert "small" in outcome.out and "fl-std" in outcome.out
    assert outcome.err == "the report is in page.html\n"
    assert (here / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_report_as_json_has_the_numbers_and_nulls(shell: Shell, finished: Path) -> None:
    document = shell("report", str(finished), "--json").json()

    (run,) = document["runs"]
    assert document["html"] is None
    assert (run["label"], run["status"], run["rounds"]) == ("small", "finished", 6)
    assert run["epsilon"] is None
    assert run["bytes_up_total"] > 0


def _attack(folder: Path, copy: Path, attack: str, fraction: float, accuracy: float) -> str:
    """Copy a run as if it had been attacked."""
    shutil.copytree(folder, copy)
    with (copy / "config.toml").open("a") as file:
        file.write(f'\n[threat]\nattack = "{attack}"\nfraction = {fraction}\n')
    summary = json.loads((copy / "summary.json").read_text())
    summary |= {"attack": attack, "attack_fraction": fraction, "accuracy_best": accuracy}
    (copy / "summary.json").write_text(json.dumps(summary))
    return str(copy)


def test_report_prints_the_robustness_matrix_below_the_table_and_draws_it(
    shell: Shell, finished: Path, here: Path
) -> None:
    runs = [_attack(finished, here / f"hit{share}", "random", share, 0.7 - share) for share in (0.1, 0.2)]

    outcome = shell("report", *runs, "--png", "matrix.png")
    document = shell("report", *runs, "--json").json()

    assert outcome.code == 0
    below = outcome.out[outcome.out.index("accuracy, best round") :]
    assert "10 %" in below and "20 %" in below and "0.600" in below and "0.500" in below
    assert outcome.err == "the robustness matrix is in matrix.png\n"
    assert (here / "matrix.png").read_bytes().startswith(b"\x89PNG")
    assert [(cell["attack_fraction"], cell["accuracy"]) for cell in document["robustness"]] == [
        (0.1, pytest.approx(0.6)),
        (0.2, pytest.approx(0.5)),
    ]


def test_report_of_honest_runs_has_no_matrix_and_no_picture(shell: Shell, finished: Path, here: Path) -> None:
    assert "accuracy, best round" not in shell("report", str(finished)).out
    assert shell("report", str(finished), "--json").json()["robustness"] == []

    outcome = shell("report", str(finished), "--png", "matrix.png")

    assert (outcome.code, outcome.out) == (2, "") and "more than one attack or fraction" in outcome.err
    assert not (here / "matrix.png").exists()


def test_an_accusation_is_warned_about(shell: Shell, finished: Path, here: Path) -> None:
    shutil.copytree(finished, here / "accused")
    (here / "accused" / "audit.json").write_text(json.dumps({"accused": True, "reasons": ["it leaks"]}))

    outcome = shell("report", "accused")

    assert outcome.code == 0
    assert outcome.err == "warning: small: ACCUSED by its audit: it leaks\n"
    assert "ACCUSED by its audit: it leaks (small)" in outcome.out


@pytest.mark.parametrize("path", ["nothing", ".", "small.toml"])
def test_what_is_no_run_exits_2_with_one_sentence(shell: Shell, path: str) -> None:
    outcome = shell("report", path)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1


def test_a_damaged_run_is_warned_about_and_the_others_are_shown(shell: Shell, finished: Path, here: Path) -> None:
    (here / "broken").mkdir()
    (here / "broken" / "config.toml").write_text("[")

    outcome = shell("report", "broken", str(finished), "gone", "--html", "page.html")
    document = shell("report", "broken", str(finished), "--json").json()

    assert outcome.code == 0
    assert "small" in outcome.out and "damaged" in outcome.out
    assert [line.split(":")[:2] for line in outcome.err.splitlines()[:2]] == [
        ["warning", " broken"],
        ["warning", " gone"],
    ]
    assert "damaged: " in (here / "page.html").read_text(encoding="utf-8")
    assert [run["status"] for run in document["runs"]] == ["finished", "damaged"]
    assert "config.toml is damaged" in document["runs"][1]["reason"]
    nothing = shell("report", "broken", "gone")
    assert (nothing.code, nothing.out, nothing.err.count("\n")) == (2, "", 1)


def test_a_broken_ledger_is_warned_about_and_in_the_document(shell: Shell, here: Path) -> None:
    privacy = ("--set", "privacy.delta=1e-3", "--set", "privacy.epsilon=8", "--set", "privacy.clip_norm=1")
    assert shell("run", "small.toml", "--out", "private", "--quiet", "--set", "experiment.rounds=2", *privacy).code == 0
    sound = shell("report", "private", "--json")
    ledger = here / "private" / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"round": 1', '"round": 2'))

    broken = shell("report", "private", "--json")

    assert sound.json()["runs"][0]["ledger"] == {"intact": True, "charges": 2, "problem": None}
    assert broken.code == 0
    # Two rounds under this noise learn little, which both reports may say; the ledger alone makes the difference.
    assert set(broken.err.splitlines()) - set(sound.err.splitlines()) == {
        "warning: small: ledger.jsonl line 2 is damaged: the chain of hashes is broken"
    }
    assert not broken.json()["runs"][0]["ledger"]["intact"]


def test_a_page_that_cannot_be_written_exits_2_before_anything_is_printed(shell: Shell, finished: Path) -> None:
    outcome = shell("report", str(finished), "--html", "small.toml/page.html")

    assert (outcome.code, outcome.out) == (2, "")
    assert "--html" in outcome.err


def test_plan_tells_costs_without_leaving_a_run(shell: Shell, here: Path) -> None:
    costs = shell("plan", "small.toml", "--json").json()

    assert (costs["scheme"], costs["clients"], costs["rounds"]) == ("fl-std", 20, 6)
    assert costs["bytes_up_total"] == 6 * 10 * costs["bytes_up_per_client_round"]
    assert costs["seconds_per_round"] is None
    assert shell("plan", "small.toml", "--measure", "--json").json()["seconds_total"] > 0
    outcome = shell("plan", "small.toml", "--set", "scheme.name=fl-sign")
    assert outcome.code == 0
    assert "a client and round" in outcome.out and "fl-sign" in outcome.out
    assert [file.name for file in here.iterdir()] == ["small.toml"]


def test_plan_refuses_what_run_would(shell: Shell) -> None:
    outcome = shell("plan", "small.toml", "--set", "data.clients=99999")

    assert (outcome.code, outcome.out) == (2, "")


def test_a_sweep_makes_one_run_a_point_and_is_not_run_twice(shell: Shell, here: Path) -> None:
    with (here / "small.toml").open("a") as file:
        file.write('\n[sweep]\nscheme.name = ["fl-std", "fl-sign"]\n')

    first = shell("sweep", "small.toml", "--out", "grid")
    again = shell("sweep", "small.toml", "--out", "grid", "--json")

    assert first.code == again.code == 0
    summaries = again.json()
    assert [summary["scheme"] for summary in summaries] == ["fl-std", "fl-sign"]
    for summary in summaries:
        assert summary["name"] == f"small-{summary['scheme']}"
        assert f"{summary['scheme']}: round 6 of 6: accuracy" in first.err
        assert (here / "grid" / summary["name"] / "summary.json").exists()
    assert first.err.count("trainer: ") == 1, "the same for all runs, so said once"
    assert again.err == ""
    runs = [str(here / "grid" / summary["name"]) for summary in summaries]
    assert len(shell("report", *runs, "--json").json()["runs"]) == 2


def test_a_narrow_terminal_numbers_runs_whose_names_would_be_folded() -> None:
    names = ["fl-std-client_lr-0.1", "fl-std-client_lr-0.215"]

    assert _labels(names, 240) == (names, [])
    assert _labels(["fl-std", "fl-top"], 80) == (["fl-std", "fl-top"], [])
    assert _labels(names, 80) == (["1", "2"], [f"run 1: {names[0]}", f"run 2: {names[1]}"])


def test_a_sweep_without_a_grid_is_refused(shell: Shell) -> None:
    outcome = shell("sweep", "small.toml")

    assert (outcome.code, outcome.out) == (2, "")
    assert "[sweep]" in outcome.err


def test_the_summary_tells_the_phases_of_a_round_that_plan_foretells(shell: Shell, finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    told = shell("plan", "small.toml", "--json").json()

    assert summary["bytes_per_client_phase"] == told["bytes_per_client_phase"]
    assert summary["bytes_per_client_phase"]["train"]["up"] == summary["bytes_up_per_client_round"]
