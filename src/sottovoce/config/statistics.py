"""The `[statistics]` table of an experiment file: a run that asks for statistics and trains no model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from sottovoce.config.table import Table
from sottovoce.core.errors import PrivacyError
from sottovoce.federation.stages.survey import STATISTICS, Statistic

if TYPE_CHECKING:
    from sottovoce.config.experiment import Experiment


class StatisticsTable(Table):
    """The `[statistics]` table: what is told of the records of all sites, in one private sum (docs/statistics.md).

    With it a run trains no model. It needs [privacy] unit = "record" or "person", and a schema.
    """

    columns: list[str] = Field(
        [],
        description="Columns that statistics are told of; the schema must declare them. Empty: all that it declares.",
    )
    by: list[str] = Field(
        [],
        description="Columns with declared categories: everything is told for each group of records with the same "
        "words there. More groups do not need more noise, but have fewer records each. Empty: one group.",
    )
    what: list[Statistic] = Field(
        list(STATISTICS),
        description="Statistics that are told. All of one run share its budget equally, query by query, so fewer of "
        "them have less noise.",
    )
    learn: bool = Field(
        False,
        description="Learn what the columns are, within epsilon: ranges and categories for a schema, in place of "
        "statistics. `sottovoce statistics --learn FILE` sets it, and writes the schema.",
    )
    bins: int = Field(
        20, ge=2, le=10_000, description="Bins of a histogram, equally wide over the declared range of its column."
    )
    quantiles: list[Annotated[float, Field(gt=0, lt=1)]] = Field(
        [0.25, 0.5, 0.75],
        description="Quantiles, read off the histogram: they cost nothing more, and are as fine as its bins.",
    )
    threshold: float = Field(
        3.0,
        ge=0,
        description="Categories are shown if their count is above so many standard deviations of its noise.",
    )
    confidence: float = Field(
        0.95, gt=0, lt=1, description="Share of intervals that hold the value as it is without noise."
    )


def one_round(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a run of statistics with what it always has: one round, and every site in it."""
    filled = dict(tables)
    for name, defaults in (("experiment", {"rounds": 1}), ("cohort", {"sample_rate": 1})):
        given = tables.get(name, {})
        if isinstance(given, Mapping):
            filled[name] = {**defaults, **given}
    return filled


def check_statistics(experiment: Experiment) -> None:
    """Raise if a run of statistics would not be private, or has tables that mean nothing to it."""
    if experiment.statistics is None:
        return
    private, data = experiment.privacy, experiment.data
    if private is None or private.unit == "client":
        raise PrivacyError(
            '[statistics] is told of records or persons with noise; add [privacy] with unit = "record" or "person" and '
            "an epsilon"
        )
    if experiment.statistics.learn and (data.schema is not None or experiment.statistics.by):
        raise ValueError("[statistics] learn finds a schema, and has no use for [data] schema or by; remove them")
    if data.schema is None and not experiment.statistics.learn:
        raise PrivacyError(
            "[statistics] needs [data] schema: ranges and categories that are taken from the records are not private; "
            "write one, or let sottovoce statistics --learn do it within epsilon"
        )
    for name, wrong in (
        (f"[experiment] rounds = {experiment.experiment.rounds}; all queries are one round", _rounds(experiment) != 1),
        ("[privacy] clip_norm, which follows from the schema", private.clip_norm is not None),
        ("[privacy] unit_rate", private.unit_rate != 1),
        ("[cohort] sample_rate below 1", experiment.cohort.sample_rate != 1),
        ("[data] split, test or held_out", bool(data.split or data.test or data.held_out)),
        ('[experiment] evaluation = "server" or "federated"', experiment.experiment.evaluation not in (None, "none")),
        ("[data] shape", data.shape is not None),
    ):
        if wrong:
            raise ValueError(f"[statistics] trains no model and is not played with {name}; remove it")


def _rounds(experiment: Experiment) -> int:
    return experiment.experiment.rounds
