"""Weights that are sent down with 16 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.played import ONE, Tables, model
from tests.runs.small import small

from sottovoce.core.errors import ConfigError
from sottovoce.runs.loop import run


@pytest.mark.parametrize("scheme", ["fl-std", "fl-rnd", "fl-bas-3"])
def test_sixteen_bits_halve_the_bytes_down_and_hardly_move_the_model(tmp_path: Path, scheme: str) -> None:
    def play(name: str, bits: int) -> dict[str, Any]:
        tables: Tables = {"scheme": {"name": scheme, "downlink_bits": bits}, "engine": ONE}
        return run(small(**tables), tmp_path / name)

    full, half = play("full", 32), play("half", 16)

    assert half["bytes_down_per_client_round"] < 0.55 * full["bytes_down_per_client_round"] + 30
    assert half["bytes_up_per_client_round"] == full["bytes_up_per_client_round"]
    assert model(tmp_path / "half") == pytest.approx(model(tmp_path / "full"), rel=0.02, abs=2e-3)
    assert not np.array_equal(model(tmp_path / "half"), model(tmp_path / "full")), "clients train from other weights"


def test_votes_have_no_bits_to_spare() -> None:
    with pytest.raises(ConfigError, match=r"sign-sgd sends no weights down; remove \[scheme\] downlink_bits"):
        small(scheme={"name": "sign-sgd", "downlink_bits": 16}, cohort={"sample_rate": 1})
