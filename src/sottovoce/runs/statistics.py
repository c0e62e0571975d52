"""Tell what a run of statistics found, in its summary: the answers, their noise, and against whom they are safe."""

from __future__ import annotations

import math

from sottovoce.assembly.parts import Parts
from sottovoce.config.statistics import StatisticsTable
from sottovoce.core.vectors import Vector
from sottovoce.data.coded import CodedColumn
from sottovoce.federation.optimise import model_of
from sottovoce.federation.stages.answers import SurveyAnswers, read_learnt
from sottovoce.federation.stages.discovery import Discovery
from sottovoce.federation.stages.tally import SurveyTally
from sottovoce.models.units import CentreGrid
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.budget import cost_of
from sottovoce.runs.population import learnt_cost
from sottovoce.runs.records import Record
from sottovoce.schemes import State

_SEEDED = (
    "simulated: the noise follows from the seed in the run folder, and whoever has that can take it off; between "
    "machines (sottovoce serve) nobody can"
)


def told_statistics(parts: Parts, plan: PrivacyPlan | None, state: State, summary: Record) -> Record:
    """Return `statistics` for the summary of a run that asked for some, and nothing for other runs.

    Guarantee: it is computed from the released sum and from public numbers alone.
    """
    table, scheme = parts.experiment.statistics, parts.scheme
    if table is None or plan is None or not isinstance(scheme, SurveyTally):
        return {}
    if not summary["rounds"] or not model_of(state).any():
        return {"statistics": None}
    described = plan.describe()
    return {
        "statistics": {
            "unit": plan.request.unit,
            "units": plan.request.protected,
            "sites": parts.cohort.clients,
            "epsilon": described["epsilon"],
            "epsilon_server": described["epsilon_server"],
            "epsilon_site": described["epsilon_site"],
            "delta": plan.request.delta,
            "neighbours": plan.request.adjacency.sentence,
            "unsafe": list(plan.request.unsafe),
            "schema": _learnt(parts, summary),
            "note": _SEEDED if parts.parties.seeded else None,
            **_content(scheme, table, plan, model_of(state) * plan.expected_cohort),
        }
    }


def _learnt(parts: Parts, summary: Record) -> str | None:
    """Say what a schema that was learnt privately adds to the cost of these records; None if it was declared."""
    private = parts.experiment.privacy
    cost = None if private is None else learnt_cost(parts.experiment, private)
    if cost is None:
        return None
    both = [_up(summary[key]) for key in ("epsilon_population", "epsilon_server_population")]
    return (
        f"learnt privately with epsilon {_up(cost.epsilon)} ({_up(cost.epsilon_server)} against the server); with this "
        f"run and all that is counted, the records have cost {both[0]} ({both[1]} against the server)"
    )


def _up(epsilon: float | None) -> str:
    """Return an epsilon with three digits after the point, rounded up; no bound is infinity."""
    return "∞" if epsilon is None or math.isinf(epsilon) else f"{math.ceil(epsilon * 1000 - 1e-6) / 1000:g}"


def _content(scheme: SurveyTally, table: StatisticsTable, plan: PrivacyPlan, released: Vector) -> Record:
    """Return the answers, or the schema that was learnt."""
    survey, grid = scheme.survey, CentreGrid(*plan.unit_grid)
    if isinstance(survey, Discovery):
        found = read_learnt(scheme, released, plan.stddev(), grid)
        return {"learnt": found, "cost": cost_of(plan).told(), "budget_share": survey.share}
    answers = SurveyAnswers.read(
        scheme,
        released,
        plan.stddev(),
        grid,
        plan.request.protected,
        quantiles=tuple(table.quantiles),
        threshold=table.threshold,
        confidence=table.confidence,
    )
    return {
        "confidence": table.confidence,
        "columns": {column.name: _declared(column) for column in survey.columns},
        "queries": answers.queries(),
        "groups": answers.told(),
    }


def _declared(column: CodedColumn) -> Record:
    return {"range": [column.low, column.high]} if column.numeric else {"categories": list(column.words)}
