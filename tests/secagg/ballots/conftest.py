"""Base transfers take two seconds a side; only the tests of `ot` and of whole runs make real ones."""

from __future__ import annotations

import pytest
from tests.secagg.ballots.stage import without_base_transfers


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_base_transfers(monkeypatch)
