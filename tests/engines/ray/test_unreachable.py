"""Clusters that cannot be joined, and a package that is not there: one sentence each."""

from __future__ import annotations

import socket
import sys

import pytest

from sottovoce.core.errors import InputError, RunError
from sottovoce.experiment.engine_table import EngineTable
from sottovoce.experiment.engines import cluster
from sottovoce.federation.ray_session import joined


def test_a_cluster_that_cannot_be_reached_is_one_sentence() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(RunError) as refusal, joined(address):
        pass

    assert str(refusal.value) == (
        f"no Ray cluster can be reached at {address} ([Errno 111] Connection refused); start one with "
        '"ray start --head", or set [engine] address = "local"'
    )
    assert refusal.value.exit_code == 4


def test_ray_that_is_not_installed_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sottovoce.federation.ray_session")
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(InputError) as refusal, cluster(EngineTable(name="ray")):
        pass

    assert str(refusal.value) == (
        "[engine] name = \"ray\" needs the package ray; install it with: pip install 'sottovoce[ray]'"
    )
    assert refusal.value.exit_code == 2
