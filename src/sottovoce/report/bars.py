"""Draw what was proven of a run's privacy beside what an audit measured."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sottovoce.report.audits import LOWER, accusations, audited
from sottovoce.report.figures import PALETTE, frame
from sottovoce.report.runs import Facts
from sottovoce.report.units import epsilon, finite

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def audit_bars(records: Sequence[Facts], proven: str) -> Figure | None:
    """Return epsilon by proof and by measurement, two bars a run, against one adversary; None if none was audited."""
    from plotly.graph_objects import Bar, Figure

    lower = LOWER[proven]
    shown = [record for record in records if finite((record.get("audit") or {}).get(lower)) is not None]
    if not shown:
        return None
    # plotly reads <a> and <b> in names; numbers keep apart runs of one name, and plotly draws from below.
    names = [html.escape(str(record["label"])) for record in shown]
    places = list(range(len(shown)))[::-1]
    figure = Figure()
    for key, name, color, pattern, words in (
        (lower, "measured: at least", PALETTE[1], "/", audited),
        (proven, "proven: at most", PALETTE[0], "", epsilon),
    ):
        values = [finite(record["audit"].get(key)) for record in shown]
        figure.add_trace(
            Bar(
                x=[value or 0 for value in values],
                y=places,
                orientation="h",
                name=name,
                marker={
                    "color": color,
                    "pattern": {"shape": pattern, "fgcolor": color, "fillmode": "replace", "size": 7},
                    "line": {"color": color, "width": 1.5},
                },
                text=[f" {words(value)}" if value is not None else " ∞, nothing was proven" for value in values],
                textposition="outside",
                cliponaxis=False,
                hovertemplate="%{text}<extra>%{fullData.name}</extra>",
            )
        )
    frame(figure, "epsilon", "")
    marked = [f"{name} ⚠" if _guilty(record, proven) else name for name, record in zip(names, shown, strict=True)]
    # Names stand above their bars: beside them, they would leave a phone no room for the bars.
    for place, name in zip(places, marked, strict=True):
        where = {"x": 0, "y": place + 0.36, "xref": "paper", "xanchor": "left", "yanchor": "bottom"}
        figure.add_annotation(text=name, showarrow=False, font={"size": 13}, borderpad=0, **where)
    figure.update_yaxes(showticklabels=False, ticks="", range=[-0.5, len(shown) - 0.3], showgrid=False)
    largest = max(finite(record["audit"].get(key)) or 0 for record in shown for key in (lower, proven))
    figure.update_xaxes(range=[0, 1.25 * largest or 1])  # room for the numbers at the ends
    figure.update_layout(barmode="group", bargap=0.36, margin={"l": 16}, bargroupgap=0.08)
    return figure


def _guilty(record: Facts, proven: str) -> bool:
    """Tell whether an accused run is so against this adversary; against both if the numbers do not tell."""
    beyond = {
        key
        for key, lower in LOWER.items()
        if (finite(record["audit"].get(lower)) or 0) > (finite(record["audit"].get(key)) or math.inf)
    }
    return bool(accusations(record)) and (not beyond or proven in beyond)
