"""The helper as a process of its own, started as a run starts it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from sottovoce.core.errors import SecAggError
from sottovoce.experiment.parts import gather
from sottovoce.experiment.protection import protect
from sottovoce.experiment.ready import make_ready
from sottovoce.federation.ballots.counting import counting
from sottovoce.federation.ballots.real import RealCount
from sottovoce.testing.twin import Hand, few


def test_a_ctrl_c_is_the_leaders_and_does_not_break_the_helper(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A terminal sends it to the whole group; a helper that broke would print where, and lose the round."""
    private = {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 0.5}
    parts = gather(few(privacy=private, aggregation={"secure": "ballot"}))
    aggregator = make_ready(protect(parts), Hand(parts)).server.aggregator
    with counting(aggregator, tmp_path):
        assert isinstance(aggregator, RealCount) and aggregator.helper is not None
        with pytest.raises(SecAggError, match="other terms"):
            aggregator.helper.answer("hello", bytes(500))
        child = aggregator.helper.process
        assert child is not None
        os.kill(child.pid, signal.SIGINT)

        with pytest.raises(SecAggError, match="other terms"):
            aggregator.helper.answer("hello", bytes(500))

    assert child.returncode == 0
    assert capfd.readouterr().err == ""
