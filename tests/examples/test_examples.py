"""The examples run as a reader would run them: as scripts, from any folder, without a `__main__` guard."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
TOLD = {
    "compare": ["fl-std", "fl-sign", "fl-cs", "fl-top", "inf", "8.00"],
    "own_data": ["epsilon", "a new patient: "],
    "own_model": ["accuracy", "fl-std, 1 rounds"],
    "own_scheme": ["blocks, 1 rounds", "infinite", "against the server"],
    "regression": ["against the server", "within 50 for", "the model: model.npz"],
}
LEFT = {
    "compare": [],
    "own_data": ["patients.csv", "schema.toml"],
    "own_model": ["resnet.pt"],
    "own_scheme": [],
    "regression": ["model.npz"],
}


def test_these_are_the_examples() -> None:
    assert [example.stem for example in EXAMPLES] == sorted(TOLD)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_is_short(example: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) < 40


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        env={**os.environ, "ROUNDS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert told.returncode == 0, told.stderr
    assert [words for words in TOLD[example.stem] if words not in told.stdout] == []
    assert sorted(file.name for file in tmp_path.iterdir()) == LEFT[example.stem]
