"""Share secrets of 256 bits so that any t shares give them back and any t-1 say nothing at all (Shamir 1979).

The field is that of the prime 2^256 + 297, the smallest above 2^256. Points are small (a client's place in the cohort),
so polynomials are evaluated over the plain integers, several at once in slots of one long integer, and reduced at
the end: Python's integers do 67 steps for 100 points in well under a millisecond a secret.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from sottovoce.core.errors import InputError, SecAggError
from sottovoce.secagg.primitives import Entropy

__all__ = ["NO_SHARE", "PRIME", "SHARE", "read_share", "reconstruct", "split", "write_share"]

PRIME: Final = (1 << 256) + 297
SHARE: Final = 33  # bytes of one share: 257 bits
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
