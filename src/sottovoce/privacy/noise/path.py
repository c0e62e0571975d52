"""Carry a message over the grid: clip, round, clip again, add the share of noise; and back, for the sum."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Vector
from sottovoce.privacy.noise.clipping import norm
from sottovoce.privacy.noise.randomness import Bits
from sottovoce.privacy.noise.sampler import Words, draw
from sottovoce.privacy.noise.table import centred_tables, fraction_tables

__all__ = ["add_noise", "protect_floats", "protect_signs", "to_floats"]


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
    unit = 2.0**precision * radius / clip_norm
    scale = unit if length <= clip_norm else unit * (clip_norm / length)
    limit = math.floor(Fraction(radius) ** 2 * 4**precision)
    for _ in range(64):
        squares = _round(message, scale, centres)
        if squares <= limit:
            return
        # Rounding lengthened it. Aim below the limit: what rounding adds hardly changes with the scale.
        scale *= math.sqrt(limit / squares) * (1 - 1e-7)
    _round(message, 0.0, centres)


def _round(message: Vector, scale: float, centres: NDArray[np.int32]) -> int:
    """Write the integers nearest to message * scale; return the sum of their squares."""
    if (library := native.library()) is None:
        np.copyto(centres, np.rint(message.astype(np.float64) * scale), casting="unsafe")
        return int((centres.astype(np.int64) ** 2).sum())
    message = np.ascontiguousarray(message, np.float32)
    return int(library.round(native.place(message), message.size, scale, native.place(centres)))
