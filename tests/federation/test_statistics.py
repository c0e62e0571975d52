"""Who makes the "updates" of a scheme: a trainer, a voter, or somebody who only counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from sottovoce.federation.stages.statistics import Statistician, trainer_for
from sottovoce.federation.stages.vote import Vote
from sottovoce.models import LocalTraining, Shard, make_trainer, network
from sottovoce.schemes import make

NET = network("logistic", (2, 2, 1), 3)
TRAINER = make_trainer(NET, LocalTraining())


def test_only_schemes_that_do_not_train_get_another_trainer() -> None:
    once = make("fl-once").fit(NET.layout).bind(NET.dim)
    vote = Vote(kept=2, training=LocalTraining()).bind(NET.dim)

    assert trainer_for(make("fl-std").bind(NET.dim), NET, TRAINER) is TRAINER
    assert isinstance(trainer_for(once, NET, TRAINER), Statistician)
    assert type(trainer_for(vote, NET, TRAINER)) is type(vote.voter(TRAINER))


def test_statistics_are_of_records_as_the_network_reads_them() -> None:
    scheme = make("fl-once", record_norm=2.0).fit(NET.layout).bind(NET.dim)
    pixels = np.array([[[[255], [0]], [[51], [0]]], [[[0], [102]], [[0], [255]]]], np.uint8)
    shard = Shard(pixels, np.array([0, 2]))
    rng: Any = None  # nothing is drawn

    [found] = trainer_for(scheme, NET, TRAINER).updates(np.zeros(NET.dim, np.float32), [shard], [rng])

    assert np.allclose(found, scheme.statistics((pixels / 255).astype(np.float32), shard.y))


def test_a_client_counts_the_same_alone_and_in_company() -> None:
    scheme = make("fl-once").fit(NET.layout).bind(NET.dim)
    rng = np.random.default_rng(0)
    shards = [Shard(rng.integers(0, 256, (5, 2, 2, 1), np.uint8), rng.integers(0, 3, 5)) for _ in range(3)]
    start = np.zeros(NET.dim, np.float32)
    counting = trainer_for(scheme, NET, TRAINER)

    together = list(counting.updates(start, shards, [rng] * 3))

    for shard, found in zip(shards, together, strict=True):
        assert np.array_equal(next(counting.updates(start, [shard], [rng])), found)
