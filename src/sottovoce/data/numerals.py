"""Read numbers as people write them: 1234.5, 1,234.5, 1.234,5, 1 234,5 and 1'234.5.

A text such as "1,234" is two numbers, one with a decimal comma and one with a thousands separator. What it means
follows from the other cells of its column in the same file, or it is refused; it is never guessed.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from sottovoce.data.cells import holds

Decimal = Literal[".", ","]
POINT: Final[Decimal] = "."
COMMA: Final[Decimal] = ","

_SIGNS: Final = str.maketrans({"\u2212": "-"})
_GROUPS: Final = "'’ \u00a0\u202f"  # separate thousands, whatever the decimal mark is
_PLAIN: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WRITTEN: Final = {
    mark: re.compile(
        rf"([+-]?(?:[1-9]\d{{0,2}}(?:([{_GROUPS}{re.escape(other)}])\d{{3}})(?:\2\d{{3}})*|\d*))"
        rf"(?:{re.escape(mark)}(\d*))?((?:[eE][+-]?\d+)?)",
        re.ASCII,
    )
    for mark, other in ((POINT, COMMA), (COMMA, POINT))
}
_MARKED: Final = re.compile(rf"[-+\u2212.,{_GROUPS}\d]+", re.ASCII)
_AROUND: Final = " ()[]'\"`´‘’“”="
_LISTED: Final = re.compile(r"[-+]?\d+(?:,\d+){2,}(?:\.\d+)?", re.ASCII)
_WITH_UNIT: Final = re.compile(
    rf"(?:[<>≤≥~]\s*)?(?:[€$£]\s*)?([-+]?\d[\d.,{_GROUPS}]*?)\s*(?:[%‰€$£]|[a-zA-Zµ°]{{1,4}}(?:/[a-zA-Z]{{1,4}})?)?"
)


def parse_number(cell: str, decimal: Decimal = POINT) -> float | None:
    """Return a cell as a finite number, or None; `decimal` is the mark before the fraction.

    >>> parse_number("1.234,5", ","), parse_number("1,234.5"), parse_number("12,5"), parse_number("1 000")
    (1234.5, 1234.5, None, 1000.0)
    """
    if decimal == POINT and _PLAIN.fullmatch(cell):
        value = float(cell)
        return value if math.isfinite(value) else None
    found = _WRITTEN[decimal].fullmatch(cell.translate(_SIGNS))
    if found is None:
        return None
    whole, _, fraction, power = found.groups()
    digits = re.sub(r"[^\d+-]", "", whole)
    if not (digits.strip("+-") or fraction):
        return None
    value = float(f"{digits}.{fraction or '0'}{power}")
    return value if math.isfinite(value) else None


def looks_numeric(cell: str) -> bool:
    """Tell whether a cell is a number with one of both decimal marks."""
    return parse_number(cell) is not None or parse_number(cell, COMMA) is not None


def has_unit(cell: str) -> bool:
    """Tell whether a cell is a number with something about it that is not read: "12 %", "(5)", "'7'", "1,23,456".

    >>> [has_unit(cell) for cell in ("5 mg", "(12.5)", "'7'", "\u0663\u0664", "1,23,456", "12.5", "V27", "12.03.2020")]
    [True, True, True, True, True, False, False, False]
    """
    if looks_numeric(cell):
        return False
    bare = unicodedata.normalize("NFKC", cell).strip(_AROUND)
    if not bare.isascii():
        bare = "".join(str(unicodedata.digit(letter, letter)) for letter in bare)
    if looks_numeric(bare) or _LISTED.fullmatch(bare):
        return True
    found = _WITH_UNIT.fullmatch(bare)
    return found is not None and looks_numeric(found[1].strip())


class Notation(NamedTuple):
    """What the cells of a column tell about its decimal mark: None if none of them tells."""

    decimal: Decimal | None
    doubtful: int | None  # the first row that is one number with a point as the mark, and another with a comma


def notation(column: Sequence[str]) -> Notation:
    """Return the decimal mark with which more cells of a column are numbers.

    >>> notation(["1,234", "12,5"]).decimal, notation(["1,234", "1,234.5"]).decimal, notation(["1,234", "950"])
    (',', '.', Notation(decimal=None, doubtful=0))
    """
    counts: dict[Decimal, int] = {POINT: 0, COMMA: 0}
    doubtful = None
    for row, cell in enumerate(column):
        if not _MARKED.match(cell):
            continue
        point, comma = parse_number(cell), parse_number(cell, COMMA)
        if point is not None and comma is None:
            counts[POINT] += 1
        elif comma is not None and point is None:
            counts[COMMA] += 1
        elif point != comma and doubtful is None:
            doubtful = row
    if counts[POINT] == counts[COMMA] == 0:
        return Notation(None, doubtful)
    return Notation(COMMA if counts[COMMA] > counts[POINT] else POINT, doubtful)


class Marks:
    """The decimal marks of one file: each column has its own, and doubtful columns follow the others.

    >>> marks = Marks({"a": ["12,5", "3"], "b": ["1,234", "7"], "c": ["Doe, J", "x"]})
    >>> marks.of("a"), marks.of("b"), marks.of("c")
    (',', ',', '.')
    """

    def __init__(self, columns: Mapping[str, Sequence[str]]) -> None:
        self._columns = columns
        self._with_comma = {name: notation(cells) for name, cells in columns.items() if holds(cells, COMMA)}
        self._file = self._of_file()

    def of(self, name: str) -> Decimal | None:
        """Return the mark of a column; None: its numbers with separators have two meanings, and nothing tells which."""
        if name in self._with_comma:
            found = self._with_comma[name]
            return found.decimal or (POINT if found.doubtful is None else self._file)
        if self._file != COMMA:
            return POINT
        found = notation(self._columns[name])
        return COMMA if found.decimal is None and found.doubtful is not None else POINT

    def _of_file(self) -> Decimal | None:
        """Return the mark on which the columns agree that tell one."""
        known = list(self._with_comma.values())
        marks = {found.decimal for found in known} - {None}
        if not marks and any(found.doubtful is not None for found in known):
            others = (cells for name, cells in self._columns.items() if name not in self._with_comma)
            marks = {notation(cells).decimal for cells in others} - {None}
        return marks.pop() if len(marks) == 1 else None
