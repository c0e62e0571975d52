"""Divide what a round tells between those who may read it.

A run that is not private has one record a round, in `rounds.jsonl`. A private one has two: `rounds.jsonl` may be
published, and everything from which the size of the cohort could be computed is in `operator.jsonl` alone. Given that
size, Poisson sampling is sampling of a fixed size, for which the noise is far too small (docs/privacy.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from sottovoce.core.wire import Traffic
from sottovoce.federation.aggregation.aggregator import Costs, Total
from sottovoce.models import better
from sottovoce.schemes import State

Record = dict[str, Any]

OPERATOR_ONLY: Final = (
    *("cohort", "senders", "failures", "phases", "seconds", "reason", "sizes", "dropouts"),
    *("wire_up", "wire_down"),
    *("client_accuracy_mean", "client_accuracy_worst_tenth", "client_accuracy_worst", "client_accuracy_clients"),
    *("personal_accuracy_mean", "personal_accuracy_worst_tenth", "personal_accuracy_worst"),
)
"""Keys that a private run writes to `operator.jsonl` and nowhere else."""


class RoundRecords(NamedTuple):
    """The record of a round that may be published, and what is for the operator alone; None if nothing is secret.

    `sizes` are the bytes up and down of each client. They are for whoever watches the run, and in no file.
    """

    public: Record
    operator: Record | None
    sizes: dict[int, Traffic] | None = None

    @property
    def whole(self) -> Record:
        """Return all that the operator may see; real bytes take the place of expected ones, and `private` says so."""
        sizes = {} if self.sizes is None else {"sizes": self.sizes}
        secret = {} if self.operator is None else {**self.operator, "private": True}
        return {**self.public, **secret, **sizes}


@dataclass
class RoundEntry:
    """A round that was played, before its records are written: instruments add to them, and to the state."""

    round: int
    state: State
    cohort: int
    total: Total
    began: float  # by time.perf_counter
    seconds: float  # that the round took
    due: bool  # the model is to be measured
    public: Record = field(default_factory=dict)  # what is told beside the usual
    secret: Record = field(default_factory=dict)  # the same, to the operator of a private run alone


class Instrument(Protocol):
    """What measures a round and adds to its records, before they are written and callbacks hear of them.

    Whoever adds to `public` answers for whose records it depends on. Users' callbacks are told what is written, and
    add nothing to it.
    """

    def after(self, entry: RoundEntry) -> None:
        """Add to a round that was played."""
        ...


def tell(
    round_: int,
    cohort: int,
    total: Total,
    *,
    seconds: float,
    costs: Costs | None,
    more: Record,
    secret: Record | None = None,
) -> RoundRecords:
    """Return the records of a round; `costs` are what a private run publishes in place of real bytes.

    `secret` is what the operator of a private run is told beside the usual; of other runs it is in no record.

    That a round was aborted is no secret: everybody sees that its model did not change.
    """
    measured = tell_operator(round_, cohort, total, seconds)
    failed = total.reason and total.values is None  # a reason with a sum is covered by noise, for the operator alone
    aborted: Record = {"aborted": True} if failed else {"rejected": True} if total.rejected else {}
    if costs is None:
        return RoundRecords(measured | more | aborted, None, total.clients)
    expected = {"round": round_, "bytes_up": costs.round.up, "bytes_down": costs.round.down}
    return RoundRecords(expected | more | aborted, measured | (secret or {}), total.clients)


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
    """Return the round with the best value of a metric, the first of equal ones; None before any evaluation."""
    best = None
    for record in records:
        if record.get(metric) is not None and (best is None or better(metric, record[metric], best[metric])):
            best = record
    return best
