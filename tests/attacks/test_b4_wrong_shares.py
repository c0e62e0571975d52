"""One wrong share ended every round, and an innocent client was named for it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from sottovoce.core.errors import SecAggError
from sottovoce.secagg import dealing, messages, primitives, shamir
from tests.secagg.conftest import Cohort
from tests.secagg.transcripts import LIVES, Transcript

both = pytest.mark.parametrize("life", LIVES)
Lie = Callable[[], Any]


class Liars(Transcript):
    """A cohort in which some deal what they please (`deals`, by client) and some tell what they please."""

    def __init__(self, clients: int, life: str, deals: Mapping[int, Lie] | None = None, **terms: Any) -> None:
        super().__init__(Cohort(clients, **terms), life)
        self.deals = {self.ids[place]: lie for place, lie in (deals or {}).items()}

    def answer(self, phase: str, client: int) -> bytes:
        if phase == ("share" if self.life == "round" else "mask") and client in self.deals:
            with self.deals[client]():
                return super().answer(phase, client)
        return super().answer(phase, client)

    def play(
        self, holders: Mapping[int, Collection[int]] | None = None, gone: Mapping[str, Collection[int]] | None = None
    ) -> Liars:
        """Play a round in which holders tell wrong shares of some owners, and clients leave; all by place."""
        lies = {self.ids[place]: owners for place, owners in (holders or {}).items()}
        self.start(1)
        for phase in ("mask", "consistency"):
            self.step(phase, [self.ids[place] for place in (gone or {}).get(phase, ())])

        def lie(client: int, message: bytes) -> bytes:
            if client not in lies:
                return message
            body = bytearray(message[messages.HEADER : -64])
            for owner in lies[client]:
                place = owner if len(self.around(client)) == len(self.ids) else self.around(client).index(owner)
                body[33 * place + 16] ^= 1  # X25519 does not look at the lowest bits of a key
            return messages.seal_reply(self.session, "unmask", client, bytes(body), self.cohort.signing[client])

        self.step("unmask", [self.ids[place] for place in (gone or {}).get("unmask", ())], alter=lie)
        return self

    def around(self, client: int) -> list[int]:
        place = self.session.position(client)
        return sorted([*self.session.around(place), place])

    def exact(self, without: Collection[int] = ()) -> bool:
        left = [client for place, client in enumerate(self.ids) if place not in without]
        return np.array_equal(self.server.total(), self.cohort.expected(left))

    @property
    def named(self) -> dict[int, str]:
        """Return what the operator is told, by place."""
        return {self.session.position(client): words for client, words in self.server.accused.items()}


def wrong(*holders: int) -> Lie:
    """Deal wrong shares to some, and pledge them."""
    split = shamir.split

    @contextmanager
    def lie() -> Iterator[None]:
        def misdeal(*args: Any) -> Any:
            shares = split(*args)
            for holder in holders:
                shares[holder + 1] = [pow(3, share, shamir.PRIME) for share in shares[holder + 1]]
            return shares

        with patch.object(shamir, "split", misdeal):
            yield

    return lie


def unpledged(*holders: int) -> Lie:
    """Deal other shares to some than were pledged."""
    pledge = dealing.pledge

    @contextmanager
    def lie() -> Iterator[None]:
        def other(session: Any, dealer: int, holder: int, shares: Any) -> bytes:
            told = pledge(session, dealer, holder, shares)
            return bytes(len(told)) if holder in holders else told

        with patch.object(dealing, "pledge", other):
            yield

    return lie


@contextmanager
def another_seed() -> Iterator[None]:
    """Commit to another seed than the one that is dealt."""
    with patch.object(primitives, "commit", lambda seed: bytes(32)):
        yield


# Holders.


@both
@pytest.mark.parametrize("liars", [1, 3])
def test_holders_that_tell_wrong_shares_of_everybody_are_named_and_the_sum_is_opened(life: str, liars: int) -> None:
    """Ten clients, a threshold of seven: as many lie as may be missing."""
    played = Liars(10, life).play({place: range(10) for place in range(liars)})

    assert played.exact()
    assert played.named == dict.fromkeys(range(liars), "told a wrong share of client 5, and of 9 more")


@pytest.mark.parametrize("liar", [0, 4, 9])
@pytest.mark.parametrize("owner", [2, 7])
def test_one_wrong_share_names_its_holder_also_about_a_client_that_dropped(liar: int, owner: int) -> None:
    played = Liars(10, "round").play({liar: [owner]}, {"mask": [7]})

    assert played.exact(without=[7])
    assert played.named == {liar: f"told a wrong share of client {played.ids[owner]}"}


def test_a_wrong_share_in_a_sparse_graph_names_its_holder() -> None:
    played = Liars(60, "round", threshold=55, neighbours=48).start(1)
    owner = played.around(played.ids[0])[1]
    played = Liars(60, "round", threshold=55, neighbours=48).play({0: [owner]})

    assert played.session.degree.neighbours == 48
    assert played.exact()
    assert list(played.named) == [0]


@both
def test_if_too_few_shares_are_left_the_round_ends_under_the_names_of_those_who_lied(life: str) -> None:
    played = Liars(7, life)
    with pytest.raises(
        SecAggError, match=r"5 shares of client 14's secret are needed, and 4 are left: clients \[5\] told"
    ):
        played.play({0: [3]}, {"unmask": [5, 6]})

    assert list(played.named) == [0]
    with pytest.raises(SecAggError, match="there is no total"):
        played.server.total()


# Dealers.


@both
@pytest.mark.parametrize("holders", [[0], [9], [0, 1, 2], [3, 5, 8]])
def test_a_dealer_of_wrong_shares_is_named_and_the_sum_is_opened_by_the_right_ones(
    life: str, holders: list[int]
) -> None:
    played = Liars(10, life, {4: wrong(*holders)}).play()

    assert played.exact()
    assert played.named == {4: "dealt shares that do not fit together"}


def test_a_dealer_that_drops_is_named_and_its_masking_key_is_opened_by_the_right_shares() -> None:
    played = Liars(10, "round", {4: wrong(0, 1)}).play(gone={"mask": [4]})

    assert played.exact(without=[4])
    assert played.named == {4: "dealt shares that do not fit together"}


@both
def test_dealers_and_holders_lie_at_once_and_each_is_named_for_what_it_did(life: str) -> None:
    """Thirteen clients, a threshold of nine: of either dealer's shares nine are right."""
    played = Liars(13, life, {3: wrong(0, 1), 7: wrong(10, 12)})
    played.play({5: [3, 8], 6: [3, 7]})

    assert played.exact()
    assert played.named == {
        3: "dealt shares that do not fit together",
        5: f"told a wrong share of client {played.ids[3]}, and of 1 more",
        6: f"told a wrong share of client {played.ids[3]}, and of 1 more",
        7: "dealt shares that do not fit together",
    }


def test_half_of_what_may_be_missing_is_corrected_in_a_cohort_too_large_to_try_all_subsets() -> None:
    played = Liars(40, "round", {4: wrong(*range(10, 16))}).play()

    assert played.session.threshold == 27
    assert played.exact()
    assert played.named == {4: "dealt shares that do not fit together"}


@both
@pytest.mark.parametrize("lie", [wrong(0, 1, 2, 3), another_seed], ids=["wrong shares", "another seed"])
def test_a_secret_that_nobody_can_open_ends_the_round_under_its_dealers_name_alone(life: str, lie: Lie) -> None:
    """A wrong seed must not come off as a mask that was never put on."""
    played = Liars(10, life, {4: lie})
    with pytest.raises(SecAggError, match="the shares that client 17 dealt do not fit; nothing was released"):
        played.play()

    assert played.named == {4: "dealt shares that do not fit together"}
    with pytest.raises(SecAggError, match="there is no total"):
        played.server.total()


def test_a_masking_key_that_was_never_advertised_does_not_come_off() -> None:
    played = Liars(10, "round", {4: wrong(0, 1, 2, 3)})
    with pytest.raises(SecAggError, match="the shares that client 17 dealt do not fit; nothing was released"):
        played.play(gone={"mask": [4]})


# Between two.


@both
def test_who_was_dealt_another_share_than_was_pledged_is_not_called_a_liar(life: str) -> None:
    played = Liars(10, life, {4: unpledged(2)}).play()

    assert played.exact()
    assert played.named == {
        2: "is at odds with client 17 over a sealed share: one of the two is at fault",
        4: "is at odds with client 11 over a sealed share: one of the two is at fault",
    }


@both
def test_who_is_at_odds_with_more_than_can_lie_is_named_alone(life: str) -> None:
    """Sixteen clients, a threshold of eleven: client 0 complains of everybody, and none of the others is named."""
    played = Liars(16, life).start(1).step("mask").step("consistency")
    liar = played.ids[0]

    def complain(client: int, message: bytes) -> bytes:
        told = message[messages.HEADER :][: shamir.SHARE] + shamir.NO_SHARE * 15 + b"\1"
        sealed = messages.seal_reply(played.session, "unmask", liar, told, played.cohort.signing[liar])
        return sealed if client == liar else message

    played.step("unmask", alter=complain)

    assert played.server.session.threshold == 11
    assert np.array_equal(played.server.total(), played.cohort.expected())
    assert played.server.accused == {liar: "is at odds with 15 clients over sealed shares, and not all of them can lie"}


@both
def test_a_dealer_at_odds_with_more_than_can_lie_ends_the_round_and_clears_its_receivers(life: str) -> None:
    played = Liars(10, life, {4: unpledged(1, 2, 3, 5)})
    with pytest.raises(SecAggError, match=r"7 shares of client 17's .* 6 are left: clients \[8, 11, 14, 20\] say that"):
        played.play()

    assert played.named == {4: "is at odds with 4 clients over sealed shares, and not all of them can lie"}


# Correction.


def test_a_sharing_is_corrected_up_to_its_bound_and_never_to_another_secret() -> None:
    rng = random.Random(24)
    for points, threshold in ((5, 3), (9, 6), (30, 21), (45, 31)):
        for bad in range(points - threshold + 2):
            secret = rng.getrandbits(256)
            dealt = shamir.split([secret], threshold, range(1, points + 1), rng.randbytes)
            shares = {point: value for point, (value,) in dealt.items()}
            assert shamir.fit_together(shares, threshold)
            for point in rng.sample(range(1, points + 1), bad):
                shares[point] = rng.randrange(shamir.PRIME)
            assert shamir.fit_together(shares, threshold) == (bad == 0)
            found = shamir.correct(shares, threshold, lambda value, secret=secret: value == secret)  # type: ignore[misc]
            every = math.comb(points, threshold) <= 10_000
            assert found == (secret if bad <= (points - threshold) / (1 if every else 2) else None)
