"""The helper as a process of its own, started as a run starts it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.checks.twin import Hand, few
from sottovoce.core.errors import PrivacyError, SecAggError
from sottovoce.federation.aggregation.aggregator import Aggregator
from sottovoce.federation.aggregation.ballots.account import HELPER_LEDGER
from sottovoce.federation.aggregation.ballots.count import RealCount, counting


def made() -> Aggregator:
    private = {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 0.5}
    parts = gather(few(privacy=private, aggregation={"secure": "ballot"}))
    return stages(protect(parts))[TRAINING].server_side(Hand(parts)).server.aggregator


def test_an_account_that_is_damaged_ends_a_run_before_its_helper_is_started(tmp_path: Path) -> None:
    """Else every round would start a helper that breaks, and be aborted, to the last one."""
    aggregator = made()
    with counting(aggregator, tmp_path):
        pass
    (tmp_path / HELPER_LEDGER).write_text("{}\n")

    with pytest.raises(PrivacyError, match="line 1 is damaged"), counting(aggregator, tmp_path):
        pytest.fail("a helper was started")


def test_a_ctrl_c_is_the_leaders_and_does_not_break_the_helper(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A terminal sends it to the whole group; a helper that broke would print where, and lose the round."""
    aggregator = made()
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
