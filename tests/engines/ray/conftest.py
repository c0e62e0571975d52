"""Settings of the clusters that tests start by themselves: nothing is sent home, workers do not give way to others."""

from __future__ import annotations

import os

from sottovoce.federation.ray_session import ZERO

os.environ.update(dict.fromkeys(ZERO, "0"))
