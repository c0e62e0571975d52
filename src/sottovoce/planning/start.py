"""Choose the first private run on tables by rules that are told, and write its experiment file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from sottovoce.core.errors import InputError
from sottovoce.data.csv_file import CsvTable
from sottovoce.data.draft import Draft

FEWEST: Final = 20  # units of a site: below, the site's own noise and rounding drown it
USUAL: Final = 100  # [privacy] min_units, if nothing is said
_ROUNDS: Final = 60  # docs/records.md
_HELD_OUT: Final = 0.2

_TWIN_ROUNDS, _TWIN_LR = 200, 0.5  # no clipping bounds a step of the twin

Unit = Literal["record", "person"]


@dataclass(frozen=True)
class FirstRun:
    """What the rules chose: every sentence of `rules` is public, those of `notes` follow from the records."""

    unit: Unit
    units: int
    sites: int
    smallest: int  # units of the smallest site
    delta: float
    epsilon: float
    measures: bool  # sites measure on units that they set aside
    learns: float  # part of epsilon for ranges and lists of categories; 0: none are learnt
    rules: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def training(self) -> float:
        """Return the part of epsilon that is left for the model."""
        return self.epsilon - self.learns


def choose(table: CsvTable, drafted: Draft, epsilon: float, *, measures: bool = True, learns: float = 0.0) -> FirstRun:
    """Choose unit, scheme, model and settings; raise where no choice can work."""
    parts = table.parts or (table,)
    if drafted.person is None:
        unit: Unit = "record"
        sizes = [part.records for part in parts]
        why = "no column says whose a row is, so one row is protected; who has k rows has k times less protection"
    else:
        unit = "person"
        sizes = [len(set(part.columns[drafted.person])) for part in parts]
        why = f"rows of a site with the same {drafted.person!r} are one person, who is protected with all of them"
    units, smallest = sum(sizes), min(sizes)
    if smallest < FEWEST:
        raise InputError(
            f"a site has {smallest} {unit}s, and fewer than {FEWEST} cannot hide one another; leave its file out, or "
            "join it to another"
        )
    delta = 10.0 ** -(math.floor(math.log10(units)) + 2)
    return FirstRun(
        unit=unit,
        units=units,
        sites=len(parts),
        smallest=smallest,
        delta=delta,
        epsilon=epsilon,
        measures=measures,
        learns=learns,
        rules=(
            f"read: {table.records} records in {len(parts)} file{'s' * (len(parts) > 1)}, each a site; label "
            f"{drafted.label!r} with classes {', '.join(drafted.classes)} ({drafted.classes_from})",
            _columns(drafted),
            *_learning(drafted, epsilon, learns),
            f"unit: {unit}, because {why}",
            f"public: how many {unit}s each site has, {units} in all, and which columns hold numbers",
            "scheme: fl-std with full batches, because every unit in every round needs the least noise, and a few "
            "sites are enough; fl-once, which sends products of features, is for few features and many clients",
            "model: logistic, because a table asks for a linear model first, and fewer weights need less signal",
            f"rounds: {_ROUNDS}; steps by units, noise and rounds alone ([server] lr = auto)",
            _measuring(measures, unit),
            f"epsilon: {epsilon:g} against the server; delta {delta:g}, which is below 1 / {units}",
        ),
        notes=tuple(_notes(table, drafted, parts)),
    )


def _columns(drafted: Draft) -> str:
    """Say what the columns became, and by which rule."""
    words = []
    declared = [column.name for column in drafted.used if column.declared]
    for kind, told in (
        ("number", "numbers without a declared range are spread over powers of two"),
        ("category", "words without a declared list are spread over buckets by their SHA-256"),
    ):
        named = [column.name for column in drafted.used if column.kind == kind and not column.declared]
        words += [f"{told}: {', '.join(named)}"] if named else []
    left_out = [column.name for column in drafted.columns if column.kind == "ignore"]
    words += [f"declared by you: {', '.join(declared)}"] if declared else []
    words += [f"left out: {', '.join(left_out)}"] if left_out else []
    return f"columns: {'; '.join(words)}; no range and no category was read off the records"


def _learning(drafted: Draft, epsilon: float, learns: float) -> list[str]:
    """Say what learning ranges and lists costs."""
    if not learns:
        return []
    names = ", ".join(drafted.undeclared)
    return [
        f"learnt: ranges and lists of {names}, by noisy sums over all units, with epsilon {learns:g} against the "
        f"server; the model has the other {epsilon - learns:g}, and each half of delta"
    ]


def learning_tables(paths: Sequence[Path], drafted: Draft, chosen: FirstRun) -> dict[str, Any]:
    """Return the tables of the run that learns ranges and lists privately, before the model is trained."""
    data: dict[str, Any] = {"source": [_from_here(path) for path in paths]}
    data |= {"partition": "by-id" if len(paths) > 1 else "iid", "clients": len(paths)}
    if drafted.person is not None:
        data["person"] = drafted.person
    privacy: dict[str, Any] = {"unit": chosen.unit, "epsilon_server": chosen.learns, "delta": chosen.delta / 2}
    if chosen.smallest < USUAL:
        privacy["min_units"] = chosen.smallest // 2
    return {
        "experiment": {"name": "start-schema", "seed": 1},
        "data": data,
        "privacy": privacy,
        "statistics": {"learn": True, "columns": list(drafted.undeclared)},
    }


def _measuring(measures: bool, unit: Unit) -> str:
    if not measures:
        return "measuring: on the records that you declared public"
    return (
        f"measuring: each site sets a fifth of its {unit}s aside; what is measured on them is a noisy sum, charged to "
        "an account of their own"
    )


def _notes(table: CsvTable, drafted: Draft, parts: Sequence[CsvTable]) -> list[str]:
    """Return what the operator should look at, which follows from the records."""
    notes = []
    for column in drafted.used:
        different = len(set(table.columns[column.name]))
        if column.kind == "category" and not column.declared and different > max(50, table.records / 20):
            notes.append(
                f"column {column.name!r} has {different} different words: a name, a date or free text teaches nothing; "
                f"leave it out with --ignore {column.name}"
            )
    if drafted.person is not None and len(parts) > 1:
        own = [set(part.columns[drafted.person]) for part in parts]
        several = sum(map(len, own)) - len(set[str]().union(*own))
        if several:
            notes.append(
                f"{several} times somebody is at one site more: each of them is a unit there too, and has the "
                "guarantee of a group (docs/records.md)"
            )
    return notes


def experiment_text(
    paths: Sequence[Path],
    drafted: Draft,
    chosen: FirstRun,
    schema: Path,
    *,
    test: Path | None = None,
    test_public: bool = False,
    private: bool = True,
) -> str:
    """Return the experiment file; without privacy it is the twin, which measures on a fifth of the records."""
    person = _text(drafted.person) if drafted.person is not None else None
    title = "# Drafted by `sottovoce start`. What was chosen, and by which rule:\n#"
    rules = "\n".join(f"#   {line}" for line in chosen.rules)
    if not private:
        title = (
            "# The twin without privacy of a run that `sottovoce start` drafted. UNSAFE: its model and its figures\n"
            "# tell of single records. Keep its folder to yourself.\n#"
        )
    lines = [
        f"{title}\n{rules}\n",
        f'[experiment]\nname = "{"start" if private else "plain-twin"}"\nseed = 1',
        f"rounds = {_ROUNDS if private else _TWIN_ROUNDS}",
        f"evaluate_every = {_ROUNDS if private else _TWIN_ROUNDS // 10}",
        *(['evaluation = "federated"   # by noisy sums that are charged'] if private and chosen.measures else []),
        "\n[data]   # files as seen from the folder in which `sottovoce start` was typed",
        f"source = {json.dumps([_from_here(path) for path in paths], ensure_ascii=False)}",
        f"label = {_text(drafted.label)}",
        f"schema = {_text(_from_here(schema))}",
    ]
    if person is not None:
        lines.append(f"person = {person}   # never a feature; all rows of a person at a site are one unit")
    if chosen.sites == 1:
        lines.append('clients = 1\npartition = "iid"')
    lines += _measured(test, test_public=test_public, private=private)
    lines.append('\n[model]\nname = "logistic"\n\n[scheme]\nname = "fl-std"')
    if private:
        lines += _privacy(chosen)
    else:
        lines.append('\n[client]\nclient_lr = 1.0\nlocal_steps = 1\nbatch_size = "all"')
        lines.append(f"\n[server]\nlr = {_TWIN_LR}\nmomentum = 0.9")
    return "\n".join(lines) + "\n"


def _measured(test: Path | None, *, test_public: bool, private: bool) -> list[str]:
    if test is not None:
        return [f"test = {_text(_from_here(test))}   # you declared these records public"]
    if test_public and private:
        return ["test_public = true   # you declared this part of the records public"]
    return []


def _privacy(chosen: FirstRun) -> list[str]:
    few = f"min_units = {chosen.smallest // 2}   # half of the smallest site's, which are public"
    aside = f"\n[client]\nheld_out = {_HELD_OUT}   # of each site's {chosen.unit}s; they measure and never train"
    return [
        *([aside] if chosen.measures else []),
        f'\n[privacy]\nunit = "{chosen.unit}"',
        f"epsilon_server = {chosen.training:g}   # epsilon against outsiders follows, and is at most this",
        f"delta = {chosen.delta / 2 if chosen.learns else chosen.delta:g}",
        *([few] if chosen.smallest < USUAL else []),
        '\n[aggregation]\nsecure = "ideal"   # simulated; "real" runs the protocol with all its bytes',
    ]


def _from_here(path: Path) -> str:
    """Return a path as seen from this folder: pages that are shared show it, and should not show the machine's."""
    here = Path.cwd()
    return str(path.absolute().relative_to(here) if path.absolute().is_relative_to(here) else path.absolute())


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
