"""Show published tables and figures: theirs, ours, the difference, and why they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sottovoce.core.errors import InputError
from sottovoce.report.figures import PALETTE
from sottovoce.report.save import save
from sottovoce.report.units import ABSENT, count, decimal, finite, human_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

Document = Mapping[str, Any]
_HEADS: Final = {
    "round": "best round\ntheirs  ours",
    "epsilon": "epsilon\ntheirs  moments  true  server",
}
_FAILED: Final = "-"


def published_table(document: Document) -> Table:
    """Return the rows of a table; numbers in brackets are footnotes."""
    from rich.table import Table as RichTable

    columns = list(dict.fromkeys(line["column"] for line in document["cells"]))
    drawn = RichTable(
        title="\n".join([_title(document), document["source"], *(f"run on {setup}" for setup in document["setup"])]),
        title_justify="left",
    )
    drawn.add_column("row")
    for column in columns:
        drawn.add_column(_head(column, document), justify="left", no_wrap=True)
    marks = _marks(document)
    for row in dict.fromkeys(line["row"] for line in document["cells"]):
        cells = {line["column"]: line for line in document["cells"] if line["row"] == row}
        drawn.add_row(row, *(_cell(cells[column], marks) if column in cells else "" for column in columns))
    return drawn


def footnotes(document: Document) -> list[str]:
    """Return the notes of all cells, each once and numbered as in the table, then those of the whole table."""
    numbered = [f"[{number}] {text}" for text, number in _marks(document).items()]
    return [*numbered, *(f"note: {text}" for text in document["notes"])]


def ordering_words(ordering: Mapping[str, Any]) -> str:
    """Say whether the rows come out in the printed order."""
    if not ordering["pairs"]:
        return "order of the rows: no two printed values differ by 0.03 or more"
    said = f"order of the rows: {ordering['agree']} of {ordering['pairs']} pairs as printed"
    if ordering["tied"]:
        said += f", {ordering['tied']} tied within 0.01"
    against = [f"{pair['printed_worse']} above {pair['printed_better']}" for pair in ordering["reversed"]]
    if against:
        shown = "; ".join(against[:6]) + (f"; and {len(against) - 6} more" if len(against) > 6 else "")
        said += f", {len(against)} the other way round ({shown})"
    return said


def listing_table(entries: Sequence[Mapping[str, Any]]) -> Table:
    """Return what there is: cells that were run at each scale, and the time they took or would take."""
    from rich.table import Table as RichTable

    drawn = RichTable(caption="time: of the runs here; ~ what is missing taken from runs of the same set-up")
    for head in ("name", "what", "from", "small", "time", "full", "time"):
        drawn.add_column(head, no_wrap=head in ("name", "small", "full", "time"))
    for entry in entries:
        progress = [part for scale in ("small", "full") for part in _progress(entry[scale])]
        drawn.add_row(entry["name"], entry["title"], entry["source"].split(";")[0], *progress)
    return drawn


def series_table(document: Document) -> Table:
    """Return the curves or histograms of a figure in a few numbers each; --json and --png have all of them."""
    from rich.table import Table as RichTable

    title = "\n".join([_title(document), *(f"run on {setup}" for setup in document["setup"])])
    drawn = RichTable(title=title, title_justify="left")
    if document["kind"] == "weights":
        for head in ("row", "weights", "norm", "mean size"):
            drawn.add_column(head)
        for one in document["series"]:
            drawn.add_row(one["row"], count(one["coordinates"]), decimal(one["norm"]), decimal(one["mean_size"]))
        return drawn
    for head in ("row", "what", "first", "lowest", "highest", "last"):
        drawn.add_column(head)
    for one in document["series"]:
        values = one["value"] or [None]
        known = [value for value in values if value is not None] or [None]
        ends = values[0], min(known, default=None), max(known, default=None), values[-1]
        drawn.add_row(one["row"], one["metric"].replace("_", " "), *(decimal(value) for value in ends))
    return drawn


def write_series_png(document: Document, path: Path) -> None:
    """Write a figure as a picture, PNG or SVG by the ending of its name."""
    from matplotlib.figure import Figure

    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg"):
        raise InputError(f"--png writes a .png or .svg file, got {path.name!r}; choose another name")
    groups = list(dict.fromkeys(one.get("group", "") for one in document["series"]))
    figure = Figure(figsize=(6.4 * len(groups), 4.2), layout="constrained")
    for axes, group in zip(figure.subplots(1, len(groups), squeeze=False)[0], groups, strict=True):
        for place, one in enumerate(one for one in document["series"] if one.get("group", "") == group):
            _draw(axes, one, PALETTE[place % len(PALETTE)])
        axes.set_title(group or "\n".join([_title(document), *document["setup"]]), fontsize=8)
        axes.grid(color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8)
    picture = BytesIO()
    figure.savefig(picture, format=kind, dpi=150)
    save(picture.getvalue(), path, "--png")


def _draw(axes: Axes, one: Mapping[str, Any], colour: str) -> None:
    if "edges" in one:
        axes.stairs(one["count"], one["edges"], color=colour, fill=True, alpha=0.5, label=one["row"])
        axes.set(xlabel="weight", ylabel="coordinates")
        return
    axes.plot(one["round"], one["value"], color=colour, label=f"{one['row']}: {one['metric'].replace('_', ' ')}")
    axes.set(xlabel="round", ylim=(0, 1.02))


def _title(document: Document) -> str:
    return f"{document['name']}: {document['title']}, {document['scale']} scale"


def _head(column: str, document: Document) -> str:
    if column in _HEADS:
        return _HEADS[column]
    if column.startswith("cost"):
        way = "down" if column == "cost_down" else "up"
        return f"{way}, {document['unit']}\ntheirs  ours  sent"
    spread = "  ±" if document["seeds"] > 1 else ""
    return f"{column.replace('_', ' ')}\ntheirs  ours{spread}  difference"


def _cell(line: Mapping[str, Any], marks: Mapping[str, int]) -> str:
    from rich.markup import escape

    column, theirs = line["column"], _theirs(line)
    if column == "round":
        parts = [theirs, count(line["ours"])]
    elif column == "epsilon":
        parts = [theirs, *(decimal(line[key], 2) for key in ("moments", "ours", "epsilon_server"))]
    elif column.startswith("cost"):
        parts = [theirs, count(line["ours"]), count(line.get("measured"))]
    else:
        ours = _FAILED if line["diverged"] else decimal(line["ours"])
        spread = [decimal(line["spread"])] if line["spread"] is not None else []
        change = finite(line["difference"])
        parts = [theirs, ours, *spread, ABSENT if change is None or line["diverged"] else f"{change:+.2f}"]
    noted = [f"[{marks[text]}]" for text in _texts(line)]
    return escape("  ".join(parts) + (f" {''.join(noted)}" if noted else ""))


def _theirs(line: Mapping[str, Any]) -> str:
    printed = finite(line["printed"])
    if printed is not None:
        return f"{printed:.10g}"
    return line.get("sign") or "?"


def _texts(line: Mapping[str, Any]) -> list[str]:
    """Return the notes of a cell; a study that has one note only may leave out the list."""
    return list(line.get("notes") or ([line["note"]] if line["note"] else []))


def _marks(document: Document) -> dict[str, int]:
    """Return the number of each note."""
    found = dict.fromkeys(text for line in document["cells"] for text in _texts(line))
    return {text: number for number, text in enumerate(found, 1)}


def _progress(scale: Mapping[str, Any]) -> tuple[str, str]:
    seconds = scale["seconds"]
    told = human_seconds(seconds) if seconds is not None else ABSENT
    if seconds is None and scale["expected_seconds"] is not None:
        told = f"~{human_seconds(scale['expected_seconds'])}"
    return f"{scale['run']} of {scale['cells']}", told
