"""Settings that all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# Compiling a kernel on first use takes longer than any deadline; and a red build must be red again when it is repeated.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
