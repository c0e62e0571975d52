"""Write one HTML file that explains a comparison and needs no network."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sottovoce.report.attacks import DIVERGED, diverged
from sottovoce.report.columns import ADVERSARIES, Column
from sottovoce.report.devices import device_section
from sottovoce.report.figures import legend, words
from sottovoce.report.rounds import MANY
from sottovoce.report.runs import DAMAGED, Facts, Run, facts, lead
from sottovoce.report.save import save
from sottovoce.report.sections import (
    alarms,
    attack_lead,
    attack_section,
    audit_section,
    figure_section,
    trade_section,
)
from sottovoce.report.tables import notes, split
from sottovoce.report.units import ABSENT, decimal, epsilon, human_bytes

__all__ = ["page", "write_figure", "write_html"]


# The browser itself keeps the page from loading or sending anything; plotly makes pictures as data and blobs.
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none';"
)
_CHARACTERS: Final = 200  # of a table that a window of 1400 pixels shows whole
_MOST: Final = 4  # names of runs that share a highlight
_NAME: Final = 14  # characters of a run's name on one line, about


def write_html(runs: Sequence[Run], path: Path, damaged: Sequence[Facts] = ()) -> None:
    """Write the report in one step: the old file or the whole new one, never a part."""
    save(page(runs, damaged).encode(), path, "--html")


def write_figure(figure: Any, path: Path) -> None:
    """Write one figure as a page of its own that needs no network."""
    save(figure.to_html(include_plotlyjs=True, full_html=True).encode(), path, "--html")


def page(runs: Sequence[Run], damaged: Sequence[Facts] = (), *, watching: str | None = None) -> str:
    """Return the report as one page, with everything it needs inside; damaged runs are named with the reason.

    `watching` is the state of the folders if the page is served and follows them.
    """
    import jinja2
    from plotly.offline import get_plotlyjs

    told, metric = facts(runs), lead(runs)
    records = [*told, *damaged]
    trade, attack, audit = trade_section(runs, told), attack_section(runs, told), audit_section(told)
    figures = figure_section(runs, told)
    # Autoescape whatever the file is called; figures come as JSON in which plotly has already escaped "<" and "/".
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sottovoce.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        title=_title(runs),
        lead=_lead(runs),
        differences=_differences(runs),
        highlights=_highlights(records, metric),
        tables=[(_headings(chosen), chosen) for chosen in split(records, _CHARACTERS, folded=_NAME)],
        records=records,
        notes=notes(records),
        alarms=alarms(told),
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
        plotly=get_plotlyjs(),
        unfinished=any(run.summary is None for run in runs),
        any_private=any(run.private for run in runs),
        all_private=all(run.private for run in runs),
    )


def _drawn(figure: dict[str, Any]) -> list[tuple[str, str]]:
    return [(panel["name"], panel["figure"]) for panel in figure["panels"]]


def _title(runs: Sequence[Run]) -> str:
    sources = _words(str(run.table("data").get("source", "unknown data")) for run in runs)
    return f"{len(runs)} run{'s' if len(runs) > 1 else ''} on {sources}"


def _lead(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return what was compared, as terms and words."""

    def told(table: str, key: str) -> str:
        return _words(str(run.table(table).get(key, ABSENT)) for run in runs)

    return [
        ("schemes", _words(f"{run.scheme}{' (private)' if run.private else ''}" for run in runs)),
        ("data", f"{told('data', 'source')}, {told('data', 'partition')} over {told('data', 'clients')} clients"),
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
    sound = [record for record in records if not diverged(record)]
    private = [record for record in records if record.get("private")]
    asked = (
        (f"highest {words(metric)}, best round", sound, f"{metric}_best", max, decimal),
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


def _headings(chosen: Sequence[Column]) -> list[tuple[str, int]]:
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
            "config": run.config,
            "public": record.get("public"),
        }
        for run, record in zip(runs, records, strict=True)
    ]


def _words(values: Any) -> str:
    return ", ".join(dict.fromkeys(values))
