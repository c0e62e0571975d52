"""Write one HTML file that explains a comparison and needs no network."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sottovoce.core.packages import require
from sottovoce.models.metrics import higher_is_better
from sottovoce.report.attacks import DIVERGED, attack_of, diverged
from sottovoce.report.audits import accusations
from sottovoce.report.bars import audit_bars
from sottovoce.report.classes import by_class
from sottovoce.report.curves import curves, line_legend
from sottovoce.report.decision import decide
from sottovoce.report.devices import device_section
from sottovoce.report.figures import legend, words
from sottovoce.report.matrix import remarks, views
from sottovoce.report.pages import page_environment
from sottovoce.report.phases import phase_bars
from sottovoce.report.quality import advice, matrices, weak
from sottovoce.report.robustness import cells
from sottovoce.report.rounds import MANY, Panel, RunsFigure, panels, round_figures
from sottovoce.report.runs import DAMAGED, Facts, Run, facts, lead
from sottovoce.report.save import save
from sottovoce.report.tables import ADVERSARIES, TableColumn, notes, split
from sottovoce.report.trade import trade_legend, trades
from sottovoce.report.units import ABSENT, decimal, epsilon, human_bytes, percent
from sottovoce.report.weights import weight_figure
from sottovoce.runs.population import source_words

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
        drawn.append(RunsFigure("phases", caption, [Panel("phases", caption, bars, [], height)]))
    if weights is not None:
        drawn.append(RunsFigure("weights", weights[0], panels("weights", *weights, runs)))
    return [
        {
            "caption": figure.caption,
            "folded": f"fold-{figure.name}" if len(runs) > MANY and place > 1 else None,
            "panels": [panel._asdict() | {"figure": panel.figure.to_json(engine="json")} for panel in figure.panels],
        }
        for place, figure in enumerate(drawn)
    ]


# The browser itself keeps the page from loading or sending anything; pictures to save are data and blobs.
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none';"
)
_CHARACTERS: Final = 200  # of a table that a window of 1400 pixels shows whole
_MOST: Final = 4  # names of runs that share a highlight
_FOLDERS: Final = re.compile(r'"/(?:[^"/\n]+/)+')  # of an absolute path in a config
_NAME: Final = 14  # characters of a run's name on one line, about


def write_html(runs: Sequence[Run], path: Path, damaged: Sequence[Facts] = ()) -> None:
    """Write the report in one step: the old file or the whole new one, never a part."""
    save(page(runs, damaged).encode(), path, "--html")


def write_figure(
    figure: Any, path: Path, *, title: str, caption: str, lines: Sequence[str] = (), facts: Mapping[str, str]
) -> None:
    """Write one figure as a page of its own, in the report's design, that needs no network."""
    text = (
        _environment()
        .get_template("figure.html")
        .render(
            title=title,
            caption=caption,
            lines=lines,
            facts=facts,
            figure=figure.to_json(engine="json"),
            policy=_POLICY,
        )
    )
    save(text.encode(), path, "--html")


def _environment() -> Any:
    # Figures come as JSON in which plotly has already escaped "<" and "/".
    require("a page with figures", "plotly", "jinja2")
    return page_environment()


def page(runs: Sequence[Run], damaged: Sequence[Facts] = (), *, watching: str | None = None) -> str:
    """Return the report as one page, with everything it needs inside; damaged runs are named with the reason.

    `watching` is the state of the folders if the page is served and follows them.
    """
    environment = _environment()
    told, metric = facts(runs), lead(runs)
    records = [*told, *damaged]
    trade, attack, audit = trade_section(runs, told), attack_section(runs, told), audit_section(told)
    figures = figure_section(runs, told)
    text: str = environment.get_template("page.html").render(
        title=_title(runs),
        lead=_lead(runs),
        differences=_differences(runs),
        decision=decide(records, metric),
        highlights=_highlights(records, metric),
        tables=[(_headings(chosen), chosen) for chosen in split(records, _CHARACTERS, folded=_NAME)],
        records=records,
        notes=notes(records),
        alarms=alarms(told),
        weak=_weak(told),
        matrices=matrices(told),
        attack=attack,
        audit=audit,
        device=device_section(told),
        any_attack=any(record.get("attack") for record in told),
        any_votes=any(record.get("votes") is not None for record in told),
        any_diverged=any(map(diverged, told)),
        broken=DIVERGED,
        legend=legend(runs),
        trade=trade,
        figures=figures,
        many=len(runs) > MANY,
        drawn=[
            *((name, data) for name, _, data in (*trade["figures"], *attack["curves"])),
            *((name, data) for name, _, data, _ in audit["figures"]),
            *(panel for figure in figures if not figure["folded"] for panel in _drawn(figure)),
        ],
        folds={figure["folded"]: _drawn(figure) for figure in figures if figure["folded"]}
        | ({"folded": [(name, data) for name, _, data in attack["folded"]]} if attack["folded"] else {}),
        watching=watching,
        policy=_POLICY + (" connect-src 'self';" if watching else ""),
        selected_by=_words(words(run.lead) for run in runs),
        expected=any(record.get("bytes_expected") for record in records),
        adversaries=ADVERSARIES,
        details=_details(runs, told),
        unfinished=any(run.summary is None for run in runs),
        any_private=any(run.private for run in runs),
        all_private=all(run.private for run in runs),
    )
    return text


def _weak(records: Sequence[Facts]) -> list[tuple[str, str, str]]:
    """Return which runs have no model worth the name: whose, why, and what to try."""
    found = [(record, weak(record)) for record in records]
    return [(str(record["label"]), told, "; ".join(advice(record))) for record, told in found if told is not None]


def _drawn(figure: dict[str, Any]) -> list[tuple[str, str]]:
    return [(panel["name"], panel["figure"]) for panel in figure["panels"]]


def _title(runs: Sequence[Run]) -> str:
    sources = _words(map(_source, runs))
    return f"{len(runs)} run{'s' if len(runs) > 1 else ''} on {sources}"


def _source(run: Run) -> str:
    """Name the data of a run; a page is shared, so the folders of this machine are left out."""
    return source_words(run.table("data").get("source", "unknown data"))


def _shared(config: str) -> str:
    """Return the text of a config without the folders of absolute paths."""
    return _FOLDERS.sub('"', config)


def _lead(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return what was compared, as terms and words."""

    def told(table: str, key: str) -> str:
        return _words(str(run.table(table).get(key, ABSENT)) for run in runs)

    return [
        ("schemes", _words(f"{run.scheme}{' (private)' if run.private else ''}" for run in runs)),
        ("data", f"{_words(map(_source, runs))}, {told('data', 'partition')} over {told('data', 'clients')} clients"),
        ("model", told("model", "name")),
        ("cohort", f"{told('cohort', 'sampling')} sampling at a rate of {told('cohort', 'sample_rate')}"),
        ("rounds", told("experiment", "rounds")),
        (
            "local training",
            f"{told('client', 'local_steps')} steps of batch {told('client', 'batch_size')}, "
            f"{told('client', 'optimizer')}, learning rate {told('client', 'client_lr')}",
        ),
        *attack_lead(runs),
        ("seeds", told("experiment", "seed")),
    ]


def _differences(runs: Sequence[Run]) -> list[str]:
    """Name the keys in which the experiments differ, or the table that only some have; names do not change a result."""
    tables = {table for run in runs for table in run.tables} - {"engine", "sweep"}
    partial = {table for table in tables if not all(run.table(table) for run in runs)}
    shared = {(table, key) for run in runs for table in tables - partial for key in run.table(table)}
    keys = {
        f"{table}.{key}"
        for table, key in shared - {("experiment", "name")}
        if len({repr(run.table(table).get(key)) for run in runs}) > 1
    }
    return sorted(keys) + [f"[{table}]" for table in sorted(partial)]


def _highlights(records: Sequence[Facts], metric: str) -> list[tuple[str, str, str]]:
    """Return (what, value, whose) for the extremes of a comparison."""
    if sum(record["status"] != DAMAGED for record in records) < 2:
        return []
    sound = [record for record in records if not diverged(record) and weak(record) is None]
    private = [record for record in records if record.get("private")]
    side = "highest" if higher_is_better(metric) else "lowest"
    asked = (
        (f"{side} {words(metric)}, best round", sound, f"{metric}_best", max if side == "highest" else min, decimal),
        ("fewest bytes up, per client and round", records, "bytes_up_per_client_round", min, human_bytes),
        ("smallest epsilon against others", private, "epsilon", min, epsilon),
    )
    chosen = []
    for what, among, key, extreme, show in asked:
        shown = [(record[key], str(record["label"])) for record in among if _is_finite(record.get(key))]
        if shown:
            value = extreme(number for number, _ in shown)
            chosen.append((what, show(value), _some([name for number, name in shown if number == value])))
    return chosen


def _some(names: Sequence[str]) -> str:
    """Return the names, or the first of them where there are many, as in a large sweep."""
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _headings(chosen: Sequence[TableColumn]) -> list[tuple[str, int]]:
    """Return the upper line of the table's head: a group and how many columns it spans."""
    spans: list[tuple[str, int]] = []
    for column in chosen:
        if spans and spans[-1][0] == column.group:
            spans[-1] = (column.group, spans[-1][1] + 1)
        else:
            spans.append((column.group, 1))
    return spans


def _details(runs: Sequence[Run], records: Sequence[Facts]) -> list[dict[str, Any]]:
    return [
        {
            "label": record["label"],
            "status": record["status"],
            "command": shlex.join(["sottovoce", "run", str(run.path / "config.toml"), "--out", f"{run.path}-again"]),
            "config": _shared(run.config),
            "public": record.get("public"),
        }
        for run, record in zip(runs, records, strict=True)
    ]


def _words(values: Any) -> str:
    return ", ".join(dict.fromkeys(values))
