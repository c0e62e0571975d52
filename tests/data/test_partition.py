from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Streams
from sottovoce.data import KINDS, Partition, Shards, Virtual, partition
from sottovoce.data.dealing import _shares

MATERIALISED = [kind for kind in KINDS if kind != "virtual"]


def deal(kind: str, labels: np.ndarray, clients: int, seed: int = 1, concentration: float = 0.5) -> Partition:
    ids = np.arange(len(labels)) // 2 if kind == "by-id" else None
    return partition(kind, labels, clients, Streams(seed), concentration=concentration, shards_per_client=1, ids=ids)


@st.composite
def tasks(draw: st.DrawFn) -> tuple[str, np.ndarray, int]:
    kind = draw(st.sampled_from(MATERIALISED))
    labels = np.array(draw(st.lists(st.integers(0, 4), min_size=2, max_size=80)))
    most = {"by-id": (len(labels) + 1) // 2, "hospitals": int((labels == 1).sum())}.get(kind, len(labels))
    if most == 0:
        labels[0], most = 1, 1
    return kind, labels, draw(st.integers(1, most))


@settings(max_examples=150, deadline=None)
@given(task=tasks(), seed=st.integers(0, 9), log_concentration=st.floats(-6, 6))
def test_every_record_has_one_owner_and_nobody_is_empty(
    task: tuple[str, np.ndarray, int], seed: int, log_concentration: float
) -> None:
    kind, labels, clients = task

    dealt = deal(kind, labels, clients, seed, concentration=10.0**log_concentration)

    shares = [dealt.records(client) for client in range(clients)]
    assert min(len(share) for share in shares) >= 1
    assert sorted(np.concatenate(shares)) == list(range(len(labels)))
    assert [dealt.size(client) for client in range(clients)] == [len(share) for share in shares]
    assert dealt.sizes.smallest == min(map(len, shares))
    assert dealt.sizes.largest == max(map(len, shares))
    assert dealt.total == len(labels)
    assert dealt.mean_size == len(labels) / clients


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_deals_the_same_way_and_another_does_not(kind: str) -> None:
    labels = np.arange(200) % 5

    first, again, other = (deal(kind, labels, 10, seed) for seed in (3, 3, 4))

    same = [first.records(k).tolist() == again.records(k).tolist() for k in range(10)]
    assert all(same)
    assert any(first.records(k).tolist() != other.records(k).tolist() for k in range(10))


@pytest.mark.parametrize("kind", MATERIALISED)
def test_more_clients_than_records_is_one_sentence_with_the_way_out(kind: str) -> None:
    with pytest.raises(InputError, match=r"clients must be at most .* got 11; ask for fewer") as caught:
        deal(kind, np.ones(10, np.int64), 11)

    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert 'partition = "virtual"' in str(caught.value)


def test_equal_shares_differ_by_at_most_one_record() -> None:
    for kind in ("iid", "shards", "hospitals"):
        sizes = deal(kind, np.arange(103) % 2, 10).sizes
        assert sizes.largest - sizes.smallest <= 1


def test_records_per_client_cuts_iid_shares_to_exactly_that() -> None:
    dealt = partition("iid", np.zeros(100, np.int64), 7, Streams(1), records_per_client=10)

    assert dealt.sizes == (10, 10.0, 10)
    assert dealt.total == 70
    with pytest.raises(InputError, match="need 110 train records, there are 100"):
        partition("iid", np.zeros(100, np.int64), 11, Streams(1), records_per_client=10)
    with pytest.raises(InputError, match="records_per_client is for"):
        partition("shards", np.zeros(100, np.int64), 2, Streams(1), records_per_client=10)


def test_a_label_shard_client_sees_few_classes() -> None:
    labels = np.repeat(np.arange(10), 100)

    dealt = partition("shards", labels, 50, Streams(1), shards_per_client=2)

    assert max(len(np.unique(labels[dealt.records(k)])) for k in range(50)) <= 2


def test_a_smaller_concentration_makes_clients_more_uneven() -> None:
    labels = np.repeat(np.arange(10), 600)

    def classes_seen(concentration: float) -> float:
        dealt = partition("dirichlet", labels, 60, Streams(1), concentration=concentration)
        return float(np.mean([len(np.unique(labels[dealt.records(k)])) for k in range(60)]))

    assert classes_seen(0.05) < 5 < 9 < classes_seen(100)


def test_dirichlet_shares_have_the_moments_of_the_distribution() -> None:
    # Variance of one share: (1/n)(1 - 1/n) / (n a + 1). 4000 draws of 8 dependent shares put the estimate well within
    # 10 % (false alarms below 1e-6), while a concentration wrong by 3/2 is off by 30 % or more.
    n, concentration = 8, 0.7
    rng = np.random.default_rng(1)

    draws = np.array([_shares(n, concentration, rng) for _ in range(4000)])

    def expected(a: float) -> float:
        return (1 / n) * (1 - 1 / n) / (n * a + 1)

    assert abs(draws.var() / expected(concentration) - 1) < 0.1
    for wrong in (2 / 3, 3 / 2):
        assert abs(draws.var() / expected(wrong * concentration) - 1) > 0.1


def test_the_poor_are_fed_by_the_richest() -> None:
    labels = np.zeros(100, np.int64)

    # One client draws practically everything; nine others must not stay empty.
    dealt = partition("dirichlet", labels, 10, Streams(1), concentration=1e-6)

    assert dealt.sizes == (1, 1.0, 91)


def test_an_owner_is_never_split() -> None:
    ids = np.random.default_rng(1).integers(0, 40, 300)

    dealt = partition("by-id", np.zeros(300, np.int64), 7, Streams(1), ids=ids)

    homes = [set(ids[dealt.records(k)]) for k in range(7)]
    assert sum(map(len, homes)) == len(set(ids))
    assert max(map(len, homes)) - min(map(len, homes)) <= 1


def test_by_id_needs_owners() -> None:
    with pytest.raises(InputError, match="knows its owners"):
        partition("by-id", np.zeros(5, np.int64), 2, Streams(1))


def test_every_hospital_has_a_positive() -> None:
    labels = (np.random.default_rng(1).random(5000) < 0.02).astype(np.uint8)
    positives = int(labels.sum())

    dealt = partition("hospitals", labels, positives, Streams(1))

    assert all(labels[dealt.records(k)].sum() == 1 for k in range(positives))
    with pytest.raises(InputError, match=f"at most the {positives} records of class 1"):
        partition("hospitals", labels, positives + 1, Streams(1))


def test_unknown_kind_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'dirichlet'"):
        partition("dirichle", np.zeros(5, np.int64), 2, Streams(1))


@pytest.mark.parametrize("concentration", [0.0, -1.0, float("nan"), float("inf")])
def test_a_concentration_out_of_range_is_refused(concentration: float) -> None:
    with pytest.raises(InputError, match="concentration must be in"):
        partition("dirichlet", np.zeros(5, np.int64), 2, Streams(1), concentration=concentration)


@settings(deadline=None)
@given(pool=st.integers(1, 100_000), each=st.integers(1, 50), client=st.integers(0, 10**9 - 1))
def test_a_virtual_client_draws_different_records_the_same_each_time(pool: int, each: int, client: int) -> None:
    each = min(each, pool)
    dealt = Virtual(pool=pool, clients=10**9, each=each, seed=5)

    records = dealt.records(client)

    assert records.dtype == np.int64
    assert len(set(records.tolist())) == each == dealt.size(client)
    assert 0 <= records.min() <= records.max() < pool
    assert records.tolist() == Virtual(pool, 10**9, each, 5).records(client).tolist()


def test_virtual_clients_cover_the_pool_evenly() -> None:
    # 2000 clients x 10 of 100 records: a record is drawn 200 times on average, standard deviation 13.4; six of them
    # are exceeded for one of 100 records with probability below 1e-6.
    dealt = Virtual(pool=100, clients=2000, each=10, seed=1)

    counts = np.bincount(np.concatenate([dealt.records(k) for k in range(2000)]), minlength=100)

    assert np.abs(counts - 200).max() < 6 * 13.4


@settings(deadline=None)
@given(pools=st.integers(1, 12), more=st.integers(0, 12), each=st.integers(1, 5), client=st.integers(0, 999))
def test_a_virtual_client_draws_from_its_own_pool_alone(pools: int, more: int, each: int, client: int) -> None:
    dealt = Virtual(pool=pools * each + more, clients=1000, each=each, seed=5, pools=pools)

    records = dealt.records(client)

    assert len(set(records.tolist())) == each
    assert set(records % pools) == {client % pools}
    assert 0 <= records.min() <= records.max() < dealt.pool


def test_virtual_clients_cover_every_pool_to_its_end() -> None:
    dealt = Virtual(pool=11, clients=300, each=2, seed=1, pools=3)

    assert set(np.concatenate([dealt.records(k) for k in range(300)]).tolist()) == set(range(11))


def test_one_pool_is_the_partition_that_there_was_before() -> None:
    assert Virtual(pool=60_000, clients=10**6, each=4, seed=1).records(77).tolist() == [1663, 4587, 43670, 34748]


def test_more_records_than_a_pool_has_are_refused() -> None:
    with pytest.raises(InputError, match=r"records_per_client must be in \[1, 33\]"):
        Virtual(pool=100, clients=10, each=34, seed=1, pools=3)


@pytest.mark.parametrize("client", [-1, 10])
def test_a_client_that_does_not_exist_is_refused(client: int) -> None:
    for kind in ("iid", "virtual"):
        dealt = deal(kind, np.zeros(100, np.int64), 10)
        with pytest.raises(InputError, match=r"client must be in \[0, 9\]"):
            dealt.records(client)
        with pytest.raises(InputError, match=r"client must be in \[0, 9\]"):
            dealt.size(client)


def test_shards_are_views_of_the_two_arrays_they_were_given() -> None:
    order, offsets = np.array([3, 1, 2]), np.array([0, 2, 3])

    shards = Shards(order, offsets)

    assert shards.order is order
    assert np.shares_memory(shards.records(0), order)
    with pytest.raises(InputError, match="offsets must go from 0 to the 3 records"):
        Shards(order, np.array([0, 2]))


@pytest.mark.parametrize("kind", MATERIALISED)
def test_six_thousand_clients_are_dealt_within_a_second(kind: str) -> None:
    labels = np.random.default_rng(1).integers(0, 10, 60_000)
    # Processor time of the best of three: the machine may be busy with other things.
    spent = []
    for _ in range(3):
        start = time.process_time()
        deal(kind, labels, 5000, concentration=0.01)
        spent.append(time.process_time() - start)

    assert min(spent) < 1
