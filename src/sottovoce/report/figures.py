"""Draw the runs' metric against bytes and against rounds, readable without telling red from green."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from sottovoce.core.packages import require
from sottovoce.models import METRICS
from sottovoce.report.quality import chance
from sottovoce.report.runs import Run, label, lead
from sottovoce.report.units import human_bytes

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Okabe and Ito's colours without black and yellow, so that every one stands out on white and on dark paper.
PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1")
# plotly's symbols, and the same shapes as SVG paths for the page's own legend.
SYMBOLS: Final = {
    "circle": "M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0Z",
    "square": "M-3,-3H3V3H-3Z",
    "diamond": "M0,-4.5L4.5,0L0,4.5L-4.5,0Z",
    "triangle-up": "M0,-4L4,3H-4Z",
    "cross": "M-4,-1.3H-1.3V-4H1.3V-1.3H4V1.3H1.3V4H-1.3V1.3H-4Z",
    "triangle-down": "M0,4L4,-3H-4Z",
}
_GREY: Final = "#808080"
_MARKS: Final = 25  # on one line; more only hide it, and slow a browser down

Points = list[tuple[float, float, dict[str, Any]]]


def by_bytes(runs: Sequence[Run]) -> Figure:
    """Return the runs' metric against the bytes that all clients together have sent up to then."""
    metric = lead(runs)
    series = [_points(run, metric, _bytes_so_far(run)) for run in runs]
    ends = [points[-1][0] for points in series if points and points[-1][0] > 0]
    expected = any(run.private and not run.tells_cohorts for run in runs)
    across = "bytes up so far, all clients" + ("<br>(private runs: expected)" if expected else "")
    figure = _draw(runs, series, metric, across)
    if ends and max(ends) > 10 * min(ends):
        low = min(points[0][0] for points in series if points and points[0][0] > 0)
        figure.update_xaxes(type="log", tickvals=decades(low, max(ends)), ticktext=names_of(decades(low, max(ends))))
    else:
        figure.update_xaxes(rangemode="tozero", tickformat="~s", ticksuffix="B")
    figure.update_xaxes(hoverformat=".3~s")
    return figure


def by_round(runs: Sequence[Run], metric: str | None = None) -> Figure:
    """Return a metric of the runs against rounds; the one that chose the best rounds if none is named."""
    metric = metric or lead(runs)
    series = [_points(run, metric, [float(record["round"]) for record in run.rounds]) for run in runs]
    figure = _draw(runs, series, metric, "round")
    last = max((place for points in series for place, _, _ in points), default=0)
    # There is no round 1.5; with more rounds plotly's own steps are whole.
    figure.update_xaxes(rangemode="tozero", dtick=1 if last <= 10 else None)
    return figure


def epsilon_by_round(values: Sequence[float], server: Sequence[tuple[int, float]]) -> Figure:
    """Return both epsilons after each round, all rounds counted: against outsiders, and against the server."""
    require("a figure", "plotly")
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    step = max(1, len(values) // 400)  # more points than pixels only make the page larger
    outsiders = [*enumerate(values, start=1)][::step] + ([(len(values), values[-1])] if values else [])
    for name, points, color, dash in (
        ("against outsiders", outsiders, PALETTE[0], "solid"),
        ("against the server", server, PALETTE[1], "dash"),
    ):
        figure.add_trace(
            Scatter(
                x=[round_ for round_, _ in points],
                y=[float(f"{value:.6g}") for _, value in points],
                name=name,
                mode="lines",
                hovertemplate="%{y:.4g} after round %{x}<extra>%{fullData.name}</extra>",
                line={"color": color, "width": 2, "dash": dash},
            )
        )
    frame(figure, "round", "epsilon, all rounds so far")
    figure.update_layout(showlegend=True)
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    return figure


def legend(runs: Sequence[Run]) -> list[tuple[str, str, bool, dict[str, str]]]:
    """Return each run's name, colour, whether its line is dashed, and its mark as an SVG path and fill."""
    return [
        (name, color, dash != "solid", {"path": SYMBOLS[symbol], "fill": "none" if hollow else color})
        for name, (color, dash, symbol, hollow) in zip(label(runs), styles(runs), strict=True)
    ]


def words(metric: str) -> str:
    """Return a metric's name for people, as titles and axes have it.

    >>> words("balanced_accuracy"), words("auroc")
    ('balanced accuracy', 'AUROC')
    """
    return METRICS[metric].words if metric in METRICS else metric.replace("_", " ")


def heading(metric: str) -> str:
    """Return a metric's name at the beginning of a title.

    >>> heading("balanced_accuracy"), heading("auroc")
    ('Balanced accuracy', 'AUROC')
    """
    name = words(metric)
    return name[0].upper() + name[1:]


def _bytes_so_far(run: Run) -> list[float]:
    return list(accumulate(float(record["bytes_up"]) for record in run.rounds))


def _points(run: Run, metric: str, places: Sequence[float]) -> Points:
    evaluated = {id(record) for record in run.evaluated(metric)}
    return [
        (place, float(f"{record[metric]:.6g}"), record)  # more digits make a page of many runs too large
        for place, record in zip(places, run.rounds, strict=True)
        if id(record) in evaluated
    ]


def _draw(runs: Sequence[Run], series: Sequence[Points], metric: str, across: str) -> Figure:
    require("a figure", "plotly")
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for name, points, style in zip(label(runs), series, styles(runs), strict=True):
        color, dash, symbol, hollow = style
        figure.add_trace(
            Scatter(
                x=[place for place, _, _ in points],
                y=[value for _, value, _ in points],
                # plotly reads <a> and <b> in names.
                name=html.escape(name),
                **({} if across == "round" else {"customdata": [record["round"] for _, _, record in points]}),
                hovertemplate=(
                    ("%{y:.4f} in round %{x}" if across == "round" else "%{y:.4f} in round %{customdata} after %{x}")
                    + "<extra>%{fullData.name}</extra>"
                ),
                mode="lines+markers",
                line={"color": color, "width": 2, "dash": dash},
                marker={
                    "color": color,
                    "size": 7,
                    "symbol": f"{symbol}-open" if hollow else symbol,
                    "maxdisplayed": _MARKS,
                },
            )
        )
    frame(figure, across, words(metric))
    if any(series):
        draw_chance(figure, chance(runs, metric))
    if not any(series):
        figure.add_annotation(
            text="no round has been evaluated yet", showarrow=False, xref="paper", yref="paper", x=0.5, y=0.5
        )
    return figure


def draw_chance(figure: Figure, line: tuple[float, str] | None) -> None:
    """Draw where a model lies that looks at no record; none if that is not known."""
    if line is not None:
        level, told = line
        figure.add_hline(
            y=level,
            line={"color": _GREY, "width": 1.5, "dash": "dot"},
            annotation={"text": html.escape(told), "font": {"size": 12}},
            annotation_position="bottom right",
        )


def frame(figure: Figure, across: str, up: str) -> None:
    """Give a figure the page's look: axes with these titles, no paper of its own, no legend."""
    axis = {"showline": True, "linecolor": _GREY, "ticks": "outside", "tickcolor": _GREY, "zeroline": False}
    axis |= {"gridcolor": "rgba(128,128,128,0.2)"}
    axis["automargin"] = True  # long tick labels push the axis title away instead of running into it
    figure.update_layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13},
        margin={"l": 58, "r": 16, "t": 12, "b": 56},
        xaxis={**axis, "title": {"text": across, "standoff": 10}},
        # No format of ours: plotly gives ticks as many digits as tell them apart, however close they are.
        yaxis={**axis, "title": {"text": up, "standoff": 8}},
        hovermode="closest",
        showlegend=False,  # the page has one legend for all figures
    )


def styles(runs: Sequence[Run]) -> list[tuple[str, str, str, bool]]:
    """Return colour, dash, symbol and hollowness of each run.

    Where schemes tell the runs apart, a scheme and its private twin share a colour, and the twin is dashed and hollow.
    """
    kinds = [(run.scheme, run.private) for run in runs]
    schemes = list(dict.fromkeys(run.scheme for run in runs))
    told_apart = len(set(kinds)) == len(kinds)
    found = []
    for index, run in enumerate(runs):
        place = schemes.index(run.scheme) if told_apart else index
        # Seven colours and six symbols: forty-two runs before two look the same.
        symbol = list(SYMBOLS)[place % len(SYMBOLS)]
        found.append((PALETTE[place % len(PALETTE)], "dash" if run.private else "solid", symbol, run.private))
    return found


def decades(low: float, high: float) -> list[float]:
    """Return ticks: 1, 2 and 5 times powers of ten, or the powers alone over a wide range, around low to high."""
    exponents = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 2)
    steps = (1,) if high > 1000 * low else (1, 2, 5)
    ticks = [float(f"{step}e{exponent}") for exponent in exponents for step in steps]
    return [tick for tick in ticks if low / 2 <= tick <= high * 2]


def names_of(ticks: Sequence[float]) -> list[str]:
    """Return the ticks as bytes for people, without digits that say nothing."""
    return [human_bytes(tick).replace(".00", "").replace(".0", "") for tick in ticks]
