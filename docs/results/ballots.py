"""Draw docs/ballots.png from the measured table of docs/ballots.md: what attackers do, against the bytes of a client.

    python docs/results/ballots.py

Numbers are read from the page, so that the picture cannot say anything else. "At chance" is drawn at 0.1, that of ten
classes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1]
SHARES, BALLOTS = "#c8641e", "#1b6ca8"
CHANCE = 0.1
AT_CHANCE = "at chance"


class Cell(NamedTuple):
    """One measured cell: mean accuracy, and for a backdoor how often it works."""

    accuracy: float
    success: float | None


class Measured(NamedTuple):
    """What the page says: bytes up a round and accuracy without an attack of each arm, and a row for each fraction."""

    bytes_up: dict[str, int]
    calm: dict[str, float]
    rows: dict[int, dict[str, Cell]]  # percent of malicious clients, column


def read(page: str) -> Measured:
    """Return the numbers of the page, or raise if it no longer has them."""
    calm = re.search(r"shares (0\.\d+) for ([\d,]+) bytes a round, ballots (0\.\d+) for ([\d,]+)", page)
    table = re.search(r"^\| malicious \|(.*)\|\n\|[-|]+\|\n((?:\|.*\|\n)+)", page, re.M)
    if calm is None or table is None:
        raise ValueError("docs/ballots.md has no table of three arms any more; change docs/results/ballots.py with it")
    names = [name.strip() for name in table[1].split("|")]
    rows = {}
    for line in table[2].splitlines():
        share, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[int(share.removesuffix("%"))] = dict(zip(names, map(_cell, cells), strict=True))
    sent = {"shares": int(calm[2].replace(",", "")), "ballots": int(calm[4].replace(",", ""))}
    return Measured(sent, {"shares": float(calm[1]), "ballots": float(calm[3])}, rows)


def _cell(text: str) -> Cell:
    if text.startswith(AT_CHANCE):
        return Cell(CHANCE, None)
    numbers = [float(number) for number in re.findall(r"[01]\.\d+", text)]
    return Cell(numbers[0], numbers[1] if len(numbers) > 1 else None)


def draw(measured: Measured) -> Figure:
    """Return the figure: accuracy under ascent on the left, success of the backdoor on the right."""
    figure = Figure(figsize=(10, 4.4), layout="constrained", dpi=140)
    ascent, backdoor = figure.subplots(1, 2)
    for axes in (ascent, backdoor):
        axes.grid(color="0.92")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set(xscale="log", xlim=(120, 3_000), xlabel="bytes that a client sends in a round, without masks")
        axes.set_xticks(list(measured.bytes_up.values()), [f"{sent:,}" for sent in measured.bytes_up.values()])
        axes.minorticks_off()
    for arm, colour in (("shares", SHARES), ("ballots", BALLOTS)):
        under = {share: row[f"ascent, {arm}"].accuracy for share, row in measured.rows.items()}
        _column(ascent, measured.bytes_up[arm], {0: measured.calm[arm], **under}, colour)
        works = {share: row[f"backdoor, {arm}"].success or 0.0 for share, row in measured.rows.items()}
        _column(backdoor, measured.bytes_up[arm], works, colour)
        backdoor.plot([], [], "o", color=colour, label=LABELS[arm])
    ascent.axhline(CHANCE, color="#444444", linewidth=1, linestyle="--")
    ascent.text(125, CHANCE + 0.015, "chance", fontsize=8, color="#444444")
    ascent.set(ylim=(0, 1), ylabel="accuracy under gradient ascent (higher is better)")
    backdoor.set(ylim=(-0.03, 1), ylabel="how often the backdoor works (lower is better)")
    backdoor.legend(loc="upper left", fontsize=8, frameon=False)
    figure.suptitle("beside each point: malicious clients, of 200; mean of five seeds at one epsilon", fontsize=9)
    return figure


LABELS = {"shares": "noise by clients", "ballots": "ballots: noise by two aggregators"}


def _column(axes: Axes, sent: int, values: dict[int, float], colour: str) -> None:
    """Draw the values of one arm above each other, with the share of malicious clients; near ones share a label."""
    axes.plot([sent] * len(values), list(values.values()), color=colour, linewidth=1, alpha=0.5)
    axes.plot([sent] * len(values), list(values.values()), "o", color=colour)
    near: list[tuple[float, list[int]]] = []
    for share, value in sorted(values.items(), key=lambda item: (item[1], item[0])):
        if near and value - near[-1][0] < _CLOSE:
            near[-1][1].append(share)
        else:
            near.append((value, [share]))
    for value, shares in near:
        words = ", ".join(str(share) for share in sorted(shares)) + " %"
        above = value == CHANCE  # clear of the line
        axes.annotate(words, (sent, value), xytext=(8, 4 if above else -3), **_NOTE, color=colour)


_CLOSE = 0.045
_NOTE: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8}


def main() -> None:
    """Write the picture beside the page."""
    measured = read((DOCS / "ballots.md").read_text(encoding="utf-8"))
    draw(measured).savefig(DOCS / "ballots.png")


if __name__ == "__main__":
    main()
