"""Clients that dealt shares for the costly case held the server up for 39 seconds each (141 clients, threshold 139)."""

from __future__ import annotations

import math
import os
from itertools import count

import pytest

from sottovoce.secagg import shamir


def misdealt(points: int, threshold: int) -> tuple[int, dict[int, int]]:
    """Return a secret and shares of it of which as many as can be are wrong, those that are tried first."""
    secret = int.from_bytes(os.urandom(32), "little")
    dealt = shamir.split([secret], threshold, range(1, points + 1), os.urandom)
    wrong = points - threshold
    return secret, {point: (share + (point <= wrong)) % shamir.PRIME for point, (share,) in dealt.items()}


@pytest.mark.parametrize(("points", "threshold"), [(141, 139), (100, 98), (60, 58), (18, 13), (200, 199)])
def test_a_dealer_buys_no_more_than_a_bounded_number_of_products(
    monkeypatch: pytest.MonkeyPatch, points: int, threshold: int
) -> None:
    tried, plain = count(), shamir._lagrange.__wrapped__

    def counted(some: tuple[int, ...]) -> tuple[int, ...]:
        next(tried)
        return plain(some)

    monkeypatch.setattr(shamir._lagrange, "__wrapped__", counted)
    secret, shares = misdealt(points, threshold)

    found = shamir.correct(shares, threshold, lambda value: value == secret)

    assert next(tried) * threshold**2 <= 2_000_000
    assert found in (secret, None)


@pytest.mark.parametrize(("points", "threshold"), [(4, 3), (9, 7), (12, 9), (15, 11), (18, 13), (25, 23)])
def test_in_small_cohorts_as_many_as_may_be_missing_can_be_wrong(points: int, threshold: int) -> None:
    secret, shares = misdealt(points, threshold)

    assert shamir.correct(shares, threshold, lambda value: value == secret) == secret
    assert math.comb(points, threshold) * threshold**2 <= 2_000_000
