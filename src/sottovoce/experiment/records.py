"""Divide what a round tells between those who may read it.

A run that is not private has one record a round, in `rounds.jsonl`. A private one has two: `rounds.jsonl` may be
published, and everything from which the size of the cohort could be computed is in `operator.jsonl` alone. Given that
size, Poisson sampling is sampling of a fixed size, for which the noise is far too small (docs/privacy.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sottovoce.federation.aggregate import Total
from sottovoce.federation.costs import Costs
from sottovoce.secagg.sizes import Sizes

__all__ = ["OPERATOR_ONLY", "Record", "Told", "best_of", "tell", "tell_operator"]

Record = dict[str, Any]

OPERATOR_ONLY: Final = (
    *("cohort", "senders", "failures", "phases", "seconds", "reason", "sizes", "dropouts"),
    *("wire_up", "wire_down"),
    *("client_accuracy_mean", "client_accuracy_worst_tenth", "client_accuracy_worst", "client_accuracy_clients"),
    *("personal_accuracy_mean", "personal_accuracy_worst_tenth", "personal_accuracy_worst"),
)
"""Keys that a private run writes to `operator.jsonl` and nowhere else."""


class Told(NamedTuple):
    """The record of a round that may be published, and what is for the operator alone; None if nothing is secret.

    `sizes` are the bytes up and down of each client. They are for whoever watches the run, and in no file.
    """

    public: Record
    operator: Record | None
    sizes: dict[int, Sizes] | None = None

    @property
    def whole(self) -> Record:
        """Return all that the operator may see; real bytes take the place of expected ones, and `private` says so."""
        sizes = {} if self.sizes is None else {"sizes": self.sizes}
        secret = {} if self.operator is None else {**self.operator, "private": True}
        return {**self.public, **secret, **sizes}


def tell(
    round_: int,
    cohort: int,
    total: Total,
    *,
    seconds: float,
    costs: Costs | None,
    more: Record,
    secret: Record | None = None,
) -> Told:
    """Return the records of a round; `costs` are what a private run publishes in place of real bytes.

    `secret` is what the operator of a private run is told beside the usual; of other runs it is in no record.

    That a round was aborted is no secret: everybody sees that its model did not change.
    """
    measured = tell_operator(round_, cohort, total, seconds)
    failed = total.reason and total.values is None  # a reason with a sum is covered by noise, for the operator alone
    aborted: Record = {"aborted": True} if failed else {"rejected": True} if total.rejected else {}
    if costs is None:
        return Told(measured | more | aborted, None, total.clients)
    expected = {"round": round_, "bytes_up": costs.round.up, "bytes_down": costs.round.down}
    return Told(expected | more | aborted, measured | (secret or {}), total.clients)


def tell_operator(round_: int, cohort: int, total: Total, seconds: float) -> Record:
    """Return who came, what travelled, how long it took and what went wrong."""
    record: Record = {
        "round": round_,
        "cohort": cohort,
        "senders": total.senders,
        "bytes_up": total.bytes_up,
        "bytes_down": total.bytes_down,
        "seconds": round(seconds, 4),
    }
    if len(total.phases) > 1:
        record["phases"] = {phase: {"up": up, "down": down} for phase, (up, down) in total.phases.items()}
    if total.failures:
        record["failures"] = {str(client): reason for client, reason in sorted(total.failures.items())}
    if total.wire_up or total.wire_down:
        record |= {"wire_up": total.wire_up, "wire_down": total.wire_down}
    if total.between_servers:
        record["bytes_between_servers"] = total.between_servers
    if total.reason:
        record["reason"] = total.reason
    return record


def best_of(records: Sequence[Record], metric: str) -> Record | None:
    """Return the round with the highest value of a metric, the first of equal ones; None before any evaluation."""
    evaluated = [record for record in records if record.get(metric) is not None]
    return max(evaluated, key=lambda record: float(record[metric]), default=None)
