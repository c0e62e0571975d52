from __future__ import annotations

import json
from pathlib import Path

import pytest

from sottovoce.cli import main

SMALL = """
[study]
name = "tiny"
mode = "right"
data = "digits"
mechanisms = ["none", "gaussian"]
epsilons = [1.0]
clients = [2]
samples = [20]
iterations = 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(SMALL)
    return path


def test_a_study_prints_its_cells_and_draws_them(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, png = tmp_path / "out", tmp_path / "curves.png"

    assert main(["study", "mechanisms", str(file), "--out", str(out), "--png", str(png), "--json", "--quiet"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert [cell["mechanism"] for cell in document["cells"]] == ["none", "gaussian"]
    assert document["cells"][1]["epsilon_proven"] == 1.0
    assert document["cells"][1]["delta"] == 1e-4
    assert all(cell["simulated"] for cell in document["cells"])
    assert png.read_bytes().startswith(b"\x89PNG")
    written = {path.name for path in out.iterdir() if path.name != ".lock"}
    assert written == {"config.toml", "environment.json", "cells.jsonl", "summary.json"}


def test_a_study_is_shown_as_a_table(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["study", "mechanisms", str(file), "--out", str(tmp_path / "out")]

    picture = ["--png", str(tmp_path / "both.png"), "--also", str(tmp_path / "out")]
    assert main([*words, "--set", 'study.mechanisms=["none"]']) == 0
    assert main([*words, "--set", 'study.mechanisms=["none"]', "--resume", "--quiet", *picture]) == 0
    assert main([*words, "--resume", "--also", str(tmp_path / "nowhere")]) == 2
    assert (tmp_path / "both.png").exists()
    shown = capsys.readouterr()
    assert "digits" in shown.out
    assert "the cells are in" in shown.err


def test_wrong_words_end_with_exit_code_two(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "mechanisms", str(file), "--set", "study.mode=wrong"]) == 2
    assert main(["study", "mechanisms", str(tmp_path / "none.toml")]) == 2
    assert "there is no experiment file" in capsys.readouterr().err
