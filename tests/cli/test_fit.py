from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from sottovoce.cli.fit import fit


def _shown(table: Table, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    with console.capture() as captured:
        for part in fit(table, width):
            console.print(part)
    return captured.get().splitlines()


@given(
    st.lists(st.lists(st.integers(0, 10**9), min_size=9, max_size=9), min_size=1, max_size=12),
    st.sampled_from([60, 80, 120]),
)
def test_every_number_stands_whole_in_one_line_at_any_width(rows: list[list[int]], width: int) -> None:
    table = Table("run", *(), caption="what it means")
    for place in range(9):
        table.add_column(f"figure {place}", justify="right")
    for place, row in enumerate(rows):
        table.add_row(f"run {place}", *map(str, row))

    lines = _shown(table, width)

    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    assert all(str(number) in words for row in rows for number in row)
    assert sum("what it means" in line for line in lines) == 1


@pytest.mark.parametrize(("rows", "headings"), [(2, 1), (9, 2)])
def test_few_rows_are_turned_and_many_are_divided(rows: int, headings: int) -> None:
    table = Table("run")
    for place in range(8):
        table.add_column(f"column {place}", justify="right")
    for place in range(rows):
        table.add_row(f"r{place}", *["123456789"] * 8)

    lines = _shown(table, 80)

    assert sum("run" in line for line in lines) == headings


def test_what_fits_is_left_as_it_is() -> None:
    table = Table("a", "b")
    table.add_row("1", "2")

    assert list(fit(table, 80)) == [table] and list(fit("text", 3)) == ["text"]
