from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.report.units import ABSENT, count, epsilon, human_bytes, human_seconds, human_value


@given(value=st.floats(0, 1e15))
def test_bytes_are_at_most_three_digits_and_a_unit_and_not_far_off(value: float) -> None:
    number, unit = human_bytes(value).split()

    factor = 1000 ** ["B", "kB", "MB", "GB", "TB", "PB"].index(unit)
    assert float(number) < 1000
    assert float(number) * factor == pytest.approx(value, rel=0.006, abs=0.006)


@pytest.mark.parametrize("value", [None, math.nan, math.inf, "12", True])
def test_what_is_no_number_is_a_dash(value: object) -> None:
    assert human_bytes(value) == human_seconds(value) == count(value) == ABSENT


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.013, "0.013 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (3599.6, "1 h"),
        (90_000, "25 h"),
        (9e5, "10 d 10 h"),
    ],
)
def test_durations_carry_into_the_next_unit(seconds: float, words: str) -> None:
    assert human_seconds(seconds) == words


def test_a_name_tells_the_unit() -> None:
    assert human_value("bytes_up_total", 13_540) == "13.5 kB  (13,540 bytes)"
    assert human_value("paper_cost_up_bytes", 12.0) == "12 bytes"
    assert human_value("seconds_total", 75) == "1 min 15 s"
    assert human_value("private", False) == "no"
    assert human_value("epsilon", None) == ABSENT
    assert human_value("epsilon", math.inf) == "∞"
    assert human_value("kept", [1, 2500]) == "1, 2,500"


@given(value=st.floats(1e-6, 1e6))
def test_a_printed_epsilon_never_promises_more_than_was_proven(value: float) -> None:
    shown = float(epsilon(value))

    assert value * (1 - 1e-12) <= shown <= value * 1.0011
