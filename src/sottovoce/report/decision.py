"""Say in one sentence which run to take: the best private one within a bound on what the server learns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from sottovoce.models.metrics import higher_is_better
from sottovoce.report.attacks import diverged
from sottovoce.report.audits import accusations
from sottovoce.report.figures import words
from sottovoce.report.quality import weak
from sottovoce.report.runs import DAMAGED, Facts
from sottovoce.report.units import decimal, epsilon, human_bytes

LIMITS: Final = (4.0, 8.0, 16.0)  # of epsilon_server: the first that a run keeps


def decide(records: Sequence[Facts], metric: str) -> str:
    """Return what the runs say to somebody who must choose one of them."""
    known = [record for record in records if record["status"] != DAMAGED]
    sound = [record for record in known if not diverged(record) and weak(record) is None and not accusations(record)]
    key = f"{metric}_final"
    private = [record for record in sound if record.get("private") and _finite(record.get("epsilon_server"))]
    for limit in LIMITS:
        within = [record for record in private if record["epsilon_server"] <= limit and _finite(record.get(key))]
        if within:
            best = _best(within, key, metric)
            return f"Best private run with epsilon_server ≤ {limit:g}: {_told(best, key, metric)}"
    if private:
        least = min(private, key=lambda record: float(record["epsilon_server"]))
        number = epsilon(least["epsilon_server"])
        if least["epsilon_server"] <= LIMITS[-1]:
            return (
                f"No private run with epsilon_server ≤ {LIMITS[-1]:g} has a measured {words(metric)}, so none is "
                f"chosen; the smallest epsilon_server is {number}, of {least['label']}."
            )
        return f"No private run keeps epsilon_server ≤ {LIMITS[-1]:g}; the smallest is {number}, of {least['label']}."
    if any(record.get("private") for record in known):
        return "No private run is sound, better than a constant answer and bounded against the server: choose none."
    plain = [record for record in sound if _finite(record.get(key))]
    if not plain:
        return "No run is private, and none is known to be better than a constant answer."
    best = _best(plain, key, metric)
    return f"No run is private. The best of the others: {_told(best, key, metric)}"


def _best(records: Sequence[Facts], key: str, metric: str) -> Facts:
    """Return the run with the best value: of an error that is the smallest."""
    return (max if higher_is_better(metric) else min)(records, key=lambda record: float(record[key]))


def _told(record: Facts, key: str, metric: str) -> str:
    parts = [f"{record['label']}, {words(metric)} {decimal(record[key])}"]
    if record.get("private"):
        parts.append(f"epsilon_server {epsilon(record['epsilon_server'])}")
    if _finite(record.get("bytes_up_per_client_round")):
        parts.append(f"{human_bytes(record['bytes_up_per_client_round'])} up a client and round")
    after = ""
    if record.get("private") and not record.get("deployed"):
        after = " It was simulated: the guarantee is on paper, and protects somebody only between machines."
    return ", ".join(parts) + "." + after


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
