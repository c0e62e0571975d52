"""Draw what the final models are worth against what they cost: bytes, epsilon, joules."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sottovoce.report.attacks import diverged
from sottovoce.report.devices import joules_of_run
from sottovoce.report.figures import PALETTE, SYMBOLS, decades, draw_chance, frame, heading, names_of, words
from sottovoce.report.phases import client_bytes
from sottovoce.report.quality import chance
from sottovoce.report.runs import Facts, Run, lead
from sottovoce.report.units import ABSENT, decimal, epsilon, finite, human_bytes

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_GREY: Final = "#808080"
_LARGEST, _SMALLEST = 22, 9  # of the marks, in pixels: the most private run, and one that is not private


@dataclass(frozen=True)
class CostAxis:
    """A cost that the quality of the final model is drawn against."""

    caption: str
    axis: str
    value: Callable[[Run, Facts], float | None]


@dataclass(frozen=True)
class Point:
    """One run in the figure: what it cost, what its final model is worth."""

    cost: float
    quality: float
    run: Run
    record: Facts

    @property
    def epsilon(self) -> float | None:
        """Return epsilon against outsiders; None if the run is not private."""
        return finite(self.record.get("epsilon")) if self.record.get("private") else None


def _bytes(run: Run, record: Facts) -> float | None:
    return sum(part.size for part in client_bytes(run, record)) or None


def _epsilon(key: str) -> Callable[[Run, Facts], float | None]:
    return lambda _, record: finite(record.get(key)) if record.get("private") else None


COSTS: Final = {
    "trade-bytes": CostAxis("{metric} for bytes", "bytes of one client, whole run, up and down", _bytes),
    "trade-epsilon": CostAxis(
        "{metric} for privacy, against outsiders", "epsilon against outsiders", _epsilon("epsilon")
    ),
    "trade-server": CostAxis(
        "{metric} for privacy, against the server", "epsilon against the server", _epsilon("epsilon_server")
    ),
    "trade-joules": CostAxis("{metric} for energy", "joules of one client, whole run", lambda _, r: joules_of_run(r)),
}


def trades(runs: Sequence[Run], records: Sequence[Facts]) -> list[tuple[str, str, Figure]]:
    """Return id, caption and figure for bytes, and for every other cost in which the runs differ."""
    metric = lead(runs)
    drawn = []
    for name, cost in COSTS.items():
        found = points(runs, records, cost, metric)
        spread = max((point.cost for point in found), default=0) > 1.05 * min((p.cost for p in found), default=0)
        if spread or (found and name == "trade-bytes"):
            caption = cost.caption.format(metric=heading(metric))
            drawn.append((name, caption, trade(found, cost, metric, _schemes(runs))))
    return drawn


def points(runs: Sequence[Run], records: Sequence[Facts], cost: CostAxis, metric: str) -> list[Point]:
    """Return the runs that have both numbers; a run that diverged has no quality to speak of."""
    found = []
    for run, record in zip(runs, records, strict=True):
        spent, quality = cost.value(run, record), finite(record.get(f"{metric}_final"))
        if spent is not None and spent > 0 and quality is not None and not diverged(record):
            found.append(Point(spent, quality, run, record))
    return found


def front(found: Sequence[Point]) -> list[Point]:
    """Return the points that no other one beats: of those that cost no more, each is worth strictly the most."""
    best: list[Point] = []
    for point in sorted(found, key=lambda one: (one.cost, -one.quality)):
        if not best or point.quality > best[-1].quality:
            best.append(point)
    return best


def trade(found: Sequence[Point], cost: CostAxis, metric: str, schemes: Sequence[str]) -> Figure:
    """Return one mark a run: colour and shape tell the scheme, hollow is private, and its size tells epsilon.

    Grey lines join the runs that no other run beats, private ones and others apart: privacy is a cost of its own.
    """
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for private, dash in ((False, "dot"), (True, "solid")):
        best = front([point for point in found if bool(point.record.get("private")) is private])
        if len(best) > 1:
            figure.add_trace(
                Scatter(
                    x=[point.cost for point in best],
                    y=[point.quality for point in best],
                    name=f"not beaten, {'private' if private else 'not private'}",
                    mode="lines",
                    hoverinfo="skip",
                    line={"color": _GREY, "width": 1.5, "dash": dash, "shape": "hv"},
                )
            )
    sizes = _sizes(found)
    for scheme, (color, symbol) in _looks(schemes).items():
        mine = [(point, size) for point, size in zip(found, sizes, strict=True) if point.run.scheme == scheme]
        if not mine:
            continue
        figure.add_trace(
            Scatter(
                x=[point.cost for point, _ in mine],
                y=[point.quality for point, _ in mine],
                name=html.escape(scheme),
                mode="markers",
                text=[_told(point, metric) for point, _ in mine],
                hovertemplate="%{text}<extra></extra>",
                marker={
                    "color": color,
                    "size": [size for _, size in mine],
                    "symbol": [f"{symbol}-open" if point.record.get("private") else symbol for point, _ in mine],
                    "opacity": [0.9 if point.run.summary is not None else 0.45 for point, _ in mine],
                    "line": {"color": color, "width": 2},
                },
            )
        )
    frame(figure, cost.axis, f"{words(metric)}, final model")
    draw_chance(figure, chance([point.run for point in found], metric))
    low, high = min(point.cost for point in found), max(point.cost for point in found)
    if high > 10 * low:
        ticks = decades(low, high)
        told = names_of(ticks) if cost.value is _bytes else [f"{tick:g}" for tick in ticks]
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=told)
    else:
        byte = {"tickformat": "~s", "ticksuffix": "B"} if cost.value is _bytes else {}
        figure.update_xaxes(rangemode="tozero", nticks=6, **byte)
    return figure


def trade_legend(runs: Sequence[Run]) -> list[tuple[str, str, dict[str, str]]]:
    """Return name, colour and mark of every scheme."""
    looks = _looks(_schemes(runs))
    return [(name, color, {"path": SYMBOLS[symbol], "fill": color}) for name, (color, symbol) in looks.items()]


def _schemes(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run.scheme for run in runs))


def _looks(schemes: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return colour and symbol of each scheme, those of the lines where these tell schemes apart."""
    return {
        scheme: (PALETTE[place % len(PALETTE)], list(SYMBOLS)[place % len(SYMBOLS)])
        for place, scheme in enumerate(schemes)
    }


def _sizes(found: Sequence[Point]) -> list[float]:
    """Return the marks' sizes: the smaller epsilon, the larger the mark, by its logarithm."""
    logs = [math.log(point.epsilon) for point in found if point.epsilon]
    low, high = min(logs, default=0.0), max(logs, default=0.0)
    span = high - low
    sizes = []
    for point in found:
        if not point.epsilon:
            sizes.append(float(_SMALLEST))
        else:
            share = (high - math.log(point.epsilon)) / span if span > 0.05 else 0.5
            sizes.append(round(_SMALLEST + 3 + share * (_LARGEST - _SMALLEST - 3), 1))
    return sizes


def _told(point: Point, metric: str) -> str:
    """Return what pointing at a run shows."""
    record: Any = point.record
    private = bool(record.get("private"))
    parts = client_bytes(point.run, record)
    up, down = (sum(part.size for part in parts if part.direction == way) for way in ("up", "down"))
    joules = joules_of_run(record)
    lines = [
        f"<b>{html.escape(str(record['label']))}</b>",
        html.escape(f"{point.run.scheme}{', private' if private else ''}, {record['status']}"),
        f"{words(metric)}: final {decimal(point.quality)}, best {decimal(record.get(f'{metric}_best'))}",
        f"epsilon: {epsilon(record.get('epsilon'))} against outsiders, {epsilon(record.get('epsilon_server'))} against "
        "the server"
        if private
        else "epsilon: ∞",
        f"bytes of a client: {human_bytes(up or None)} up, {human_bytes(down or None)} down"
        + (" (expected)" if record.get("bytes_expected") else ""),
    ]
    if joules is not None:
        lines.append(f"joules of a client: {joules:.2g}")
    return "<br>".join(line.replace(ABSENT, "?") for line in lines)
