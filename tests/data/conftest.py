from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sottovoce.data import Dataset, load

# Taken before any test hides the variable from the code under test.
SHARED = os.environ.get("SOTTOVOCE_DATA")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test a cache of its own and no shared data folder."""
    monkeypatch.delenv("SOTTOVOCE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sottovoce"


@functools.cache
def _real(name: str) -> Dataset:
    return load(name, SHARED)


@pytest.fixture
def real() -> Callable[[str], Dataset]:
    if not SHARED:
        pytest.skip("needs the packed data sets; set SOTTOVOCE_DATA to their folder")
    return _real
