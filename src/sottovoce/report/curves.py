"""Draw attacked runs round by round, as Fig. 6.1 and 6.2 of the thesis do: the whole model and what was attacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sottovoce.report.attacks import attack_words, diverged
from sottovoce.report.figures import PALETTE, SYMBOLS, frame
from sottovoce.report.runs import Facts, Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Quantity: name, colour, dash, symbol. Dash and symbol tell them apart without the colour.
LINES: Final = {
    "accuracy": ("accuracy", PALETTE[0], "solid", "circle"),
    "class_accuracy": ("accuracy on the attacked class", PALETTE[1], "dash", "square"),
    "attack_success": ("attack success", PALETTE[6], "dot", "triangle-up"),
}


def curves(runs: Sequence[Run], records: Sequence[Facts]) -> list[tuple[str, Figure]]:
    """Return a caption and a figure for every run that says round by round what became of the attacked class."""
    return [
        (_caption(record), curve(run))
        for run, record in zip(runs, records, strict=True)
        if any(run.evaluated(quantity) for quantity in LINES if quantity != "accuracy")
    ]


def curve(run: Run) -> Figure:
    """Return one run's accuracy, accuracy on the attacked class and attack success by round, each where it has it."""
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for quantity, (name, color, dash, symbol) in LINES.items():
        points = run.evaluated(quantity)
        if points:
            figure.add_trace(
                Scatter(
                    x=[record["round"] for record in points],
                    y=[record[quantity] for record in points],
                    name=name,
                    hovertemplate="%{y:.4f} in round %{x}<extra>%{fullData.name}</extra>",
                    mode="lines+markers",
                    line={"color": color, "width": 2, "dash": dash},
                    marker={"color": color, "size": 6, "symbol": symbol},
                )
            )
    frame(figure, "round", "")
    # One scale for all runs, so that panels can be compared.
    figure.update_yaxes(range=[-0.04, 1.04], dtick=0.25)
    last = max((record["round"] for record in run.rounds), default=0)
    figure.update_xaxes(rangemode="tozero", dtick=1 if last <= 10 else None)
    figure.update_layout(margin={"l": 44, "r": 12, "t": 8, "b": 48})
    return figure


def line_legend(figures: Sequence[tuple[str, Figure]]) -> list[tuple[str, str, str, dict[str, str]]]:
    """Return name, colour, dashes and mark of each line that is drawn, for the page's legend."""
    drawn = {trace.name for _, figure in figures for trace in figure.data}
    dashes = {"solid": "", "dash": "6 4", "dot": "2 3"}
    return [
        (name, color, dashes[dash], {"path": SYMBOLS[symbol], "fill": color})
        for name, color, dash, symbol in LINES.values()
        if name in drawn
    ]


def _caption(record: Facts) -> str:
    """Return the run and its attack; the page escapes it, plotly never sees it."""
    told = f"{record['label']}: {record['scheme']}{', private' if record['private'] else ''}, {attack_words(record)}"
    return told + (", diverged" if diverged(record) else "")
