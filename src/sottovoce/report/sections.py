"""Gather what the page shows, section by section; every part is empty where there is nothing to show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sottovoce.report.attacks import attack_of, diverged
from sottovoce.report.audits import accusations
from sottovoce.report.bars import audit_bars
from sottovoce.report.classes import by_class
from sottovoce.report.curves import curves, line_legend
from sottovoce.report.matrix import remarks, views
from sottovoce.report.phases import phase_bars
from sottovoce.report.robustness import cells
from sottovoce.report.rounds import MANY, Drawn, Panel, panels, round_figures
from sottovoce.report.runs import Facts, Run, lead
from sottovoce.report.trade import trade_legend, trades
from sottovoce.report.units import percent
from sottovoce.report.weights import weight_figure

__all__ = ["alarms", "attack_lead", "attack_section", "audit_section", "figure_section", "trade_section"]

_SHOWN: Final = 12  # curves that are drawn at once; the others when a reader opens them
_AGAINST: Final = {"epsilon": "outsiders", "epsilon_server": "the server"}


def alarms(records: Sequence[Facts]) -> list[tuple[str, str]]:
    """Return what audits hold against runs, and whom."""
    return [(str(record["label"]), reason) for record in records for reason in accusations(record)]


def attack_lead(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return the attacks and the shares of malicious clients, as a term and words; none if nobody attacks."""
    found = [(*attack_of(run.table("threat")), run.table("threat").get("of")) for run in runs]
    names = dict.fromkeys(name for name, _, _ in found if name is not None)
    if not names:
        return []
    shares = dict.fromkeys(percent(share) for _, share, _ in sorted(found, key=_share) if share is not None)
    base = dict.fromkeys(str(of) for _, _, of in found if of is not None)
    whose = f" of the {' or '.join(base)}" if base else ""
    honest = "; some runs without" if any(name is None for name, _, _ in found) else ""
    return [("attacks", f"{', '.join(names)}; {', '.join(shares)}{whose} malicious{honest}")]


def _share(found: tuple[Any, float | None, Any]) -> float:
    return 0.0 if found[1] is None else found[1]


def attack_section(runs: Sequence[Run], records: Sequence[Facts]) -> dict[str, Any]:
    """Return matrices, curves and class tables; `records` are the facts of the runs, in their order."""
    found, drawn = cells(runs, records), curves(runs, records)
    figures = [
        (f"curve-{index}", caption, figure.to_json(engine="json")) for index, (caption, figure) in enumerate(drawn)
    ]
    matrices = views(found, lead(runs))
    return {
        "matrices": matrices,
        "remarks": remarks(found) if matrices else [],
        "curves": figures[:_SHOWN],
        "folded": figures[_SHOWN:],
        "legend": line_legend(drawn),
        "classes": by_class(runs, records),
    }


def audit_section(records: Sequence[Facts]) -> dict[str, Any]:
    """Return the figures of proven and measured epsilon, each with its height in lines, and what the audits say."""
    figures = []
    for key, whom in _AGAINST.items():
        figure = audit_bars(records, key)
        if figure is not None:
            height = 6 + 5 * len(figure.data[0].y)
            figures.append((f"audit-{key}", f"Epsilon against {whom}", figure.to_json(engine="json"), height))
    audits = [record["audit"] for record in records if record.get("audit")]
    levels = dict.fromkeys(percent(level) for audit in audits if (level := audit.get("confidence")) is not None)
    told = dict.fromkeys(str(audit["note"]) for audit in audits if audit.get("note"))
    return {
        "figures": figures,
        "confidence": " or ".join(levels),
        "notes": [*told],
    }


def trade_section(runs: Sequence[Run], records: Sequence[Facts]) -> dict[str, Any]:
    """Return the figures of quality against its prices, their legend, and which runs could not be drawn."""
    return {
        "figures": [(name, caption, figure.to_json(engine="json")) for name, caption, figure in trades(runs, records)],
        "legend": trade_legend(runs),
        "left_out": ", ".join(str(record["label"]) for record in records if diverged(record)),
    }


def figure_section(runs: Sequence[Run], records: Sequence[Facts]) -> list[dict[str, Any]]:
    """Return the figures of runs beside each other; of many runs all but two are drawn when a reader opens them."""
    drawn = round_figures(runs)
    bars, weights = phase_bars(runs, records), weight_figure(runs)
    if bars is not None:
        caption = "Bytes of one client by phase, whole run"
        height = max(20, 10 + 3 * len(bars.data[0].y))
        drawn.append(Drawn("phases", caption, [Panel("phases", caption, bars, [], height)]))
    if weights is not None:
        drawn.append(Drawn("weights", weights[0], panels("weights", *weights, runs)))
    return [
        {
            "caption": figure.caption,
            "folded": f"fold-{figure.name}" if len(runs) > MANY and place > 1 else None,
            "panels": [panel._asdict() | {"figure": panel.figure.to_json(engine="json")} for panel in figure.panels],
        }
        for place, figure in enumerate(drawn)
    ]
