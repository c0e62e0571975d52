"""A cluster that cannot be joined: one sentence."""

from __future__ import annotations

import socket

import pytest

from sottovoce.core.errors import RunError
from sottovoce.federation.engines import ray_session
from sottovoce.federation.engines.ray_session import joined


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


def test_a_cluster_that_wants_a_token_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:  # as Ray does, after half a minute
        raise ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379.")

    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setattr(ray_session, "_init", refuse)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with pytest.raises(RunError, match=r"; if it wants a token, set RAY_AUTH_MODE=token in the environment, else"):
            joined(f"127.0.0.1:{listening.getsockname()[1]}").__enter__()
