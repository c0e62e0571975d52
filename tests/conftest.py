"""Settings that all tests share."""

from __future__ import annotations

import os
import tempfile

from hypothesis import settings

# Compiling a kernel on first use takes longer than any deadline; and a red build must be red again when it is repeated.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")

# The key of fingerprints is this machine's; tests have their own.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="sottovoce-state-")

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
