from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.errors import InputError, RunError
from sottovoce.privacy.noise.randomness import Randomness
from sottovoce.privacy.noise.sampler import draw, invert
from sottovoce.privacy.noise.table import Tables, centred_tables, fraction_tables

KEY = bytes(range(32))


def exact(variance: Fraction, centre: Fraction, outcomes: range) -> list[mpmath.mpf]:
    with mpmath.workprec(400):
        rate = mpmath.mpf(variance.denominator) / (2 * variance.numerator)
        weights = [
            mpmath.exp(-((mpmath.mpf(j) - mpmath.mpf(centre.numerator) / centre.denominator) ** 2) * rate)
            for j in outcomes
        ]
        total = mpmath.fsum(weights)
        return [weight / total for weight in weights]


def distance(tables: Tables, row: int, variance: Fraction, centre: Fraction) -> float:
    ours = tables.probabilities(row)
    theirs = exact(variance, centre, range(tables.first - 60, tables.first + len(ours) + 60))[60:-60]
    with mpmath.workprec(400):
        gaps = [abs(mpmath.mpf(a.numerator) / a.denominator - b) for a, b in zip(ours, theirs, strict=True)]
        return float(mpmath.fsum(gaps) / 2)


@pytest.mark.parametrize("variance", [Fraction(16), Fraction(9, 2), Fraction(0.7371), Fraction(123.25)])
@pytest.mark.parametrize("row", [0, 1, 9, 15])
def test_a_table_is_exact_to_a_hundred_bits(variance: Fraction, row: int) -> None:
    assert distance(fraction_tables(variance, 4), row, variance, Fraction(row, 16)) < 2.0**-100


@pytest.mark.parametrize("centre", [Fraction(0), Fraction(1), Fraction(-1), Fraction(0.0201), Fraction(-0.0201)])
def test_a_table_of_any_centre_is_exact_to_a_hundred_bits(centre: Fraction) -> None:
    assert distance(centred_tables(Fraction(199**2), (centre,)), 0, Fraction(199**2), centre) < 2.0**-100


def slow_draw(tables: Tables, centre: int, number: int) -> int:
    """Invert the whole table with whole 128-bit numbers, one outcome after the other."""
    row, base = centre % tables.rows, centre // tables.rows
    tops = [(int(h) << 64) | int(low) for h, low in zip(tables.high[row], tables.low[row], strict=True)]
    for outcome, top in enumerate(tops[:-1]):
        if number < top:
            return base + tables.first + outcome
    return base + tables.first + len(tops) - 1


@settings(max_examples=200, deadline=None)
@given(centre=st.integers(-4000, 4000), number=st.integers(0, 2**128 - 1))
def test_the_sampler_agrees_with_its_slow_twin(centre: int, number: int) -> None:
    tables = fraction_tables(Fraction(16), 4)

    assert fast_draw(tables, centre, number) == slow_draw(tables, centre, number)


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_ties_in_the_first_sixty_four_bits_are_decided_by_the_next(shift: int) -> None:
    tables = fraction_tables(Fraction(16), 4)
    for outcome in range(0, tables.high.shape[1] - 1):
        number = (int(tables.high[3, outcome]) << 64) | int(tables.low[3, outcome])
        number = max(0, min(2**128 - 1, number + shift))
        assert fast_draw(tables, 3, number) == slow_draw(tables, 3, number)


def fast_draw(tables: Tables, centre: int, number: int) -> int:
    word = np.empty(1, np.uint32)
    high, low = np.array([number >> 64], np.uint64), np.array([number & (2**64 - 1)], np.uint64)
    invert(tables, np.array([centre], np.int32), high, low, 0, word)
    return int(word.view(np.int32)[0])


def test_a_tie_without_spare_bits_is_an_error_not_a_guess() -> None:
    tables = fraction_tables(Fraction(16), 4)
    number = np.array([tables.high[0, 56]], np.uint64)

    with pytest.raises(RunError, match="ran out of bits"):
        invert(tables, np.zeros(1, np.int32), number, np.empty(0, np.uint64), 0, np.empty(1, np.uint32))


def test_draws_repeat_for_a_key_and_differ_for_another() -> None:
    tables = fraction_tables(Fraction(16), 4)
    centres = np.zeros(1000, np.int32)

    first = draw(tables, centres, Randomness.simulated(KEY).bits())

    assert (first == draw(tables, centres, Randomness.simulated(KEY).bits())).all()
    assert (first != draw(tables, centres, Randomness.simulated(bytes(32)).bits())).any()
    assert (first != draw(tables, centres, Randomness.system().bits())).any()


def test_words_stay_below_the_modulus() -> None:
    words = draw(
        fraction_tables(Fraction(16), 4),
        np.full(10000, -50, np.int32),
        Randomness.simulated(KEY).bits(),
        modulus_bits=10,
    )

    assert int(words.max()) < 1024
    assert int(words.max()) > 900  # negative values are the upper half


def test_a_key_does_not_show() -> None:
    assert "key" not in repr(Randomness.simulated(KEY))


def test_a_short_key_is_refused() -> None:
    with pytest.raises(InputError, match="32 bytes, got 3"):
        Randomness.simulated(b"abc")
