"""Put our numbers beside the printed ones, and say why they cannot be equal where they cannot."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.assembly.parts import gather
from sottovoce.core.errors import RunError, SottovoceError
from sottovoce.privacy import calculate
from sottovoce.runs.folder import Record, read_rounds
from sottovoce.search.runner import RunOutcome
from sottovoce.studies.published.table import FAILED, METRICS, NEW, UNREADABLE, Published, Row, ScaleName

_APART: Final = 0.03  # printed values that differ by less are taken as equal
_TIED: Final = 0.01  # and ours by less
_UNITS: Final = {"MB": 1e6, "Mbit": 1e6 / 8, "kB": 1e3}

Line = dict[str, Any]


def compare(
    table: Published, row: Row, scale: ScaleName, outcomes: Sequence[RunOutcome], differs: list[str]
) -> list[Line]:
    """Return a line for each printed cell of a row: printed, ours (the mean over seeds), difference, and a note."""
    return [_line(table, row, column, scale, outcomes, differs) for column in table.columns if column in row.printed]


def printed_cell(row: Row, column: str) -> Line:
    """Return what the papers print in a cell: a number, or null and the sign that stands there instead."""
    value = row.printed[column]
    number = None if isinstance(value, str) else float(value)
    return {"row": row.name, "column": column, "printed": number, "sign": value if isinstance(value, str) else None}


def _line(
    table: Published, row: Row, column: str, scale: ScaleName, outcomes: Sequence[RunOutcome], differs: list[str]
) -> Line:
    cell = printed_cell(row, column)
    printed, theirs = row.printed[column], cell["printed"]
    played = [outcome for outcome in outcomes if outcome.summary is not None]
    values = [_ours(table, column, outcome.summary) for outcome in played if outcome.summary is not None]
    known = [value for value in values if value is not None]
    ours = mean(known) if known else None
    lost = [outcome for outcome in played if outcome.summary and outcome.summary.get("diverged")]
    cost = column.startswith("cost")
    comparable = not (cost and scale == "small")
    line: Line = {
        **cell,
        "ours": ours,
        "difference": ours - theirs if ours is not None and theirs is not None and comparable else None,
        "spread": stdev(known) if len(known) > 1 else None,
        "seeds": len(known),
        "diverged": bool(played) and len(lost) == len(played),
        "unit": table.unit if cost else None,
        "baseline": _baseline(played) if column == "accuracy" else None,
    }
    if cost:
        sent = [_measured(table, column, outcome.summary) for outcome in played if outcome.summary is not None]
        line["measured"] = mean(found) if (found := [value for value in sent if value is not None]) else None
    if column == "epsilon":
        line |= _epsilons(row, played)
    line["notes"] = _notes(row, column, line, printed, outcomes, differs, scale)
    line["note"] = "; ".join(line["notes"]) or None
    return line


def _ours(table: Published, column: str, summary: Record) -> float | None:
    """Return our number for a column: at the best round, as the papers; epsilon is for all rounds of the plan."""
    if column in METRICS:
        return _number(summary.get(f"{column}_best"))
    if column == "round":
        return _number(summary.get("best_round"))
    if column == "epsilon":
        return _number(summary.get("epsilon"))
    cost = _number(summary.get(f"paper_{column}_bytes"))
    return None if cost is None else _in_unit(table, cost, summary)


def _baseline(played: Sequence[RunOutcome]) -> float | None:
    """Return the accuracy of always answering the same, which a run that does not converge has."""
    known = [outcome.summary.get("baseline_accuracy") for outcome in played if outcome.summary is not None]
    return next((float(value) for value in known if value is not None), None)


def _measured(table: Published, column: str, summary: Record) -> float | None:
    """Return the bytes that were serialised up to the best round, headers included, for each client, in the unit."""
    way = column.removeprefix("cost_")
    each, round_ = _number(summary.get(f"bytes_{way}_per_client_round")), _number(summary.get("best_round"))
    if each is None or round_ is None:
        return None
    return _in_unit(table, each * round_ * summary["expected_cohort"] / summary["clients"], summary)


def _in_unit(table: Published, size: float, summary: Record) -> float:
    if table.unit == "bits/parameter":
        asked = float(summary["best_round"] * summary["expected_cohort"] / summary["clients"])
        return 8 * size / asked / float(summary["dim"])
    return size / _UNITS[str(table.unit)]


def _epsilons(row: Row, played: Sequence[RunOutcome]) -> Line:
    """Return epsilon by the papers' accountant at their round, and the true one against the server."""
    servers = [outcome.summary.get("epsilon_server") for outcome in played if outcome.summary is not None]
    known = [float(value) for value in servers if value is not None]
    line: Line = {"moments": None, "epsilon_server": mean(known) if known else None}
    round_ = row.printed.get("round")
    for outcome in played[:1]:
        experiment, summary = outcome.experiment, outcome.summary or {}
        if experiment.privacy is None or summary.get("noise_multiplier") is None:
            continue
        rounds = int(round_) if isinstance(round_, int | float) else experiment.experiment.rounds
        line["moments_round"] = rounds
        line["moments"] = _moments(
            float(experiment.cohort.sample_rate), rounds, experiment.privacy.delta, float(summary["noise_multiplier"])
        )
    return line


@cache
def _moments(sample_rate: float, rounds: int, delta: float, noise_multiplier: float) -> float | None:
    try:
        found = calculate(
            sample_rate=sample_rate,
            rounds=rounds,
            delta=delta,
            noise_multiplier=noise_multiplier,
            accountant="moments",
        )
    except SottovoceError:  # beyond the orders that it looks at
        return None
    return float(found["epsilon"])


def _notes(
    row: Row,
    column: str,
    line: Line,
    printed: float | str,
    outcomes: Sequence[RunOutcome],
    differs: list[str],
    scale: ScaleName,
) -> list[str]:
    told: list[str] = []
    refused = [outcome for outcome in outcomes if outcome.reason is not None]
    if refused:
        kind = "refused" if refused[0].problem is not None and refused[0].problem.exit_code == 3 else "not run"
        told.append(f"{kind}: {refused[0].reason}")
    if printed == UNREADABLE:
        told.append("unreadable in the text at hand")
    if printed == NEW:
        told.append("a row of ours, which the papers do not have")
    if printed == FAILED:
        told.append(f'printed "-": does not converge{"; nor does ours" if line["diverged"] else ""}')
    elif line["diverged"] and column in METRICS:
        told.append("ours does not converge")
    if column == "epsilon" and line["ours"] is not None:
        told.append(
            "theirs: the moments accountant up to their best round, for Poisson cohorts, though theirs have a fixed "
            "size; ours: true (pld), Poisson cohorts, all rounds of the plan"
        )
    if column in METRICS and line["ours"] is not None:
        told += differs
    if column == "round" and line["ours"] is not None:
        told += [reason for reason in differs if reason.startswith("measured")]
    if column.startswith("cost") and scale == "small" and line["ours"] is not None:
        told.append("small scale: another number of weights, not to be compared")
    if row.note is not None and column in METRICS:
        told.append(row.note)
    return told


def ordering(table: Published, lines: Sequence[Line]) -> Line:
    """Tell of how many pairs of rows the order of ours is the printed one; a run that does not converge is the last.

    Pairs of one group are compared whose printed values differ by at least 0.03; ours are tied within 0.01.
    """
    groups = {row.name: row for row in table.rows}
    pairs, agree, tied, reversed_ = 0, 0, 0, []
    for metric in table.metrics:
        known = [
            (line, theirs, ours)
            for line in lines
            if line["column"] == metric
            and (theirs := _rank(line["printed"], groups[line["row"]].printed[metric] == FAILED)) is not None
            and (ours := _rank(line["ours"], line["diverged"])) is not None
        ]
        for (one, theirs, ours), (other, their_other, our_other) in combinations(known, 2):
            if groups[one["row"]].group != groups[other["row"]].group or abs(theirs - their_other) < _APART - 1e-9:
                continue
            pairs += 1
            gap = (ours - our_other) * (1 if theirs > their_other else -1)
            if abs(gap) < _TIED:
                tied += 1
            elif gap > 0:
                agree += 1
            else:
                better, worse = (one, other) if theirs > their_other else (other, one)
                reversed_.append({"metric": metric, "printed_better": better["row"], "printed_worse": worse["row"]})
    return {"pairs": pairs, "agree": agree, "tied": tied, "reversed": reversed_}


def _rank(value: Any, failed: bool) -> float | None:
    if failed:
        return -1.0
    return None if value is None else float(value)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


_BINS: Final = 60

Series = dict[str, Any]


def series(table: Published, played: Sequence[tuple[Row, RunOutcome]]) -> list[Series]:
    """Return what a figure draws, as plain numbers: a curve or a histogram for each row; none for a table."""
    done = [(row, outcome) for row, outcome in played if outcome.summary is not None]
    if table.kind == "curves":
        return [_curve(row, outcome, metric) for row, outcome in done for metric in table.columns]
    if table.kind == "weights":
        groups = list(dict.fromkeys(row.group for row, _ in done))
        return [one for group in groups for one in _histograms([pair for pair in done if pair[0].group == group])]
    return []


def _curve(row: Row, outcome: RunOutcome, metric: str) -> Series:
    rounds = [record for record in read_rounds(outcome.folder) if record.get(metric) is not None]
    return {
        "row": row.name,
        "metric": metric,
        "round": [record["round"] for record in rounds],
        "value": [record[metric] for record in rounds],
    }


def _histograms(done: Sequence[tuple[Row, RunOutcome]]) -> list[Series]:
    """Return the weights of each row at the coordinates that the first of them trains (the thesis' set T).

    These are the weights that its best model has moved from w_0, which all rows of a group share.
    """
    if len(done) < 2:
        return []
    first = done[0][1]
    moved = _weights(first.folder) != gather(first.experiment).start
    weights = [_weights(outcome.folder)[moved] for _, outcome in done]
    ends = float(np.quantile(np.abs(np.concatenate(weights)), 0.999)) or 1.0
    edges = np.linspace(-ends, ends, _BINS + 1)
    return [
        {
            "row": row.name,
            "group": row.group,
            "coordinates": int(moved.sum()),
            "norm": float(np.linalg.norm(values)),
            "mean_size": float(np.abs(values).mean()),
            "edges": edges.tolist(),
            "count": np.histogram(np.clip(values, -ends, ends), edges)[0].tolist(),
        }
        for (row, _), values in zip(done, weights, strict=True)
    ]


def _weights(folder: Path) -> NDArray[np.float32]:
    """Return the flat weights of the best round."""
    path = folder / "model-best.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return np.concatenate([arrays[name].ravel() for name in arrays.files])
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}; delete its run folder to run the cell again") from None
