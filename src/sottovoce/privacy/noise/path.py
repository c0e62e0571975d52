"""Carry a message over the grid: clip, round, clip again, add the share of noise; and back, for the sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.errors import InputError, RunError
from sottovoce.core.vectors import Vector
from sottovoce.privacy.noise.clipping import norm
from sottovoce.privacy.noise.randomness import Bits
from sottovoce.privacy.noise.sampler import CHUNK, OUT_OF_BITS, SPARE, Words, described, draw
from sottovoce.privacy.noise.table import centred_tables, fraction_tables

COARSE: Final = 8  # binary digits of a centre that tables are made for
_ATTEMPTS: Final = 64
NARROW: Final = 6  # standard deviation, in steps of 2^-COARSE, of the draw that stands for further digits


def protect_floats(
    message: Vector,
    *,
    clip_norm: float,
    radius: float,
    precision: int,
    extra: tuple[float, ...],
    share_variance: Fraction,
    bits: int,
    randomness: Bits,
) -> Words:
    """Return the words of a float message: discrete Gaussians around its clipped image on the grid.

    `extra` are further centres (adaptive clipping's count), already within their own sensitivity.

    Guarantee: the centres of the message, as exact integers in units of 2^-precision, have norm at most `radius`.
    """
    centres = np.empty(message.size + len(extra), np.int32)
    _centres(message, norm(message), clip_norm, radius, precision, centres[: message.size])
    for index, value in enumerate(extra):
        centres[message.size + index] = int(value * 2**precision)  # towards zero: never further out than allowed
    return draw(fraction_tables(share_variance, precision), centres, randomness, modulus_bits=bits)


def protect_rows(
    messages: NDArray[np.float32],
    *,
    clip_norm: float,
    radius: float,
    precision: int,
    share_variance: Fraction,
    bits: int,
    randomness: Sequence[Bits],
) -> tuple[NDArray[np.uint32], int]:
    """Return the words of float messages, a row each as `protect_floats` makes it, and how many were not finite.

    Guarantee: that of `protect_floats`; a message that is not finite counts as zero.
    """
    rows, length = messages.shape
    messages = np.ascontiguousarray(messages, np.float32)
    words = np.empty((rows, length), np.uint32)
    limit = _limit(radius, precision)
    if (library := native.library()) is None or length > CHUNK or limit >= 1 << 53:
        finite = np.asarray(np.isfinite(messages).all(axis=1))
        keys: dict[str, Any] = {"clip_norm": clip_norm, "radius": radius, "precision": precision, "bits": bits}
        for row, message, usable, stream in zip(words, messages, finite, randomness, strict=True):
            message = message if usable else np.zeros(length, np.float32)
            row[:] = protect_floats(message, **keys, extra=(), share_variance=share_variance, randomness=stream)
        return words, int(rows - finite.sum())
    numbers = np.empty((rows, SPARE + length), np.uint64)
    for row, stream in zip(numbers, randomness, strict=True):
        stream.fill(row)
    tables = fraction_tables(share_variance, precision)
    centres = np.empty(length, np.int32)
    lost = library.protect(
        *described(tables, bits),
        *(native.place(messages), rows, length, _unit(radius, precision, clip_norm), clip_norm, float(limit)),
        *(native.place(numbers), SPARE, native.place(centres), native.place(words)),
    )
    if lost < 0:
        raise RunError(OUT_OF_BITS)
    return words, int(lost)


def protect_signs(
    message: NDArray[np.int8], *, radius: float, share_variance: Fraction, bits: int, randomness: Bits
) -> Words:
    """Return the words of a message of signs: discrete Gaussians around +-radius / sqrt(length), no rounding needed.

    Guarantee: the centres have norm at most `radius`, because every value must be +1 or -1.
    """
    if not bool(((message == 1) | (message == -1)).all()):
        raise InputError("signs must be +1 or -1 in every coordinate")
    centre = sign_centre(radius, message.size)
    tables = centred_tables(share_variance, (centre, -centre))
    return draw(tables, (message < 0).astype(np.int32), randomness, modulus_bits=bits)


def sign_centre(radius: float, length: int) -> Fraction:
    """Return radius / sqrt(length), rounded down so that `length` of them are not longer than `radius`."""
    centre = Fraction(min(1.0, radius / math.sqrt(length)))
    while centre * centre * length > Fraction(radius) ** 2:
        centre = Fraction(math.nextafter(float(centre), 0.0))
    return centre


def unit_centres(messages: Vector, *, clip_norm: float, radius: float, precision: int) -> NDArray[np.int32]:
    """Return the centres of some units, a row each: clipped, rounded to steps of 2^-precision, clipped again.

    Guarantee: every row, as exact integers in units of 2^-precision, has norm at most `radius`, and depends on that
    unit's message alone. A message that is not finite counts as zero.
    """
    messages = np.array(messages, np.float32)
    messages[~np.isfinite(messages).all(axis=1)] = 0
    lengths = np.array([norm(message) for message in messages])  # added in one order on every machine
    values = messages.astype(np.float64)
    scales = 2.0**precision * radius / np.maximum(lengths, clip_norm)
    most = math.floor(Fraction(radius) ** 2 * 4**precision)
    centres = np.empty(values.shape, np.int32)
    rows = np.arange(len(values))
    for attempt in range(_ATTEMPTS):
        centres[rows] = np.rint(values[rows] * scales[rows, None])
        squares = (centres[rows].astype(np.int64) ** 2).sum(axis=1)
        rows, squares = rows[squares > most], squares[squares > most]
        if not rows.size:
            return centres
        # Rounding lengthened these. Aim below the limit, and further below it each time.
        scales[rows] *= np.sqrt(most / squares) * (1 - min(0.5, 1e-6 * 2.0**attempt))
    centres[rows] = 0
    return centres


def unit_sign_centre(radius: float, length: int, precision: int) -> int:
    """Return the centre of a unit's sign in steps of 2^-precision: `length` of them are not longer than `radius`."""
    return math.isqrt(math.floor(Fraction(radius) ** 2 * 4**precision / length))


def protect_total(
    total: NDArray[np.int64], *, precision: int, share_variance: Fraction, bits: int, randomness: Bits
) -> Words:
    """Return the words of a site: discrete Gaussians around the exact sum of its units' centres.

    The sum is neither clipped nor rounded: rounding would let one unit move it by more than its own centre. Its digits
    beyond `COARSE` are drawn first, by a narrow discrete Gaussian on the lattice of 2^-COARSE around them, which the
    wide one then centres at (Peikert 2010, Theorem 3.1). With a width of `NARROW` steps the two together are, outcome
    by outcome, one discrete Gaussian of the whole variance within a factor of 1 + e^-700.
    """
    base, rest = total >> precision, (total & ((1 << precision) - 1)).astype(np.int32)
    if precision > COARSE:
        narrow = fraction_tables(Fraction(NARROW**2), precision - COARSE)
        rest = draw(narrow, rest, randomness).view(np.int32)
        share_variance -= Fraction(NARROW**2, 4**COARSE)
        precision = COARSE
    words = draw(fraction_tables(share_variance, precision), rest, randomness, modulus_bits=bits)
    mask = np.int64((1 << bits) - 1)
    return ((base + words.astype(np.int64)) & mask).astype(np.uint32)


def add_noise(total: Words, variance: Fraction, bits: int, randomness: Bits) -> Words:
    """Return `total` plus discrete Gaussian noise, modulo 2^bits."""
    noise = draw(
        centred_tables(variance, (Fraction(0),)), np.zeros(total.size, np.int32), randomness, modulus_bits=bits
    )
    return np.asarray((total + noise) & np.uint32((1 << bits) - 1))


def to_floats(total: Words, *, step: float, bits: int) -> Vector:
    """Return the sum that words modulo 2^bits stand for, the upper half being negative."""
    shift = np.int32(32 - bits)
    signed = (np.ascontiguousarray(total, np.uint32) << np.uint32(shift)).view(np.int32) >> shift
    return (signed * step).astype(np.float32)


def _centres(
    message: Vector, length: float, clip_norm: float, radius: float, precision: int, centres: NDArray[np.int32]
) -> None:
    unit = _unit(radius, precision, clip_norm)
    scale = unit if length <= clip_norm else unit * (clip_norm / length)
    limit = _limit(radius, precision)
    for _ in range(64):
        squares = _round(message, scale, centres)
        if squares <= limit:
            return
        # Rounding lengthened it. Aim below the limit: what rounding adds hardly changes with the scale.
        scale *= math.sqrt(limit / squares) * (1 - 1e-7)
    _round(message, 0.0, centres)


def _unit(radius: float, precision: int, clip_norm: float) -> float:
    """Return the steps of 2^-precision in a message's unit."""
    return 2.0**precision * radius / clip_norm


@lru_cache(maxsize=32)
def _limit(radius: float, precision: int) -> int:
    """Return the largest sum of squares of a message's centres."""
    most: int = math.floor(Fraction(radius) ** 2 * 4**precision)
    return most


def _round(message: Vector, scale: float, centres: NDArray[np.int32]) -> int:
    """Write the integers nearest to message * scale; return the sum of their squares."""
    if (library := native.library()) is None:
        np.copyto(centres, np.rint(message.astype(np.float64) * scale), casting="unsafe")
        return int((centres.astype(np.int64) ** 2).sum())
    message = np.ascontiguousarray(message, np.float32)
    return int(library.round(native.place(message), message.size, scale, native.place(centres)))
