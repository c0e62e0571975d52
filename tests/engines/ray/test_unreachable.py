"""A cluster that cannot be joined: one sentence."""

from __future__ import annotations

import socket

import pytest

from sottovoce.core.errors import RunError
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
