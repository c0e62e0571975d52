"""Draw the runs round by round: quality, loss, and the privacy that is spent; small multiples where they are many."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sottovoce.models import METRICS
from sottovoce.report.figures import PALETTE, SYMBOLS, by_bytes, by_round, frame, heading, legend, styles
from sottovoce.report.runs import Run, label, lead
from sottovoce.report.units import epsilon, finite

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MANY: Final = 10  # runs; with more, a figure that shows them all is a tangle
_PANEL: Final = len(PALETTE)  # runs in one panel, each in a colour of its own


class Panel(NamedTuple):
    """A part of a figure: some of the runs, on the axes of all, with the legend of its lines."""

    name: str
    caption: str
    figure: Figure
    legend: list[Any]
    height: int | None = None  # in lines of text, where it depends on the number of runs


class RunsFigure(NamedTuple):
    """A figure of all runs, or its panels where the runs are many."""

    name: str
    caption: str
    panels: list[Panel]


def round_figures(runs: Sequence[Run]) -> list[RunsFigure]:
    """Return what changes from round to round, the metric that chose the best rounds first."""
    first = lead(runs)
    drawn = [
        ("by-bytes", f"{heading(first)} for the bytes sent", by_bytes(runs)),
        ("by-round", f"{heading(first)} by round", by_round(runs)),
    ]
    known = [name for name, _ in sorted(METRICS.items(), key=lambda item: not item[1].higher)]
    own = [name for run in runs for name in (run.summary or {}).get("own_metrics", ())]
    drawn += [
        (f"by-round-{metric}", f"{heading(metric)} by round", by_round(runs, metric))
        for metric in dict.fromkeys((*known, *own))
        if metric != first and any(run.evaluated(metric) for run in runs)
    ]
    spent = epsilon_spent(runs)
    if spent is not None:
        drawn.append(
            ("epsilon-by-round", "Epsilon against outsiders, spent by round: an odometer reading, no guarantee", spent)
        )
    return [RunsFigure(name, caption, panels(name, caption, figure, runs)) for name, caption, figure in drawn]


def budgets(runs: Sequence[Run]) -> list[float]:
    """Return the budgets against outsiders that the experiments name."""
    told = (finite(run.table("privacy").get("epsilon")) for run in runs if run.private)
    return sorted({budget for budget in told if budget is not None})


def epsilon_spent(runs: Sequence[Run]) -> Figure | None:
    """Return what was spent after each round, and the budgets; None if no run tells it."""
    from plotly.graph_objects import Figure, Scatter

    told = [
        [record for record in run.rounds if run.private and (finite(record.get("epsilon_spent")) or 0) > 0]
        for run in runs
    ]
    if not any(told):
        return None
    figure = Figure()
    for name, rounds, (color, dash, _, _) in zip(label(runs), told, styles(runs), strict=True):
        figure.add_trace(
            Scatter(
                x=[record["round"] for record in rounds],
                y=[float(epsilon(record["epsilon_spent"])) for record in rounds],  # rounded up
                name=html.escape(name),
                hovertemplate="%{y:.4g} after round %{x}<extra>%{fullData.name}</extra>",
                mode="lines" if len(rounds) > 1 else "markers",
                line={"color": color, "width": 2, "dash": dash},
            )
        )
    frame(figure, "round", "epsilon spent so far")
    for budget in budgets(runs):
        figure.add_hline(
            y=budget,
            line={"color": "#808080", "width": 1.5, "dash": "dot"},
            annotation={"text": f"budget {budget:g}", "font": {"size": 12}},
            annotation_position="top left",
        )
    last = max((record["round"] for rounds in told for record in rounds), default=0)
    figure.update_xaxes(rangemode="tozero", dtick=1 if last <= 10 else None)
    top = max([record["epsilon_spent"] for rounds in told for record in rounds] + budgets(runs))
    figure.update_yaxes(range=[0, 1.12 * top or 1])
    return figure


def panels(name: str, caption: str, figure: Figure, runs: Sequence[Run]) -> list[Panel]:
    """Return the figure as it is, or of many runs one panel a scheme and its twin; traces are runs, in their order."""
    from plotly.graph_objects import Figure

    told = legend(runs)
    if len(runs) <= MANY or len(figure.data) != len(runs):
        return [Panel(name, caption, figure, told)]
    _fix_axes(figure)
    across = str(figure.layout.xaxis.title.text)
    drawn: list[Panel] = []
    for kind, places in _groups(runs):
        shown = [place for place in places if figure.data[place].x]
        if shown:
            part = Figure(data=[figure.data[place] for place in shown], layout=figure.layout)
            looks = [_restyle(trace, index) for index, trace in enumerate(part.data)]
            # A panel is narrow; which runs are private its caption tells.
            short = across.replace("private runs: ", "") if runs[shown[0]].private else across.partition("<br>")[0]
            part.update_xaxes(title_text=short, title_font_size=12)
            part.update_yaxes(title_font_size=12)
            part.update_layout(margin={"l": 50, "r": 10, "t": 8, "b": 48})
            lines = [(told[place][0], *look) for place, look in zip(shown, looks, strict=True)]
            drawn.append(Panel(f"{name}-{len(drawn)}", kind, part, lines))
    return drawn or [Panel(name, caption, figure, told)]


def _groups(runs: Sequence[Run]) -> list[tuple[str, list[int]]]:
    kinds: dict[tuple[str, bool], list[int]] = {}
    for place, run in enumerate(runs):
        kinds.setdefault((run.scheme, run.private), []).append(place)
    groups = []
    for (scheme, private), places in kinds.items():
        parts = [places[start : start + _PANEL] for start in range(0, len(places), _PANEL)]
        for number, part in enumerate(parts, start=1):
            which = f" ({number} of {len(parts)})" if len(parts) > 1 else ""
            groups.append((f"{scheme}{', private' if private else ''}{which}", part))
    return groups


def _restyle(trace: Any, index: int) -> tuple[str, bool, dict[str, str]]:
    """Give a line of a panel a colour and a symbol that no other line there has; return them for the legend."""
    color, symbol, hollow = PALETTE[index], list(SYMBOLS)[index % len(SYMBOLS)], trace.line.dash == "dash"
    trace.line.color = color
    if trace.mode and "markers" in trace.mode:
        trace.marker.update(color=color, symbol=f"{symbol}-open" if hollow else symbol)
    return color, hollow, {"path": SYMBOLS[symbol], "fill": "none" if hollow else color}


def _fix_axes(figure: Figure) -> None:
    """Give all panels the axes of the whole, so that they can be compared."""
    for key, letter in (("xaxis", "x"), ("yaxis", "y")):
        axis = figure.layout[key]
        # A line may have gaps.
        values = [value for trace in figure.data for value in trace[letter] or () if finite(value) is not None]
        scaled = [math.log10(value) for value in values if value > 0] if axis.type == "log" else values
        if axis.range is not None or not scaled:
            continue
        low = 0 if axis.rangemode == "tozero" else min(scaled)
        room = 0.05 * (max(scaled) - low or 1)
        axis.range = [low if axis.rangemode == "tozero" else low - room, max(scaled) + room]
