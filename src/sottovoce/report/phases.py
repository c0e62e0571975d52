"""Tell what one client sends and receives in a whole run, phase by phase; expected values in private runs."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sottovoce.report.figures import PALETTE, frame
from sottovoce.report.runs import Facts, Run
from sottovoce.report.units import finite, human_bytes

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_ROUNDS: Final = "rounds"  # whose rounds have one phase, or do not tell their phases
_WAYS: Final = ("up", "down")
_ORDER: Final = ("set-up", "vote", "warm start", "whitening", "enrol", _ROUNDS, "advertise", "share", "mask", "unmask")


class PhaseBytes(NamedTuple):
    """Bytes of one client in all rounds, on average over all clients: a phase, a direction, a number."""

    phase: str
    direction: str  # "up" or "down"
    size: float


def client_bytes(run: Run, record: Facts) -> list[PhaseBytes]:
    """Return what a client sends and receives from set-up to the last round; empty if the clients are not counted.

    A run that is not private tells what was measured in each phase; a private one what was to be expected.
    """
    clients = finite(record.get("clients")) or finite(run.table("data").get("clients"))
    if not clients:
        return []
    parts = [
        PhaseBytes("set-up", "down", finite(record.get("bytes_setup_per_client")) or 0.0),
        *(PhaseBytes("vote", way, (finite(record.get(f"bytes_vote_{way}_total")) or 0.0) / clients) for way in _WAYS),
    ]
    for name in ("warm start", "whitening"):
        cost = record.get(name.replace(" ", "_"))
        if isinstance(cost, Mapping):
            parts += [PhaseBytes(name, way, (finite(cost.get(f"bytes_{way}_total")) or 0.0) / clients) for way in _WAYS]
    rounds = list(_measured(run, clients) if run.tells_cohorts else _expected(record, clients))
    totals = {way: (finite(record.get(f"bytes_{way}_total")) or 0.0) / clients for way in _WAYS}
    told = {way: sum(part.size for part in rounds if part.direction == way) for way in _WAYS}
    # What the phases do not explain (a round that was aborted, a version that tells no phases) is not lost.
    rest = [PhaseBytes(_ROUNDS, way, totals[way] - told[way]) for way in _WAYS if totals[way] - told[way] > 0.5]
    if any(part.size < 0 for part in rounds) or any(told[way] > 1.01 * totals[way] + 1 for way in _WAYS):
        rounds, rest = [], [PhaseBytes(_ROUNDS, way, totals[way]) for way in _WAYS]
    return [part for part in (*parts, *rounds, *rest) if part.size > 0]


def phase_bars(runs: Sequence[Run], records: Sequence[Facts]) -> Figure | None:
    """Return a stacked bar a run: bytes of one client in the whole run; colour is the phase, hatching is down."""
    from plotly.graph_objects import Bar, Figure

    found = [(record, parts) for run, record in zip(runs, records, strict=True) if (parts := client_bytes(run, record))]
    if not found:
        return None
    kinds = sorted({(part.phase, part.direction) for _, parts in found for part in parts}, key=_place)
    phases = list(dict.fromkeys(phase for phase, _ in kinds))
    places = list(range(len(found)))[::-1]  # plotly draws from below
    figure = Figure()
    for phase, way in kinds:
        color = PALETTE[phases.index(phase) % len(PALETTE)]
        sizes = [sum(part.size for part in parts if (part.phase, part.direction) == (phase, way)) for _, parts in found]
        figure.add_trace(
            Bar(
                x=[round(size, 1) for size in sizes],
                y=places,
                orientation="h",
                name=html.escape(f"{phase}, {way}"),
                customdata=[
                    [human_bytes(size), html.escape(str(record["label"]))]
                    for size, (record, _) in zip(sizes, found, strict=True)
                ],
                hovertemplate="%{customdata[1]}: %{customdata[0]}<extra>%{fullData.name}</extra>",
                marker={
                    "color": color,
                    "pattern": {"shape": "/" if way == "down" else "", "fgcolor": color, "fillmode": "replace"},
                    "line": {"color": color, "width": 1},
                },
            )
        )
    frame(figure, "bytes of one client, whole run", "")
    for place, (record, parts) in zip(places, found, strict=True):
        expected = ", expected" if record.get("bytes_expected") else ""
        words = f"{html.escape(str(record['label']))}: {human_bytes(sum(part.size for part in parts))}{expected}"
        where = {"x": 0, "y": place + 0.28, "xref": "paper", "xanchor": "left", "yanchor": "bottom"}
        figure.add_annotation(text=words, showarrow=False, font={"size": 12}, borderpad=0, **where)
    figure.update_yaxes(showticklabels=False, ticks="", range=[-0.5, len(found) - 0.2], showgrid=False)
    figure.update_xaxes(tickformat="~s", ticksuffix="B", rangemode="tozero", nticks=6)
    # The page's legend is of runs; this one is of phases.
    below = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "traceorder": "normal"}
    figure.update_layout(barmode="stack", bargap=0.5, margin={"l": 16, "b": 110}, showlegend=True, legend=below)
    return figure


def _place(kind: tuple[str, str]) -> tuple[int, str, int]:
    phase, way = kind
    return _ORDER.index(phase) if phase in _ORDER else len(_ORDER), phase, _WAYS.index(way)


def _measured(run: Run, clients: float) -> Iterator[PhaseBytes]:
    """Add up the phases of the rounds; a round in one phase has none."""
    sums: dict[tuple[str, str], float] = {}
    for record in run.rounds:
        phases = record.get("phases")
        if not isinstance(phases, Mapping):
            phases = {_ROUNDS: {way: record[f"bytes_{way}"] for way in _WAYS}}
        for phase, way, size in _sizes(phases):
            sums[phase, way] = sums.get((phase, way), 0.0) + size
    for (phase, way), size in sums.items():
        yield PhaseBytes(phase, way, size / clients)


def _expected(record: Facts, clients: float) -> Iterator[PhaseBytes]:
    """Multiply what a client of the expected cohort has in a round."""
    asked = (finite(record.get("rounds")) or 0.0) * (finite(record.get("expected_cohort")) or 0.0) / clients
    phases = record.get("bytes_per_client_phase")
    alone = isinstance(phases, Mapping) and len(phases) == 1
    for phase, way, size in _sizes(phases):
        yield PhaseBytes(_ROUNDS if alone else phase, way, size * asked)
    once = {"enrol": record.get("bytes_enrolment_per_client")}
    for phase, way, size in _sizes(once):
        yield PhaseBytes(phase, way, size * (finite(record.get("expected_cohort")) or 0.0) / clients)


def _sizes(phases: Any) -> Iterator[tuple[str, str, float]]:
    if isinstance(phases, Mapping):
        for phase, sizes in phases.items():
            if isinstance(sizes, Mapping):
                yield from ((str(phase), way, finite(sizes.get(way)) or 0.0) for way in _WAYS)
