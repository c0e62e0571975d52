"""Numbers as people write them, and the decimal mark that a column has."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.data.cells import TextBlocks, joined, pack
from sottovoce.data.numerals import Marks, has_unit, looks_numeric, notation, parse_number


def written(value: float, decimals: int, decimal: str, thousands: str) -> str:
    """Return a number as a spreadsheet writes it."""
    return f"{value:,.{decimals}f}".replace(",", "T").replace(".", decimal).replace("T", thousands)


@given(
    value=st.floats(-1e12, 1e12),
    decimals=st.integers(0, 6),
    marks=st.sampled_from([(".", ""), (".", ","), (".", " "), (".", "'"), (",", ""), (",", "."), (",", "\u00a0")]),
)
def test_a_written_number_is_read_back_with_its_own_mark(
    value: float, decimals: int, marks: tuple[Literal[".", ","], str]
) -> None:
    assert parse_number(written(value, decimals, *marks), marks[0]) == float(f"{value:.{decimals}f}")


@given(st.text(max_size=8))
def test_whatever_is_a_number_here_has_a_digit_and_no_letter_but_e(text: str) -> None:
    if looks_numeric(text):
        assert any(digit in text for digit in "0123456789")
        assert not any(letter.isalpha() and letter not in "eE" for letter in text)


@pytest.mark.parametrize("text", ["", "-", ".", ",", "1,2,3", "1.2.3", "1,234,56", "nan", "inf", "1e999", "1_0", "٣"])
def test_other_texts_are_no_numbers(text: str) -> None:
    assert not looks_numeric(text)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([".", ","]))
def test_one_cell_that_tells_decides_for_its_column(values: list[float], decimal: str) -> None:
    other = "," if decimal == "." else "."
    cells = [written(value, 3, decimal, other) for value in values] + [f"0{decimal}25"]

    assert notation(cells).decimal == decimal


def test_doubtful_columns_follow_the_others_of_their_file_or_stay_open() -> None:
    assert Marks({"a": ["1,234", "7"]}).of("a") is None
    assert Marks({"a": ["1,234", "7"], "b": ["2,50", "1,75"]}).of("a") == ","
    assert Marks({"a": ["1,234", "7"], "b": ["2.50", "1.75"]}).of("a") == "."
    assert Marks({"a": ["1.234", "7"], "b": ["2,50", "1,75"]}).of("a") == ","
    assert Marks({"a": ["1.234", "7"], "b": ["Doe, J", "Roe, K"]}).of("a") == "."


@pytest.mark.parametrize(
    ("text", "there"),
    [
        *((text, True) for text in ("12 %", "<5", "5 mg/l", "(12.5)", "'7'", "=5", "1,23,456", "٣٤", "１２", "$1,200")),
        *((text, False) for text in ("12.5", "V27", "12.03.2020", "12:30", "Paris", "")),
    ],
)
def test_numbers_with_a_unit_are_noticed(text: str, there: bool) -> None:
    assert has_unit(text) is there


@given(st.lists(st.lists(st.text(st.characters(exclude_characters="\0"), max_size=3), min_size=1), max_size=4))
def test_packed_cells_are_the_list_that_they_came_from(parts: list[list[str]]) -> None:
    plain = [cell for part in parts for cell in part]
    cells = joined([TextBlocks([pack(part)], [len(part)]) if len(part) % 2 else part for part in parts])

    assert list(cells) == plain
    assert [cells[row] for row in range(len(plain))] == plain
    assert cells.holds(",") == any("," in cell for cell in plain)
