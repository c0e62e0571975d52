"""A cluster of two machines for all tests, and settings of the clusters that tests start by themselves.

Nothing is sent home, and workers do not give way to others. To start a machine takes seconds, so there is one cluster,
and the test that loses a machine comes last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from ray.cluster_utils import Cluster

from sottovoce.federation.engines.ray_session import ZERO
from tests.engines.ray.processes import eventually_none, marked

os.environ.update(dict.fromkeys(ZERO, "0"))

PARTS = "SOTTOVOCE_TEST_PARTS"  # where a machine looks for its parts of the records
_SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}


class Machines(NamedTuple):
    """A cluster of two machines with a CPU each, the mark of its processes, and the folder of each machine."""

    cluster: Cluster
    mark: str
    folders: list[Path]

    @property
    def address(self) -> str:
        """Return where it can be joined."""
        address: str = self.cluster.address
        return address


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    folders = [tmp_path_factory.mktemp(f"machine-{number}") for number in range(2)]
    with marked() as mark:
        cluster = Cluster()
        for folder, more in zip(folders, ({"include_dashboard": False, "_system_config": _SOON}, {}), strict=True):
            cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1", env_vars={PARTS: str(folder)}, **more)
    yield Machines(cluster, mark, folders)
    cluster.shutdown()
    assert not eventually_none(mark)
