"""Show the answers of a run of statistics: one document of sections, for a terminal and as one HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Final

from sottovoce.report.units import ABSENT, count, epsilon, percent

if TYPE_CHECKING:
    from rich.console import RenderableType

Told = Mapping[str, Any]

_BARS: Final = " ▁▂▃▄▅▆▇█"
_STYLE: Final = """
:root { color-scheme: light dark; } body { margin: 0 auto; max-width: 68rem; padding: 1.5rem;
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 1.6rem; }
table { border-collapse: collapse; font-size: .92rem; } .scroll { overflow-x: auto; }
th, td { text-align: left; vertical-align: top; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #8886; }
td.bars { font-family: monospace; white-space: pre; line-height: 1; } p.soft { opacity: .75; }
"""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True)
class StatisticsSection:
    """A heading, a table, and a sentence about it."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def document(told: Told) -> list[StatisticsSection]:
    """Return all that is shown of the answers; sections without rows are left out."""
    made = [_promise(told), _counts(told), _numbers(told), _categories(told), _correlations(told), _queries(told)]
    return [section for section in made if section.rows]


def terminal(told: Told) -> list[RenderableType]:
    """Return the document as rich tables."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn: list[RenderableType] = []
    for section in document(told):
        table = Table(
            *section.head,
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            title=Text(section.title, style="bold"),
            title_justify="left",
            caption=Text(section.note) if section.note else None,
            caption_justify="left",
            show_header=any(section.head),
        )
        for row in section.rows:
            table.add_row(*map(Text, row))
        drawn.append(table)
    return drawn


def page(told: Told, name: str) -> str:
    """Return the document as one page that needs no network."""
    body = [f"<h1>Statistics: {escape(name)}</h1>"]
    for section in document(told):
        head = "".join(f"<th>{escape(word)}</th>" for word in section.head)
        rows = "".join(
            "<tr>" + "".join(f"<td{_class(cell)}>{escape(cell)}</td>" for cell in row) + "</tr>" for row in section.rows
        )
        body.append(f"<h2>{escape(section.title)}</h2><div class=scroll><table>")
        body.append(
            (f"<thead><tr>{head}</tr></thead>" if any(section.head) else "") + f"<tbody>{rows}</tbody></table></div>"
        )
        if section.note:
            body.append(f"<p class=soft>{escape(section.note)}</p>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width"><title>Statistics: {escape(name)}</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _class(cell: str) -> str:
    return ' class="bars"' if cell and set(cell) <= set(_BARS) and cell != " " else ""


def _promise(told: Told) -> StatisticsSection:
    rows = [
        ("unit", f"each {told['unit']} is protected; {told['units']:,} of them at {told['sites']} sites, both public"),
        ("epsilon against outsiders", epsilon(told["epsilon"])),
        ("epsilon against the server", epsilon(told["epsilon_server"])),
        ("epsilon against another site", epsilon(told["epsilon_site"])),
        ("delta", f"{told['delta']:g}"),
        ("neighbours", told["neighbours"]),
    ]
    if told.get("schema"):
        rows.append(("schema", str(told["schema"])))
    if told["unsafe"]:
        rows.append(("unsafe", ", ".join(told["unsafe"])))
    if told["note"]:
        rows.append(("note", told["note"]))
    return StatisticsSection("What is promised", ("", ""), tuple(rows))


def _counts(told: Told) -> StatisticsSection:
    what = f"{told['unit']}s"
    rows = tuple((_group(group), _interval(group["count"], whole=True)) for group in told["groups"] if group["count"])
    note = "" if told["groups"][0]["group"] else "The number of all is public and has no noise."
    return StatisticsSection("Counts", ("group", what), rows, note)


def _numbers(told: Told) -> StatisticsSection:
    rows: list[tuple[str, ...]] = []
    quantiles: dict[str, None] = {}
    for group in told["groups"]:
        for column in group["columns"].values():
            quantiles |= dict.fromkeys(column.get("quantiles") or {})
    for group in told["groups"]:
        for name, column in group["columns"].items():
            if column["kind"] != "number":
                continue
            low, high = column["range"]
            cells = [_group(group), name, f"{count(low)} to {count(high)}"]
            cells += [_interval(column.get("missing"), whole=True)]
            cells += [_interval(column.get("mean")), _interval(column.get("stddev"))]
            cells += [_interval((column.get("quantiles") or {}).get(share)) for share in quantiles]
            rows.append((*cells, _bars(column.get("histogram"))))
    head: tuple[str, ...] = ("group", "column", "range", "missing", "mean", "standard deviation")
    head += (*(f"quantile {share}" for share in quantiles), "histogram")
    kept = [place for place, _ in enumerate(head) if place < 2 or any(row[place] not in ("", ABSENT) for row in rows)]
    return StatisticsSection(
        "Columns of numbers",
        tuple(head[place] for place in kept),
        tuple(tuple(row[place] for place in kept) for row in rows),
        f"Brackets hold the value without noise in {percent(told['confidence'])} of cases; how well the records stand "
        "for others is not in them. Numbers outside the declared range count as its nearest end.",
    )


def _categories(told: Told) -> StatisticsSection:
    rows: list[tuple[str, ...]] = []
    hidden = 0
    for group in told["groups"]:
        for name, column in group["columns"].items():
            if "categories" not in column:
                continue
            hidden += len(column["not_shown"])
            shown = [(each["category"], each) for each in column["categories"]]
            for word, each in [*shown, ("(missing)", column["missing"])]:
                rows.append((_group(group), name, word, _interval(each, whole=True)))
    note = "" if not hidden else f"{hidden} declared categories are not shown: their counts are lost in the noise."
    return StatisticsSection("Categories", ("group", "column", "category", f"{told['unit']}s"), tuple(rows), note)


def _correlations(told: Told) -> StatisticsSection:
    rows = tuple(
        (_group(group), " and ".join(each["columns"]), _interval(each))
        for group in told["groups"]
        for each in group["correlations"]
    )
    return StatisticsSection("Correlations", ("group", "columns", "Pearson's r"), rows)


def _queries(told: Told) -> StatisticsSection:
    rows = tuple(
        (each["query"], percent(each["budget_share"]), f"{each['cells']:,}", count(each["noise_stddev"]))
        for each in told["queries"]
    )
    note = "All queries are one sum, composed by one plan and charged before it was opened."
    return StatisticsSection(
        "What was asked", ("query", "share of the budget", "cells", "noise (standard deviation)"), rows, note
    )


def _group(group: Told) -> str:
    return ", ".join(f"{name} = {word}" for name, word in group["group"].items()) or "all"


def _interval(told: Told | None, *, whole: bool = False) -> str:
    if not told or told.get("value") is None:
        return ABSENT
    if told.get("public"):
        return count(told["value"])
    width = max(told["high"] - told["low"], 1e-4 * abs(told["value"]), 1e-9)
    digits = 0 if whole else max(0, 1 - math.floor(math.log10(width)))
    numbers = (told[key] if not whole else max(0.0, told[key]) for key in ("value", "low", "high"))
    value, low, high = (f"{number:,.{digits}f}" for number in numbers)
    return f"{value} [{low}, {high}]"


def _bars(histogram: Told | None) -> str:
    if not histogram:
        return ""
    values = [max(0.0, each["value"]) for each in histogram["bins"]]
    return "".join(_heights(values))


def _heights(values: Sequence[float]) -> Iterator[str]:
    top = max(values) or 1.0
    return (_BARS[round(value / top * (len(_BARS) - 1))] for value in values)
