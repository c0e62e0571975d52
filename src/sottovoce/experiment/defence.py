"""Defences in an experiment: what they cannot be combined with, and the server's own update for those that need one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sottovoce.core.errors import InputError
from sottovoce.experiment.privacy_tables import AggregationTable
from sottovoce.threats.defences import Defence, make

if TYPE_CHECKING:
    from sottovoce.experiment.config import Experiment
    from sottovoce.federation.cohort import Cohort
    from sottovoce.schemes import Scheme

__all__ = ["check_defence", "check_defended_cohort", "make_defence"]


def make_defence(table: AggregationTable) -> Defence | None:
    """Return the defence that a table names; None if there is none."""
    if table.defence == "none":
        return None
    return make(table.defence, **({} if table.defence_bound is None else {"bound": table.defence_bound}))


def check_defence(experiment: Experiment, scheme: Scheme) -> None:
    """Raise if a defence cannot be combined with the other tables; ValueError is one sentence of the config's."""
    table = experiment.aggregation
    key = f'[aggregation] defence = "{table.defence}"'
    if table.defence_bound is not None and table.defence != "norm-bound":
        raise ValueError(f'[aggregation] defence_bound is for defence = "norm-bound", not "{table.defence}"; remove it')
    if table.defence == "none":
        return
    if experiment.privacy is not None:
        raise ValueError(
            f"{key} judges single updates, but in a private run the server may see only their sum: one client's share "
            'of the noise does not protect it; remove defence (a private run has [server] guard = "energy") or '
            "[privacy]"
        )
    if experiment.secure != "none":
        raise ValueError(
            f"{key} judges single updates, but a secure sum shows the server no single update, and so nobody who is "
            'out of line; set [aggregation] secure = "none" or remove defence'
        )
    if scheme.form == "signs":
        raise ValueError(
            f"{key} compares values, but {scheme.name} sends signs, whose majority vote already is a defence: nobody "
            "counts for more than one vote; remove defence"
        )
    if scheme.once or experiment.scheme.warm_start is not None:
        name = scheme.name if scheme.once else f'[scheme] warm_start = "{experiment.scheme.warm_start}"'
        raise ValueError(
            f"{key} judges the updates of a cohort, but {name} asks all clients at once for sums over their records; "
            "remove one of them"
        )
    if table.weighting == "records":
        raise ValueError(
            f"{key} counts every client the same, because a malicious one may claim any number of records; remove "
            "[aggregation] weighting"
        )


def check_defended_cohort(table: AggregationTable, cohort: Cohort) -> None:
    """Raise if a cohort that may be drawn is too small for the defence; a cohort of nobody needs none."""
    defence = make_defence(table)
    if defence is None:
        return
    for clients in range(max(1, cohort.least), cohort.most + 1):
        malicious = math.ceil(table.defence_attackers * clients)
        if clients >= defence.fewest(malicious):
            continue
        drawn = f"a cohort has {clients}"
        ways = "raise [cohort] sample_rate or lower [aggregation] defence_attackers"
        if cohort.sampling == "poisson" and cohort.least < cohort.most:
            drawn = f"Poisson sampling of {cohort.expected:g} clients may draw {clients}"
            ways = f'set [cohort] sampling = "fixed", {ways}'
        raise InputError(
            f'[aggregation] defence = "{table.defence}" needs {defence.fewest(malicious)} clients to stand {malicious} '
            f"malicious ({table.defence_attackers} of {clients}, rounded up), but {drawn}; {ways}"
        )
