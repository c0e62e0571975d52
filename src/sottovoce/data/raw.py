"""Code cells whose column is not declared: texts as rows of bytes; other cells as a bin, a short word, or missing.

The bins are public: 0, and for each power of two the numbers from it to its double, of either sign. A word of at most
16 bytes of UTF-8 is coded as it is; a longer one is only counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.data.cells import blocks
from sottovoce.data.csv_file import CsvTable
from sottovoce.data.numerals import POINT, parse_number
from sottovoce.data.preprocessing import column_of

LEAST: Final = -20  # the smallest power of two that has a bin of its own; what is smaller counts as 0
MOST: Final = 40
POWERS: Final = MOST - LEAST + 1
BINS: Final = 2 * POWERS + 1  # from the most negative one to the most positive
LETTERS: Final = 16  # bytes of a word
WIDTH: Final = 2 + LETTERS  # bytes of a coded cell: what it is, its bin, its letters

NUMBER, WORD, LONG, ABSENT = range(4)

TEXT_BYTES: Final = 2000  # of a text that are kept: the same for every record, so that no length is told

RawCodes = NDArray[np.uint8]  # (records, columns * WIDTH)


def bin_of(value: float) -> int:
    """Return the bin of a finite number.

    >>> bin_of(0.0) == POWERS, bin_edges(bin_of(20.0)), bin_edges(bin_of(-3.0))
    (True, (16.0, 32.0), (-4.0, -2.0))
    """
    if abs(value) < 2.0**LEAST:
        return POWERS
    power = min(MOST, math.frexp(abs(value))[1] - 1) - LEAST
    return POWERS + 1 + power if value > 0 else POWERS - 1 - power


def bin_edges(number: int) -> tuple[float, float]:
    """Return the least and the largest number of a bin."""
    if number == POWERS:
        return (0.0, 0.0)
    power = abs(number - POWERS) - 1 + LEAST
    ends = (2.0**power, 2.0 ** (power + 1))
    return ends if number > POWERS else (-ends[1], -ends[0])


def code_raw(table: CsvTable, columns: Sequence[str], empty: frozenset[str]) -> RawCodes:
    """Return the codes of every cell of some columns."""
    codes = np.zeros((table.records, len(columns) * WIDTH), np.uint8)
    for place, name in enumerate(columns):
        column_of(table, name)
        first = 0
        for part in table.parts or (table,):
            decimal = part.decimal_of(name) or POINT
            known: dict[str, bytes] = {}
            for block in blocks(part.columns[name]):
                for row, cell in enumerate(block, first):
                    if cell not in known:
                        known[cell] = _code(cell, None if cell in empty else parse_number(cell, decimal), empty)
                    codes[row, place * WIDTH : (place + 1) * WIDTH] = np.frombuffer(known[cell], np.uint8)
                first += len(block)
                known = {} if len(known) > 100_000 else known
    return codes


def text_rows(texts: Sequence[str | bytes]) -> NDArray[np.uint8]:
    """Return texts as rows of `TEXT_BYTES` bytes of UTF-8, zeros after the end; a longer text is cut.

    >>> text_rows(["so"])[0, :3].tolist()
    [115, 111, 0]
    """
    rows = np.zeros((len(texts), TEXT_BYTES), np.uint8)
    for row, text in zip(rows, texts, strict=True):
        letters = (text.encode("utf-8", "replace") if isinstance(text, str) else text)[:TEXT_BYTES]
        row[: len(letters)] = np.frombuffer(letters, np.uint8)
    return rows


def _code(cell: str, value: float | None, empty: frozenset[str]) -> bytes:
    if cell in empty:
        return bytes([ABSENT]).ljust(WIDTH, b"\0")
    if value is not None:
        return bytes([NUMBER, bin_of(value)]).ljust(WIDTH, b"\0")
    letters = cell.encode("utf-8", "replace")
    if len(letters) > LETTERS:
        return bytes([LONG]).ljust(WIDTH, b"\0")
    return bytes([WORD, 0]) + letters.ljust(LETTERS, b"\0")
