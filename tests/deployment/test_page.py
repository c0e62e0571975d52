"""What docs/deploy.md tells people to type is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sottovoce.assembly.elsewhere import check_deployable
from sottovoce.cli import main
from sottovoce.config.experiment import load

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")


def test_the_experiment_of_the_page_can_be_deployed(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "run.toml").write_text(block, encoding="utf-8")
    experiment = load(tmp_path / "run.toml")

    check_deployable(experiment)
    assert experiment.engine.name == "mqtt" and experiment.data.clients == experiment.engine.min_nodes == 3


def test_every_option_of_the_page_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["keys", "init"], ["keys", "node"], ["keys", "roster"], ["serve"], ["join"]):
        assert main([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    typed = {
        option
        for line in re.findall(r"sottovoce (?:keys|serve|join) .*", PAGE)
        for option in re.findall(r"--[a-z]+", line)
    }

    assert len(typed) >= 10 and not [option for option in typed if option not in shown]
