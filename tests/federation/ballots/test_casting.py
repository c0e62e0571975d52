"""What a client that votes insists on, whatever its server asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.checks.twin import Hand, TwinAccount, few
from sottovoce.core.errors import SecAggError
from sottovoce.federation.aggregation.ballots.count import counting
from sottovoce.federation.engine import Request
from sottovoce.federation.round import server_round

PRIVATE = {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 0.5, "max_participations": 3}


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[tuple[Hand, Request]]:
    """Give clients that vote, and the request of round 1; the helper is never called, and so never started."""
    tables = {"experiment": {"rounds": 4}, "cohort": {"sample_rate": "2/3"}, "aggregation": {"secure": "ballot"}}
    parts = gather(few(privacy=PRIVATE, **tables))
    hand = Hand(parts)
    ready = stages(protect(parts))[TRAINING].server_side(hand)
    ready.enrol(hand)
    with counting(ready.server.aggregator, tmp_path):
        yield hand, next(server_round(ready.server.with_account(TwinAccount()), ready.server.init(parts.start), 1))


def test_a_client_casts_one_ballot_a_round_and_none_of_a_round_before(asked: tuple[Hand, Request]) -> None:
    """Two ballots of one round, from two models, would be two releases for the price of one."""
    hand, request = asked
    client = next(iter(request.payloads))
    one, payload = hand.worker(client).host.client(client), request.payloads[client]
    _, state = one.answer(2, "train", payload, hand.state(client))

    for round_ in (2, 1):
        with pytest.raises(SecAggError, match="masked"):
            one.answer(round_, "train", payload, state)
    assert one.answer(3, "train", payload, state)[1].participations == 2


def test_a_client_casts_no_more_ballots_than_the_plan_allows(asked: tuple[Hand, Request]) -> None:
    hand, request = asked
    client = next(iter(request.payloads))
    one, payload, state = hand.worker(client).host.client(client), request.payloads[client], hand.state(client)
    for round_ in (1, 2, 3):
        _, state = one.answer(round_, "train", payload, state)

    with pytest.raises(SecAggError, match="cast 3 ballots, and the run allows 3"):
        one.answer(4, "train", payload, state)
