"""Settings that all tests share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

from sottovoce.schemes import SCHEMES

# Compiling a kernel on first use takes longer than any deadline; and a red build must be red again when it is repeated.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")

# The key of fingerprints is this machine's; tests have their own.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="sottovoce-state-")

os.environ["SOTTOVOCE_FEATURES"] = "none"  # a test finds nothing that another one left

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")


@pytest.fixture(autouse=True)
def _no_schemes_of_other_tests() -> Iterator[None]:
    """Forget the schemes that a test added to its process: pages and listings would show them in the next test."""
    added = dict(SCHEMES._added)
    yield
    SCHEMES._added = added
