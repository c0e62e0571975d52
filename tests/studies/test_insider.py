"""The federation that is watched is the one that runs, and client 0 sees of it what a client sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sottovoce.assembly.stages import ServerSide
from sottovoce.checks.twin import few, play
from sottovoce.core.streams import Purpose, Seeds, Streams
from sottovoce.core.vectors import Vector
from sottovoce.federation.coding import Terms
from sottovoce.models import Shard, Trainer, make_trainer
from sottovoce.studies.property import others_part, others_vote
from sottovoce.studies.setting import INSIDER, Deal, Seen, Update, prepare, public_of, watch
from tests.studies.tiny import people, tables

PRIVACY = {"noise_multiplier": 2.0, "delta": 1e-2, "clip_norm": 0.1, "accountant": "rdp", "unsafe_public": True}
ADAPTIVE = {**PRIVACY, "clipping": "adaptive", "count_stddev": 2.0}
SIGNS = {"noise_multiplier": 2.0, "delta": 1e-2, "accountant": "rdp"}


def honest(ready: ServerSide) -> tuple[Trainer, Deal, Update]:
    """Return clients that train as in any run: on all of their own records."""
    parts = ready.protection.parts
    trainer = make_trainer(parts.network, parts.training())

    def deal(round_: int, client: int) -> Shard:
        records = parts.partition.records(client)
        return Shard(parts.dataset.x_train[records], parts.dataset.y_train[records])

    def update(round_: int, params: Vector, trainable: NDArray[np.bool_] | None) -> Vector:
        rng = parts.seeds.client(INSIDER).get(Purpose.BATCH, round_)
        return next(trainer.updates(params, [deal(round_, INSIDER)], [rng], trainable))

    return trainer, deal, update


@pytest.mark.parametrize(
    ("scheme", "more"),
    [
        ("fl-std", {}),
        ("fl-sign", {}),
        ("sign-sgd", {}),
        ("fl-top", {}),
        ("fl-std", {"aggregation": {"secure": "real"}}),
        ("fl-std", {"privacy": PRIVACY}),
        ("fl-sign", {"privacy": SIGNS}),
        ("fl-std", {"privacy": ADAPTIVE, "aggregation": {"secure": "real"}}),
    ],
    ids=str,
)
def test_a_federation_that_is_watched_is_the_one_that_runs(scheme: str, more: dict[str, Any]) -> None:
    # Clients with equally many records: whoever is watched does not weigh them.
    data = {"clients": 3, "records_per_client": 40}
    experiment = few(scheme, experiment={"rounds": 4}, cohort={"sampling": "fixed"}, data=data, **more)

    played = play(experiment, rounds=4)
    ready = prepare(experiment)
    seen = list(watch(ready, *honest(ready)))

    assert [one.round for one in seen] == [1, 2, 3, 4]
    for before, after, one in zip(played.models, played.models[1:], seen, strict=False):
        np.testing.assert_array_equal(one.before, before)
        np.testing.assert_array_equal(one.after, after)


def test_a_round_as_seen_has_nothing_of_anybody_else() -> None:
    assert Seen._fields == ("round", "terms", "before", "own", "after")


@pytest.mark.parametrize("privacy", [None, PRIVACY])
def test_what_everybody_knows_holds_no_seed(privacy: dict[str, Any] | None) -> None:
    public = public_of(prepare(tables(**({} if privacy is None else {"privacy": privacy})), people()))
    held, looked_at = [public], set()
    while held:
        thing: Any = held.pop()
        assert not isinstance(thing, Seeds | Streams)
        if id(thing) in looked_at or not type(thing).__module__.startswith("sottovoce"):
            continue
        looked_at.add(id(thing))
        held += list(getattr(thing, "__dict__", {}).values())

    assert len(looked_at) > 3


def others_sums(ready: ServerSide, seen: list[Seen]) -> list[Vector]:
    """Return what the others really added in each round, from their own records and noise."""
    parts, public = ready.protection.parts, public_of(ready)
    trainer, deal, _ = honest(ready)
    sums = []
    for one in seen:
        seed, total = public.scheme.round_seed(one.round), np.zeros(public.scheme.length, np.float32)
        for client in range(1, parts.cohort.clients):
            own = parts.seeds.client(client)
            shard, rng = deal(one.round, client), own.get(Purpose.BATCH, one.round)
            (update,) = trainer.updates(one.before, [shard], [rng], public.scheme.trainable(seed))
            message = public.scheme.encode(update, seed, own.get(Purpose.ENCODE, one.round))
            total += public.contribution(message, one.terms, own.key(Purpose.NOISE, one.round))
        sums.append(total)
    return sums


@pytest.mark.parametrize("scheme", ["fl-std", "fl-top", "fl-rnd"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"server": {"lr": 0.7, "momentum": 0.5, "schedule": "linear"}},
        {"privacy": PRIVACY},
        {"privacy": ADAPTIVE},
        {"aggregation": {"secure": "ideal"}},
    ],
    ids=str,
)
def test_the_insider_knows_what_the_others_added_together(scheme: str, more: dict[str, Any]) -> None:
    if scheme == "fl-rnd" and "server" in more:
        more = {"server": {"lr": 0.7}}  # momentum is refused: other coordinates in every round
    keys = {"name": scheme} | ({} if scheme == "fl-std" else {"ratio": 0.5})
    data = {"clients": 3, "records_per_client": 60}
    experiment = tables(scheme=keys, experiment={"rounds": 5}, data=data, **more)
    ready = prepare(experiment, people())
    seen = list(watch(ready, *honest(ready)))

    found = [part for _, part in others_part(public_of(ready), seen)]

    for part, truth in zip(found, others_sums(ready, seen), strict=True):
        np.testing.assert_allclose(part, truth, atol=2e-4 * float(np.abs(truth).max()) + 2e-5)


def test_of_fl_cs_the_insider_knows_it_up_to_what_was_not_reconstructed() -> None:
    experiment = tables(scheme={"name": "fl-cs", "ratio": 0.5, "l1": 1e-7}, experiment={"rounds": 6})
    ready = prepare(experiment, people())
    seen = list(watch(ready, *honest(ready)))

    found = [part for _, part in others_part(public_of(ready), seen)]

    likeness = [float(np.corrcoef(a, b)[0, 1]) for a, b in zip(found, others_sums(ready, seen), strict=True)]
    assert min(likeness) > 0.9


@pytest.mark.parametrize("clients", [2, 5])
@pytest.mark.parametrize("privacy", [None, SIGNS])
def test_a_vote_against_ones_own_tells_what_the_others_voted(clients: int, privacy: dict[str, Any] | None) -> None:
    more = {} if privacy is None else {"privacy": privacy}
    data = {"clients": clients, "records_per_client": 60}
    ready = prepare(tables("fl-sign", experiment={"rounds": 30}, data=data, **more), people())
    seen = list(watch(ready, *honest(ready)))

    found = np.concatenate([part for _, part in others_part(public_of(ready), seen)])
    truth = np.concatenate(others_sums(ready, seen))
    own = np.concatenate([one.own for one in seen])

    against = np.sign(found) == -np.sign(own)
    assert (found * truth > 0)[against].all(), "nobody but the others can have cast it"
    assert np.corrcoef(found, truth)[0, 1] > 0.5
    # Far from certain: agreement with one's own is expected of the others too, but weakly.
    assert 0.05 < np.abs(found[~against]).mean() / np.abs(found[against]).mean() < 0.7


def test_the_expected_part_of_the_others_is_that_of_a_normal_sum() -> None:
    """Against draws: others ~ N(0, s^2) with s^2 = n - 1 = 4. Five standard errors."""
    public = public_of(prepare(tables("fl-sign", data={"clients": 5, "records_per_client": 60}), people()))
    others = 2 * np.random.default_rng(1).standard_normal(400_000).astype(np.float32)
    for own in (-1.0, 1.0, 2.5):
        votes = np.sign(own + others)
        seen = Seen(1, Terms(5, 0.0), others, np.full(2, own, np.float32), others)

        found = others_vote(public, np.array([-1, 1], np.float32), seen)

        for vote, value in zip((-1, 1), found, strict=True):
            drawn = others[votes == vote]
            assert abs(drawn.mean() - value) < 5 * drawn.std() / len(drawn) ** 0.5
