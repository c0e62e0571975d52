"""A sealed share that does not open is between two clients, removes nobody, and lets nobody remove another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sottovoce.core.errors import SecAggError
from sottovoce.secagg import messages, shamir

Factory = Any


def spoil(round_: Any, sender: int, receivers: list[int]) -> Any:
    """Let a client seal garbage for some peers, properly signed."""

    def alter(client: int, message: bytes) -> bytes:
        if client != sender:
            return message
        body = bytearray(message[messages.HEADER : -64])
        peers = [c for c in round_.session.clients if c != sender]
        for receiver in receivers:
            body[44 + (messages.PAIR - 12) * peers.index(receiver) + 40] ^= 1
        return messages.seal_reply(round_.session, "share", sender, bytes(body), round_.signing[sender])

    return alter


@pytest.mark.parametrize("left", [[], [11]])
def test_a_bad_sealed_share_names_its_sender_and_removes_nobody(cohort: Factory, left: list[int]) -> None:
    """Client 11 seals garbage for clients 5 and 8; the sum is exact, also if it then leaves and its key is opened."""
    round_ = cohort(10)
    round_.until("share")
    round_.step("share", alter=spoil(round_, 11, [5, 8]))
    round_.step("mask", gone=left)
    round_.step("consistency"), round_.step("unmask")

    assert round_.server.complaints == {11: (5, 8)}
    assert np.array_equal(round_.server.total(), round_.expected([c for c in round_.session.clients if c not in left]))
    assert not any(round_.rejected.values())


def test_a_client_that_spoils_too_many_shares_ends_the_round_under_its_name(cohort: Factory) -> None:
    round_ = cohort(7)
    round_.until("share")
    round_.step("share", alter=spoil(round_, 11, [5, 8, 14]))
    round_.step("mask"), round_.step("consistency")

    with pytest.raises(SecAggError, match=r"5 shares of client 11.* 4 are left: clients \[5, 8, 14\] say that"):
        round_.step("unmask")
    assert round_.server.complaints == {11: (5, 8, 14)}
    assert list(round_.server.accused) == [11]


def test_a_client_that_complains_of_everybody_ejects_nobody(cohort: Factory) -> None:
    round_ = cohort(7)
    round_.until("unmask")

    def complain(client: int, message: bytes) -> bytes:
        if client != 5:
            return message
        return messages.seal_reply(round_.session, "unmask", 5, shamir.NO_SHARE * 7 + b"\0", round_.signing[5])

    round_.step("unmask", alter=complain)

    assert np.array_equal(round_.server.total(), round_.expected())
    assert set(round_.server.complaints.values()) == {(5,)}
    assert list(round_.server.accused) == [5]
