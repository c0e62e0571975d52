"""The thesis' bounds in a summary."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sottovoce.experiment.run import run
from tests.experiment.small import small

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


def test_random_updates_widen_the_bound_and_other_attacks_have_none(tmp_path: Path) -> None:
    attacked = run(
        small(scheme=SIGN, threat={"attack": "random-update", "fraction": "1/4"}, engine=ONE), tmp_path / "random"
    )["thesis"]
    ascent = run(small(scheme=SIGN, threat={"attack": "gradient-ascent"}, engine=ONE), tmp_path / "ascent")["thesis"]

    factor = attacked["theorem_6"]["tau_factor_sampling"]
    assert factor == pytest.approx(2 / math.sqrt(6) * math.sqrt(2) / (0.75 * math.sqrt(10)))
    assert attacked["theorem_3"] is None
    assert ascent["theorem_6"] is None


def test_other_schemes_have_no_such_key(tmp_path: Path) -> None:
    assert "thesis" not in run(small(engine=ONE), tmp_path / "run")
