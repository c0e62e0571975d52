"""Any t shares give the secret, any t-1 say nothing."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sottovoce.core.errors import InputError, SecAggError
from sottovoce.secagg import KeyedEntropy, shamir
from sottovoce.secagg.shamir import PRIME

SECRETS = st.integers(0, (1 << 256) - 1)


def evaluate(coefficients: list[int], point: int) -> int:
    """Be the obvious twin: a polynomial modulo the prime."""
    return sum(c * pow(point, power, PRIME) for power, c in enumerate(coefficients)) % PRIME


def test_the_modulus_is_prime_and_above_two_to_the_256() -> None:
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    draws = random.Random(1)
    for _ in range(40):  # Miller-Rabin: a composite passes with probability below 4^-40
        value = pow(draws.randrange(2, PRIME - 1), odd, PRIME)
        assert value in (1, PRIME - 1) or any(pow(value, 2**k, PRIME) == PRIME - 1 for k in range(1, twos))
    assert PRIME > 1 << 256


@settings(max_examples=50, deadline=None)
@given(secret=SECRETS, other=SECRETS, threshold=st.integers(1, 8), extra=st.integers(0, 4), seed=st.integers(0, 255))
def test_any_t_shares_give_the_secret(secret: int, other: int, threshold: int, extra: int, seed: int) -> None:
    points = [3 * index + 1 for index in range(threshold + extra)]
    shares = shamir.split([secret, other], threshold, points, KeyedEntropy(bytes([seed]) * 32))

    for chosen in itertools.islice(itertools.combinations(points, threshold), 10):
        assert shamir.reconstruct({point: shares[point][0] for point in chosen}, threshold) == secret
        assert shamir.reconstruct({point: shares[point][1] for point in chosen}, threshold) == other


def test_shares_are_the_values_of_a_polynomial_modulo_the_prime() -> None:
    entropy = KeyedEntropy(bytes(32))
    coefficients = [[7, *shamir._uniform(66, entropy)], [9, *shamir._uniform(66, entropy)]]

    shares = shamir.split([7, 9], 67, range(1, 101), KeyedEntropy(bytes(32)))

    for point in (1, 2, 50, 100):
        assert shares[point] == [evaluate(coefficients[0], point), evaluate(coefficients[1], point)]


@settings(max_examples=50, deadline=None)
@given(secret=SECRETS, candidate=SECRETS, threshold=st.integers(2, 8), seed=st.integers(0, 255))
def test_any_t_minus_one_shares_fit_every_secret(secret: int, candidate: int, threshold: int, seed: int) -> None:
    points = range(1, threshold + 3)
    shares = shamir.split([secret], threshold, points, KeyedEntropy(bytes([seed]) * 32))
    for chosen in itertools.islice(itertools.combinations(points, threshold - 1), 5):
        known = {point: shares[point][0] for point in chosen}
        missing = next(point for point in points if point not in chosen)

        # The one share that would turn these t-1 into shares of the candidate exists and is a number of the field.
        weight = reconstruct_weight({**known, missing: 0}, missing)
        fitting = (candidate - shamir.reconstruct({**known, missing: 0}, threshold)) * pow(weight, -1, PRIME) % PRIME

        assert shamir.reconstruct({**known, missing: fitting}, threshold) == candidate


def reconstruct_weight(shares: dict[int, int], point: int) -> int:
    zeros = dict.fromkeys(shares, 0)
    return shamir.reconstruct({**zeros, point: 1}, len(shares))


def test_a_single_share_does_not_depend_on_the_secret() -> None:
    """False alarms: one in a million (chi-square on 16 cells); the shares of a 1-of-n sharing must fail."""

    def p_value(threshold: int) -> float:
        entropy = KeyedEntropy(b"\1" * 32)
        draws = [shamir.split([5], threshold, [1, 2], entropy)[1][0] * 16 // PRIME for _ in range(4000)]
        return float(stats.chisquare(np.bincount(draws, minlength=16)).pvalue)

    assert p_value(threshold=2) > 1e-6
    assert p_value(threshold=1) < 1e-6


def test_coefficients_fill_the_field_and_stay_inside() -> None:
    values = shamir._uniform(3000, KeyedEntropy(b"\2" * 32))

    assert max(values) < PRIME
    assert abs(np.mean([value / PRIME for value in values]) - 0.5) < 0.03  # 5.7 standard deviations


def test_too_few_shares_are_refused() -> None:
    with pytest.raises(SecAggError, match="2 shares of a secret, but 3 are needed"):
        shamir.reconstruct({1: 5, 2: 6}, 3)


@pytest.mark.parametrize("raw", [bytes(32), bytes(34), PRIME.to_bytes(33, "little"), b"\xff" * 33])
def test_a_share_outside_the_field_is_refused(raw: bytes) -> None:
    with pytest.raises(SecAggError, match="not a number of the field"):
        shamir.read_share(raw)


@pytest.mark.parametrize(("threshold", "points"), [(0, [1]), (3, [1, 2]), (2, [1, 1]), (2, [0, 1])])
def test_impossible_sharings_are_refused(threshold: int, points: list[int]) -> None:
    with pytest.raises(InputError):
        shamir.split([1], threshold, points, KeyedEntropy(bytes(32)))
