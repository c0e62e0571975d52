"""Helpers that are forked from the test: real processes that can be killed, without the seconds of a start."""

from __future__ import annotations

import os
from multiprocessing.connection import Pipe

import cloudpickle
import pytest

from sottovoce.federation.aggregation.ballots import process as module
from sottovoce.federation.aggregation.ballots.process import HelperProcess, serve
from tests.secagg.ballots.stage import without_base_transfers


class Forked:
    """A child, as much like `subprocess.Popen` as a helper needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitpid(self.pid, 0)[1]


def fork_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let helpers be forked, with base transfers that cost nothing."""
    without_base_transfers(monkeypatch)

    def start(self: HelperProcess) -> None:
        ours, theirs = Pipe()
        pid = os.fork()
        if pid == 0:
            ours.close()
            try:
                serve(theirs)
            finally:
                os._exit(0)
        theirs.close()
        self.process, self._pipe = Forked(pid), ours  # type: ignore[assignment]
        ours.send_bytes(cloudpickle.dumps(self._setup))

    monkeypatch.setattr(module.HelperProcess, "_start", start)
