"""Without torch, what needs it says so in one sentence, and nothing else asks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sottovoce.core.errors import InputError
from sottovoce.models import LocalTraining, choose_trainer, make_trainer, network
from sottovoce.models.export import export
from sottovoce.models.fast import unavailable

WAY_OUT = "needs torch, which is not installed; install it with: pip install 'sottovoce[torch]'"


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.mark.usefixtures("no_torch")
def test_a_trainer_that_needs_torch_says_why_and_what_to_install() -> None:
    lstm = network("imdb-lstm", (100,), 2)

    with pytest.raises(
        InputError, match=r"^trainer 'torch' \(layer 0 .*not known to the fast trainer\) needs torch"
    ) as caught:
        make_trainer(lstm, LocalTraining())

    assert str(caught.value).endswith(WAY_OUT)


@pytest.mark.usefixtures("no_torch")
@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("name", ["logistic", "mlp"])
def test_the_fast_trainer_does_without_torch(name: str) -> None:
    small = network(name, (8, 8, 1), 10)

    assert choose_trainer(small, LocalTraining()).trainer == "fast"
    assert make_trainer(small, LocalTraining()).scores(
        np.zeros(small.dim, np.float32), np.ones((2, 8, 8, 1))
    ).shape == (2, 10)


@pytest.mark.usefixtures("no_torch")
def test_export_to_torch_names_the_extra_and_npz_needs_none(tmp_path: Path) -> None:
    model = network("logistic", (8, 8, 1), 10)
    params = np.zeros(model.dim, np.float32)

    with pytest.raises(InputError, match="--to torch needs torch"):
        export(model, params, "torch", tmp_path / "model.pt2", {})
    export(model, params, "npz", tmp_path / "model.npz", {})

    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]


def test_planning_running_and_reporting_never_import_torch(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["torch"] = None
from sottovoce.cli import main
for line in (
    "init", "plan experiment.toml", "run experiment.toml --set experiment.rounds=2 --out first --quiet", "report first",
):
    try:
        sys.argv = ["sottovoce", *line.split()]
        main()
    except SystemExit as end:
        assert not end.code, (line, end.code)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert '"torch"' in (tmp_path / "first" / "environment.json").read_text()
