"""The thesis' bounds in a summary."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sottovoce.runs.loop import run
from tests.runs.small import small

SIGN = {"name": "fl-sign", "server_lr": 0.02}
ONE = {"workers": 1}


def test_a_private_run_of_signs_tells_the_slack_and_what_noise_costs(tmp_path: Path) -> None:
    summary = run(small(scheme=SIGN, privacy={"noise_multiplier": 2.0, "delta": 1e-2}, engine=ONE), tmp_path / "run")
    thesis = summary["thesis"]

    assert 0 <= thesis["theorem_3"]["epsilon_slack"] < 0.1
    assert thesis["theorem_3"]["log10_nu"] < 0
    scale = 2 / math.sqrt(6)
    assert thesis["theorem_6"]["tau_factor_sampling"] == pytest.approx(scale / math.sqrt(10))
    assert thesis["theorem_6"]["tau_factor_privacy"] == pytest.approx(scale * math.sqrt(3 * 650) * 2.0 / 10)
    assert thesis["theorem_6"]["descent_per_unit_of_loss"] == pytest.approx(2 / (0.02 * 6))


def test_random_updates_widen_the_bound(tmp_path: Path) -> None:
    threat = {"attack": "random-update", "fraction": "1/4"}
    attacked = run(small(scheme=SIGN, threat=threat, engine=ONE), tmp_path / "random")["thesis"]

    factor = attacked["theorem_6"]["tau_factor_sampling"]
    assert factor == pytest.approx(2 / math.sqrt(6) * math.sqrt(2) / (0.75 * math.sqrt(10)))
    assert attacked["theorem_3"] is None
