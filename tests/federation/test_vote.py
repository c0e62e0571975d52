from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sottovoce.checks.twin import TwinAccount
from sottovoce.core.errors import RunError
from sottovoce.core.streams import Seeds
from sottovoce.federation.aggregation.direct import Direct
from sottovoce.federation.coding import Private
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.engine import Request
from sottovoce.federation.round import Server
from sottovoce.federation.stages.vote import VOTE, Vote, hold_vote
from sottovoce.models import LocalTraining, Shard
from sottovoce.privacy.plan.vote import vote_plan
from sottovoce.schemes import importance
from tests.federation.driven import GoneError, drive, sending

DIM, KEPT, CLIENTS = 12, 3, 40
START = np.zeros(DIM, np.float32)


def voting(charge: Callable[[int], None] = lambda round_: None, noise: float = 0.5) -> tuple[Server, Private]:
    keys: dict[str, Any] = {"clients": CLIENTS, "sample_rate": 0.5, "delta": 1e-2, "accountant": "rdp"}
    plan, _ = vote_plan(kept=KEPT, noise_multiplier=noise, length=DIM, **keys)
    coding = Private(plan, Seeds(1))
    server = Server(
        Vote(kept=KEPT, training=LocalTraining()).bind(DIM, start=START),
        Cohort(CLIENTS, Fraction(1, 2)),
        Direct(coding, plan.shares.survivors),
        Seeds(1).server,
        plan=plan,
        account=TwinAccount(charge),
    )
    return server, coding


def ballots(server: Server) -> Callable[[int], NDArray[Any]]:
    """Return clients who agree on coordinates 2 and 7 and on nothing else."""

    def message(client: int) -> NDArray[Any]:
        scores = np.full(DIM, 0.1, np.float32)
        scores[[2, 7]] = 5
        scores[[0, 4, 4, 9][client % 4]] = 3
        return server.scheme.encode(scores, 0, np.random.default_rng(client))

    return message


def test_the_coordinates_with_the_most_marks_are_elected_and_the_vote_is_charged_as_round_0() -> None:
    charged: list[int] = []
    server, coding = voting(charged.append)
    cohort, _ = server.draw(server.init(START), VOTE)

    result = drive(hold_vote(server, START), sending(coding, ballots(server)))

    assert np.flatnonzero(result.state["importance"]).tolist() == [2, 4, 7]
    assert charged == [0]
    assert result.cohort == result.total.senders == len(cohort)
    assert result.total.bytes_down == 32 * len(cohort), "w_0 follows from the seed; only the terms travel"


def test_a_vote_repeats_bit_for_bit_under_its_seed() -> None:
    sets = []
    for _ in range(2):
        server, coding = voting(noise=2.0)
        sets.append(drive(hold_vote(server, START), sending(coding, ballots(server))).state["importance"])

    assert np.array_equal(*sets)


def test_a_message_weighs_what_the_vote_is_charged_for() -> None:
    server, coding = voting()

    weights = [float(np.linalg.norm(ballots(server)(client))) for client in range(4)]

    assert weights == pytest.approx([coding.plan.request.clip_norm] * 4)
    assert coding.plan.request.clip_norm == pytest.approx(np.sqrt(KEPT))


def test_a_client_whose_gradient_exploded_does_not_vote() -> None:
    server, _ = voting()

    with pytest.raises(RunError, match="importance has values that are not finite"):
        server.scheme.encode(np.array([np.nan] + [1.0] * 11, np.float32), 0, np.random.default_rng(0))


def test_a_vote_with_too_few_ballots_releases_nothing_and_is_not_charged() -> None:
    charged: list[int] = []
    server, coding = voting(charged.append)
    gone = server.draw(server.init(START), VOTE)[0][0]
    clients = sending(coding, ballots(server))

    def answer(request: Request, client: int) -> bytes:
        if client == gone:
            raise GoneError
        return clients(request, client)

    with pytest.raises(RunError, match=r"the vote for the coordinates failed: too few clients stayed to the end"):
        drive(hold_vote(server, START), answer)
    assert charged == []


class Quadratic:
    """Have the gradient w - mean(x), so that importances can be told by hand."""

    def gradient(self, params: NDArray[Any], shard: Shard) -> NDArray[Any]:
        return (params - shard.x.mean(axis=0)).astype(np.float32)

    def updates(self, *_: Any) -> Any:
        raise NotImplementedError

    def scores(self, *_: Any) -> Any:
        raise NotImplementedError


def test_a_voter_adds_up_its_own_gradients_as_the_server_does_on_public_data() -> None:
    training = LocalTraining(local_steps=3, batch_size=None, client_lr=0.5)
    voter = Vote(kept=KEPT, training=training).voter(Quadratic())
    shards = [Shard(np.random.default_rng(k).random((6, DIM)), np.zeros(6)) for k in range(2)]
    rngs = [np.random.default_rng(k) for k in range(2)]

    rows = voter.updates(START, shards, rngs)

    for row, shard in zip(rows, shards, strict=True):
        twin = importance(lambda at, step, shard=shard: Quadratic().gradient(at, shard), START, 3, 0.5)
        assert np.allclose(row, twin)
        assert np.allclose(row, np.abs(shard.x.mean(axis=0)) * (1 + 0.5 + 0.25), rtol=1e-5)
