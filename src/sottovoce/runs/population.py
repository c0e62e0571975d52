"""Runs on the same records add up: whose records a run is on, what was spent on them before, and the budget file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from glob import has_magic
from pathlib import Path
from typing import Any, Final

from sottovoce.config.experiment import Experiment
from sottovoce.config.tables import PrivacyTable
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.data import Source, origin
from sottovoce.data.schema import read_schema
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.accounting import accountant as accounts
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.accounting.population import Cost, TotalCost, added, fixed
from sottovoce.privacy.budget import Budget, BudgetTerms, cost_of
from sottovoce.runs.exposure import seen
from sottovoce.runs.folder import RunFolder
from sottovoce.runs.records import Record
from sottovoce.schemes import State

_NAMED: Final = 3  # files of a list that are named
ALONE: Final = (
    "no [privacy] budget: other private runs on the same records add to this one, and nothing here counts them"
)


def population_name(experiment: Experiment) -> str:
    """Return whose records these are: the declared name, or that of the data set, whatever its rows are today."""
    table = experiment.privacy
    if table is not None and table.population is not None:
        return table.population
    return source_name(experiment.data.source, experiment.data.folder)


def source_name(source: Source, folder: str | None = None) -> str:
    """Return the name of a data set, or of the file that it lies in, links followed and folders left out.

    A pattern or a folder is named as it was written, so that one file more is no other population.
    """
    found = origin(source, folder)
    if not isinstance(source, str):
        return ", ".join(file.resolve().name for file in found.files)
    if len(found.files) > 1 or has_magic(source):
        return Path(source).name
    return found.files[0].resolve().name if found.name is None and found.files else source


def source_words(source: Any) -> str:
    """Name a data source on a page that is shared: files by their names, without the folders of a machine.

    >>> source_words(["/home/me/a.csv", "/home/me/b.csv"])
    'a.csv, b.csv'
    >>> source_words("data/hospital_*.csv")
    'data/hospital_*.csv'
    """
    if not isinstance(source, list):
        return Path(str(source)).name if Path(str(source)).is_absolute() else str(source)
    names = [Path(str(each)).name for each in source]
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def make_folder(experiment: Experiment, plan: PrivacyPlan | None, make: Callable[[Record], RunFolder]) -> RunFolder:
    """Make the folder of a new run, and reserve its plan in the population's budget before anything is released.

    Raises before the folder is made if the run would exceed the budget. A run that is killed in between reserves when
    it is resumed.
    """
    table = experiment.privacy
    if table is not None:
        learnt_cost(experiment, table)  # refuses a schema that was learnt for another unit
    if table is None or table.budget is None or plan is None:
        return make({})
    run, cost, declared = os.urandom(16).hex(), cost_of(plan), declared_costs(experiment, table)
    with _budget(experiment, table, plan) as budget:
        budget.check(cost, declared)
        folder = make({"budget": run})
        budget.reserve(run, experiment.experiment.name, plan.digest(), cost, declared)
    return folder


def check_budget(experiment: Experiment, plan: PrivacyPlan | None) -> None:
    """Raise if a run of this plan would exceed its budget; nothing is reserved."""
    table = experiment.privacy
    if table is not None and table.budget is not None and plan is not None:
        with _budget(experiment, table, plan) as budget:
            budget.check(cost_of(plan), declared_costs(experiment, table))


def reserve_again(experiment: Experiment, plan: PrivacyPlan | None, folder: RunFolder) -> None:
    """See that a resumed run has reserved its plan; one that was killed before reserves now, and none pays twice."""
    table = experiment.privacy
    if table is None or table.budget is None or plan is None:
        return
    run = _run_id(folder.path)
    with _budget(experiment, table, plan) as budget:
        if budget.settled(run):
            raise PrivacyError(f"{folder.path} is an epoch that has ended, and paid for what it began; begin another")
        if not budget.holds(run, plan.digest()) and (folder.path / "ledger.jsonl").exists():
            raise PrivacyError(
                f"{folder.path} has spent from [privacy] budget = {table.budget!r}, which does not know it: the file "
                "was cut or replaced; restore it"
            )
        budget.reserve(run, experiment.experiment.name, plan.digest(), cost_of(plan), declared_costs(experiment, table))


def settle(experiment: Experiment, plan: PrivacyPlan, path: Path, begun: int) -> None:
    """Let a run that has ended for good pay for the rounds that it began, and for no more."""
    table = experiment.privacy
    if table is None or table.budget is None:
        return
    with _budget(experiment, table, plan) as budget:
        budget.settle(_run_id(path), plan.digest(), cost_of(plan, max(1, begun)))


@dataclass(frozen=True)
class ExposedCost:
    """Callback that charges a run as against the server once outsiders learnt of a cohort."""

    experiment: Experiment
    plan: PrivacyPlan | None
    path: Path

    def on_round(self, _: Record, state: State) -> None:
        """Charge it before a pause or an end shows it."""
        table = self.experiment.privacy
        if self.plan is None or self.plan.request.of_sites:  # which sites took part was never a secret
            return
        if seen(state) and table is not None and table.budget is not None:
            with _budget(self.experiment, table, self.plan) as budget:
                budget.expose(_run_id(self.path))


def population_facts(experiment: Experiment, plan: PrivacyPlan | None) -> Record:
    """Return what the summary says of all runs on the same records, as far as they are known."""
    table = experiment.privacy
    if table is None or plan is None:
        return {}
    name, declared = population_name(experiment), declared_costs(experiment, table)
    told: Record = {"name": name, "budget": table.budget, "runs": 1, "spent": None}
    if table.budget is None:
        if not declared:
            return _facts(told, None, None, ALONE)
        costs = [*declared, cost_of(plan)]
        return _facts(told, added(costs), fixed(costs))
    try:
        with _budget(experiment, table, plan) as budget:
            share = None if budget.limit is None else budget.limit.share(budget.costs)
            told |= {"runs": budget.runs, "spent": share if share is None or math.isfinite(share) else None}
            return _facts(told, budget.total(), budget.composed())
    except (InputError, PrivacyError) as error:  # the run is over and its cost reserved: it is told as it can be
        return _facts(told, None, None, str(error))


def totals(runs: Sequence[Mapping[str, Any]]) -> list[Record]:
    """Return the sums of private runs that are on the same records, from their summaries.

    An unfinished run has no `population`, and is known by its `population_name`.

    A run of an older version counts with its epsilon and delta, and one that tells neither makes the sum unknown.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for summary in runs:
        told = summary.get("population")
        name = (told.get("name") if isinstance(told, dict) else None) or summary.get("population_name")
        if summary.get("private") and name is not None:
            # Who is protected differs, and with it the neighbours: such costs do not add up.
            groups.setdefault((str(name), str(summary.get("unit") or "client")), []).append(summary)
    found = []
    for (name, unit), summaries in groups.items():
        costs = [cost for summary in summaries if (cost := _cost_told(summary)) is not None]
        unknown = len(summaries) - len(costs)
        if len(summaries) < 2 or not costs:
            continue
        composed, plain = fixed(costs), added(costs)
        found.append(
            {
                "population": name,
                "unit": unit,
                "runs": len(summaries),
                "unknown": unknown,  # unfinished, or of a version that does not tell
                **_numbers(composed),
                "method": composed.method,
                "if_chosen_after_looking": {**_numbers(plain), "method": plain.method},
            }
        )
    return found


def recorded_costs(experiment: Experiment, folders: Sequence[Path]) -> list[Cost]:
    """Return the costs of the private runs in these folders that protect the same unit of the same records."""
    name, unit, found = population_name(experiment), getattr(experiment.privacy, "unit", "client"), []
    for folder in folders:
        try:
            summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # not finished, or damaged: it tells no cost
            continue
        same = isinstance(summary.get("population"), dict) and summary["population"].get("name") == name
        if same and str(summary.get("unit") or "client") == unit and (cost := _cost_told(summary)) is not None:
            found.append(cost)
    return found


def declared_costs(experiment: Experiment, table: PrivacyTable) -> list[Cost]:
    """Return the costs of the releases that `[privacy] spent` declares, and that of a schema that was learnt."""
    learnt = learnt_cost(experiment, table)
    return [_declared(entry, table.delta) for entry in table.spent or ()] + ([] if learnt is None else [learnt])


def learnt_cost(experiment: Experiment, table: PrivacyTable) -> Cost | None:
    """Return what it cost to learn the schema of a run privately; None if it was declared.

    Guarantee: a run that protects another unit than the schema was learnt for is refused.
    """
    data = experiment.data
    if data.schema is None:
        return None
    learnt = read_schema(Path(data.folder or "") / Path(data.schema).expanduser()).learnt
    if learnt is None:
        return None
    if learnt["unit"] != table.unit:
        raise PrivacyError(
            f"[data] schema was learnt with noise that hides each {learnt['unit']}, but this run promises to hide each "
            f"{table.unit}; learn it anew, or declare it from a public source and remove [learnt]"
        )
    try:
        return Cost.read(json.loads(learnt["cost"]))
    except (ValueError, KeyError, TypeError) as error:
        raise PrivacyError(f"[data] schema: [learnt] cost is damaged ({error}); restore it") from None


def _declared(entry: Mapping[str, Any], usual: float) -> Cost:
    numbers = {key: float(Fraction(str(value))) for key, value in entry.items()}
    delta = numbers.get("delta", usual)
    if "epsilon" in numbers:
        server = numbers.get("epsilon_server", math.inf)  # not told: no bound
        return Cost(epsilon=numbers["epsilon"], epsilon_server=server, delta=delta)
    rounds = int(numbers.get("rounds", 1))
    rate = numbers.get("sample_rate", 1.0)
    event = Event(noise_multiplier=numbers["noise_multiplier"], sample_rate=rate, rounds=rounds)
    noise = event.noise_multiplier
    return Cost(
        epsilon=accounts.epsilon([event], delta=delta),
        epsilon_server=accounts.epsilon_server([(noise, rounds)], delta=delta),  # a client may be in every round
        delta=delta,
        events=(event,),
        precision=rounds / noise**2,
    )


def _budget(experiment: Experiment, table: PrivacyTable, plan: PrivacyPlan) -> Budget:
    terms = BudgetTerms(
        population=population_name(experiment),
        unit=table.unit,
        epsilon=table.budget_epsilon,
        epsilon_server=table.budget_epsilon_server,
        delta=table.budget_delta,
    )
    delta = table.budget_delta or 2 * table.delta
    limited = table.budget_epsilon is not None or table.budget_epsilon_server is not None
    people = plan.request.protected / (1 - float(experiment.client.held_out) if table.unit != "client" else 1)
    if limited and delta * people >= 1 and not table.unsafe_delta:
        raise PrivacyError(
            f"budget_delta must be below 1 / {table.unit}s = {1 / people:.3g}, got {delta:g} "
            f"({'as set' if table.budget_delta else 'twice delta'}); set it, or lower delta"
        )
    return Budget(Path(table.budget or ""), terms)


def _run_id(path: Path) -> str:
    try:
        return str(json.loads((path / "environment.json").read_text(encoding="utf-8"))["budget"])
    except (OSError, ValueError, KeyError, TypeError):
        raise PrivacyError(f"{path / 'environment.json'} does not say what the run has reserved; restore it") from None


def _facts(told: Record, total: TotalCost | None, composed: TotalCost | None, method: str = "") -> Record:
    numbers = dict.fromkeys(("epsilon", "epsilon_server", "delta")) if total is None else _numbers(total)
    return {
        **{f"{key}_population": value for key, value in numbers.items()},
        "population": {
            **told,
            "method": method if total is None else total.method,
            "if_fixed_in_advance": None if composed is None else _numbers(composed),
        },
    }


def _numbers(total: TotalCost) -> Record:
    finite = {key: value if math.isfinite(value) else None for key, value in total._asdict().items() if key != "method"}
    return {key: finite[key] for key in ("epsilon", "epsilon_server", "delta")}


def _cost_told(summary: Mapping[str, Any]) -> Cost | None:
    """Return the cost that a summary tells; None if it tells none."""
    plan = summary.get("privacy")
    if isinstance(plan, dict) and "cost" in plan:
        try:
            return Cost.read(plan["cost"])
        except ValueError:
            return None
    keys = ("epsilon", "epsilon_server", "delta")
    told = {key: value for key in keys if isinstance(value := summary.get(key), int | float) and value > 0}
    if "delta" not in told or len(told) < 2:
        return None
    server = told.get("epsilon_server", math.inf)
    return Cost(epsilon=told.get("epsilon", server), epsilon_server=server, delta=told["delta"])
