"""Share secrets of 256 bits so that any t shares give them back and any t-1 say nothing at all (Shamir 1979).

The field is that of the prime 2^256 + 297, the smallest above 2^256. Points are small (a client's place in the cohort),
so polynomials are evaluated over the plain integers, several at once in slots of one long integer, and reduced at
the end: Python's integers do 67 steps for 100 points in well under a millisecond a secret.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Final

from sottovoce.core.errors import InputError, SecAggError
from sottovoce.secagg.primitives import Entropy

PRIME: Final = (1 << 256) + 297
SHARE: Final = 33  # bytes of one share: 257 bits
_MOST_WORK: Final = 2_000_000  # products, half a second: what a dealer of wrong shares may cost the server
NO_SHARE: Final = b"\xff" * SHARE  # told in the place of a share that never arrived; no number of the field


def split(secrets: Sequence[int], threshold: int, points: Sequence[int], entropy: Entropy) -> dict[int, list[int]]:
    """Return, for each point, its share of every secret.

    Guarantee: the shares of fewer than `threshold` points are independent of the secrets, exactly.
    """
    if len(set(points)) != len(points) or min(points) < 1:
        raise InputError("points of a sharing must be distinct and positive")
    if not 1 <= threshold <= len(points):
        raise InputError(f"threshold must be in [1, {len(points)}], got {threshold}")
    # A value stays below PRIME * threshold * (largest point)^(threshold - 1), so slots never touch.
    slot = 257 + threshold.bit_length() + (threshold - 1) * max(points).bit_length()
    window = (1 << slot) - 1
    columns = zip(*([secret, *_uniform(threshold - 1, entropy)] for secret in secrets), strict=True)
    packed = [sum(value << (slot * place) for place, value in enumerate(column)) for column in columns]
    packed.reverse()
    shares = {}
    for point in points:
        value = 0
        for coefficient in packed:
            value = value * point + coefficient
        shares[point] = [(value >> (slot * place) & window) % PRIME for place in range(len(secrets))]
    return shares


def reconstruct(shares: Mapping[int, int], threshold: int) -> int:
    """Return the secret that the first `threshold` points determine; the coefficients of a set of points are kept."""
    points = tuple(sorted(shares))[:threshold]
    if len(points) < threshold:
        raise SecAggError(f"{len(points)} shares of a secret, but {threshold} are needed to open it")
    return sum(factor * shares[point] for factor, point in zip(_lagrange(points), points, strict=True)) % PRIME


def fit_together(shares: Mapping[int, int], threshold: int) -> bool:
    """Tell whether all shares are of one sharing; of others this says so with probability 2^-256.

    The shares are a word of a Reed-Solomon code, and a random word of the dual code is orthogonal to no other.
    """
    points = tuple(sorted(shares))
    factors = _check(points, threshold)
    return sum(factor * shares[point] for factor, point in zip(factors, points, strict=True)) % PRIME == 0


def correct(shares: Mapping[int, int], threshold: int, opens: Callable[[int], bool]) -> int | None:
    """Return the secret of a sharing of which some points are wrong, or None if it is not found.

    Found if at most (points - threshold) / 2 are wrong (Gao 2003); in cohorts whose subsets can all be tried, if
    `threshold` are right. `opens` tells whether a value is the secret.
    """
    points = tuple(sorted(shares))
    secret = _decode(points, [shares[point] for point in points], threshold)
    if secret is not None and opens(secret):
        return secret
    if math.comb(len(points), threshold) * threshold**2 > _MOST_WORK:
        return None
    for some in combinations(points, threshold):
        factors = _lagrange.__wrapped__(some)
        secret = sum(factor * shares[point] for factor, point in zip(factors, some, strict=True)) % PRIME
        if opens(secret):
            return secret
    return None


def write_share(value: int) -> bytes:
    """Return a share as 33 bytes."""
    return value.to_bytes(SHARE, "little")


def read_share(raw: bytes | memoryview) -> int:
    """Return a share from its 33 bytes; a value outside the field is refused."""
    value = int.from_bytes(raw, "little")
    if len(raw) != SHARE or value >= PRIME:
        raise SecAggError("a share is not a number of the field")
    return value


def _uniform(count: int, entropy: Entropy) -> list[int]:
    """Draw field elements by rejection: half of all 257-bit draws are kept, and the kept ones are exactly uniform."""
    values: list[int] = []
    while len(values) < count:
        missing = count - len(values)
        raw = entropy(SHARE * (2 * missing + 8))
        for start in range(0, len(raw), SHARE):
            value = int.from_bytes(raw[start : start + SHARE], "little") >> 7
            if value < PRIME:
                values.append(value)
    return values[:count]


@lru_cache(maxsize=1024)
def _lagrange(points: tuple[int, ...]) -> tuple[int, ...]:
    """Return the weights that take values at `points` to the value at zero; points are public and safe to keep."""
    everything = math.prod(points)
    factors = []
    for point in points:
        below = point * math.prod(other - point for other in points if other != point)
        factors.append(everything * pow(below, -1, PRIME) % PRIME)
    return tuple(factors)


@lru_cache(maxsize=1024)
def _check(points: tuple[int, ...], threshold: int) -> tuple[int, ...]:
    """Return a word of the dual code that nobody else knows."""
    chosen = _uniform(len(points) - threshold, os.urandom)
    factors = []
    for point in points:
        below = math.prod(point - other for other in points if other != point)
        factors.append(_evaluate(chosen, point) * pow(below, -1, PRIME) % PRIME)
    return tuple(factors)


def _decode(points: Sequence[int], values: Sequence[int], threshold: int) -> int | None:
    """Return the value at zero of the polynomial that most values are of: the extended Euclidean algorithm of Gao."""
    whole = [1]  # the product of (x - point); polynomials have their lowest coefficient first
    for point in points:
        whole = [(high - point * low) % PRIME for low, high in zip([*whole, 0], [0, *whole], strict=True)]
    through = [0] * len(points)
    for point, value in zip(points, values, strict=True):
        others = _divide(whole, [-point % PRIME, 1])[0]
        factor = value * pow(_evaluate(others, point), -1, PRIME)
        through = [(sum_ + factor * part) % PRIME for sum_, part in zip(through, others, strict=True)]
    before, now = whole, _trim(through)
    older, newer = [0], [1]
    while 2 * (len(now) - 1) >= len(points) + threshold:
        quotient, rest = _divide(before, now)
        product = [0] * (len(quotient) + len(newer) - 1)
        for at, left in enumerate(quotient):
            for to, right in enumerate(newer):
                product[at + to] += left * right
        older += [0] * (len(product) - len(older))
        older, newer = newer, _trim([(a - b) % PRIME for a, b in zip(older, product, strict=True)])
        before, now = now, rest
    found, rest = _divide(now, newer)
    return found[0] if rest == [0] and len(found) <= threshold else None


def _divide(above: Sequence[int], below: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return quotient and rest of two polynomials."""
    rest, inverse = list(above), pow(below[-1], -1, PRIME)
    quotient = [0] * max(1, len(above) - len(below) + 1)
    for at in range(len(above) - len(below), -1, -1):
        quotient[at] = factor = rest[at + len(below) - 1] * inverse % PRIME
        for step, coefficient in enumerate(below):
            rest[at + step] = (rest[at + step] - factor * coefficient) % PRIME
    return quotient, _trim(rest)


def _evaluate(polynomial: Sequence[int], point: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * point + coefficient) % PRIME
    return value


def _trim(polynomial: list[int]) -> list[int]:
    """Return a polynomial without leading zeros; zero itself keeps one."""
    while len(polynomial) > 1 and not polynomial[-1]:
        polynomial.pop()
    return polynomial
