"""Tell how good the models of runs are: their verdicts, intervals and classes, and the line of chance of a figure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sottovoce.models import METRICS
from sottovoce.models.quality import CHANCE
from sottovoce.report.runs import Run
from sottovoce.report.units import ABSENT, count, decimal, epsilon, finite, percent

Record = Mapping[str, Any]


def quality_of(record: Record) -> dict[str, Any]:
    """Return what a record tells of its final model; empty if that is nothing."""
    told = record.get("quality")
    return told if isinstance(told, dict) else {}


def weak(record: Record) -> str | None:
    """Say that a run's final model is no better than always giving one answer; None if it is better, or not known."""
    told = record.get("verdict")
    return f"the final model is {told}" if isinstance(told, str) and told else None


def advice(record: Record) -> list[str]:
    """Return what to try with a weak model."""
    told = quality_of(record).get("try")
    return [str(each) for each in told] if isinstance(told, list) else []


def interval(record: Record, metric: str) -> str:
    """Return the interval of a metric of the final model in words, or a dash.

    >>> interval({"quality": {"intervals": {"accuracy": [0.5, 0.75]}}}, "accuracy")
    '0.5000 to 0.7500'
    """
    told = quality_of(record).get("intervals")
    bounds = told.get(metric) if isinstance(told, dict) else None
    if not isinstance(bounds, list) or len(bounds) != 2 or None in map(finite, bounds):
        return ABSENT
    return f"{decimal(bounds[0])} to {decimal(bounds[1])}"


def lines(record: Record) -> dict[str, str]:
    """Return what a card says of a run's final model, heading by heading."""
    told = quality_of(record)
    if not told:
        reason = record.get("quality_reason")
        return {"quality": f"not judged: {reason}"} if reason else {}
    shown: dict[str, str] = {}
    if weak(record):
        shown["verdict"] = f"{weak(record)}; try: {'; '.join(advice(record))}"
    level, records = finite(told.get("level")), finite(told.get("records"))
    if level is not None and records is not None and interval(record, "accuracy") != ABSENT:
        noisy = isinstance(told.get("noise"), str)
        how = "with noise, about" if noisy else "by bootstrap on"
        whose = "records or persons that sites set aside" if noisy else "test records"
        shown["accuracy: interval"] = (
            f"{interval(record, 'accuracy')} ({percent(level)}, {how} {count(records)} {whose})"
        )
    if interval(record, "auroc") != ABSENT:
        shown["AUROC: interval"] = interval(record, "auroc")
    baseline = told.get("baseline")
    if isinstance(baseline, dict):
        shown["baseline"] = f"{_reached(baseline)}, always answering {baseline.get('answer')!r}"
    if finite(told.get("sensitivity")) is not None and finite(told.get("specificity")) is not None:
        shown["sensitivity, specificity"] = f"{decimal(told['sensitivity'])}, {decimal(told['specificity'])}"
    worst = told.get("worst_class")
    if isinstance(worst, dict):
        shown["worst class"] = f"{worst.get('name')!r}, accuracy {decimal(worst.get('accuracy'))}"
    shown |= _worst_groups(told)
    if finite(told.get("calibration_error")) is not None:
        shown["calibration error"] = decimal(told["calibration_error"])
    shown |= _threshold(told)
    return shown


def _worst_groups(told: Record) -> dict[str, str]:
    """Return the worst subgroup and the worst site in words, of several."""
    shown = {}
    for key, noun in (("subgroups", "subgroup"), ("sites", "site")):
        groups = told.get(key)
        listed = groups.get("groups") if isinstance(groups, dict) else None
        if not isinstance(groups, dict) or not isinstance(listed, list) or len(listed) < 2:
            continue
        worst = next((group for group in listed if group.get("name") == groups.get("worst")), None)
        if worst is not None:
            measure = "accuracy" if "accuracy" in worst else "mae"
            of = f" of {groups.get('column')!r}" if key == "subgroups" else ""
            words = f"{worst['name']!r}{of}, {METRICS[measure].words} {decimal(worst[measure])}"
            shown[f"worst {noun}"] = f"{words} ({count(worst['records'])} test records)"
    return shown


def _reached(baseline: Record) -> str:
    """Return what always giving one answer reaches, by the measures that there are; accuracy needs no name."""
    named = [name for name in METRICS if name != "accuracy" and finite(baseline.get(name)) is not None]
    if finite(baseline.get("accuracy")) is not None or not named:
        return decimal(baseline.get("accuracy"))
    return ", ".join(f"{METRICS[name].short} {decimal(baseline[name])}" for name in named)


def _threshold(told: Record) -> dict[str, str]:
    """Return the decision threshold in words, or why there is none; of more than two classes nothing."""
    chosen, reason = told.get("threshold"), told.get("threshold_reason")
    if isinstance(chosen, dict):
        each = (decimal(chosen.get(key)) for key in ("probability", "sensitivity", "specificity"))
        words = "{}: sensitivity {}, specificity {} on {}; predict --threshold chosen".format(
            *each, chosen.get("chosen_on")
        )
        return {"decision threshold": words}
    if isinstance(reason, str) and told.get("sensitivity") is not None:
        return {"decision threshold": f"none: {reason}"}
    return {}


def over_seeds(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return mean and spread of finished runs that differ in their seed alone, and whose they are."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.get("setting") and not str(record.get("status", "")).startswith("unfinished"):
            groups.setdefault(str(record["setting"]), []).append(record)
    found = []
    for group in groups.values():
        metric = f"{group[0].get('selected_by', 'accuracy')}_final"
        values = [value for record in group if (value := finite(record.get(metric))) is not None]
        seeds = {repr(record.get("seed")) for record in group}
        if len(group) > 1 and len(seeds) == len(values) == len(group):  # the same run twice has no spread
            name = metric.removesuffix("_final").replace("_", " ")
            told = f"{name} of the final model over {len(group)} seeds: {mean_and_spread(values)}"
            found.append((told, ", ".join(str(record.get("label")) for record in group)))
    return found


def mean_and_spread(values: Sequence[float]) -> str:
    """Return the mean and the standard deviation of values in words.

    >>> mean_and_spread([0.8, 0.9])
    '0.8500 ± 0.0707 (mean ± standard deviation)'
    """
    return f"{decimal(statistics.fmean(values))} ± {decimal(statistics.stdev(values))} (mean ± standard deviation)"


def seed_lines(told: Record) -> dict[str, str]:
    """Return what a card says of runs with several seeds, heading by heading."""
    seeds = told["seeds"]
    shown = {"run": str(told["name"]), "seeds": f"{seeds[0]} to {seeds[-1]}"}
    for name, each in told["metrics"].items():
        metric, _, which = name.rpartition("_")
        heading = f"{METRICS[metric].words}: {'best round' if which == 'best' else which}"
        if each is None:
            shown[heading] = "not measured with every seed"
        else:
            mean, spread, low, high = (decimal(each[key]) for key in ("mean", "spread", "lowest", "highest"))
            shown[heading] = f"{mean} ± {spread} (mean ± standard deviation), {low} to {high}"
    if told["verdict"]:
        shown["verdict"] = str(told["verdict"])
    together = told["together"]
    if together is not None:
        shown["epsilon of all seeds together"] = (
            f"{epsilon(together['epsilon'])} against outsiders, {epsilon(together['epsilon_server'])} against the "
            f"server, at delta {together['delta']:.3g}: every seed was charged in full"
        )
    elif told["private"]:
        shown["epsilon of all seeds together"] = "not known: a run tells no cost"
    return shown


class Matrix(NamedTuple):
    """The confusion matrix of one run's final model, with the accuracy of each class."""

    label: str
    classes: list[str]
    rows: list[tuple[str, list[str], str]]  # class, counts, accuracy
    told: list[tuple[str, str]]


_MOST = 20  # classes of a matrix that a page shows


def matrices(records: Sequence[Record]) -> list[Matrix]:
    """Return the confusion matrices of runs that tell theirs, and have no more classes than a page can show."""
    found = []
    for record in records:
        told = quality_of(record)
        names, counts, shares = (told.get(key) for key in ("classes", "confusion", "accuracy_by_class"))
        lists = [each for each in (names, counts, shares) if isinstance(each, list)]
        if len(lists) < 3 or len({len(each) for each in lists}) != 1 or len(lists[0]) > _MOST:
            continue
        rows = [
            (str(name), [count(number) for number in row], decimal(share))
            for name, row, share in zip(*lists, strict=True)
            if isinstance(row, list) and len(row) == len(lists[0])
        ]
        shown = [pair for pair in lines(record).items() if pair[0] != "verdict"]
        found.append(Matrix(str(record.get("label")), [str(name) for name in lists[0]], rows, shown))
    return found


def chance(runs: Sequence[Run], metric: str) -> tuple[float, str] | None:
    """Return where the line of chance of a metric lies, and its words; None if the runs have no common one.

    A run that is not judged yet, or never, takes the line of the others.
    """
    if metric in CHANCE:
        return CHANCE[metric], f"chance {CHANCE[metric]:g}"
    if metric != "accuracy":
        return None
    found = {}
    for run in runs:
        baseline = quality_of(run.summary or {}).get("baseline")
        if isinstance(baseline, dict) and (level := finite(baseline.get("accuracy"))) is not None:
            found[round(level, 6)] = f"always {baseline.get('answer')!r}: {level:.2f}"
    return next(iter(found.items())) if len(found) == 1 else None
