"""Columns of the table of runs: what each shows, under which heading, and when it is worth its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sottovoce.devices.remarks import two_digits
from sottovoce.report.attacks import DIVERGED, attack_words, diverged
from sottovoce.report.audits import audited
from sottovoce.report.runs import DAMAGED
from sottovoce.report.units import ABSENT, count, decimal, epsilon, finite, human_bytes, human_seconds

__all__ = ["ADVERSARIES", "RESULTS", "RUN", "SECURE", "Column", "Record", "columns"]

Record = Mapping[str, Any]

ADVERSARIES: Final = {
    "epsilon": "outsiders, who hold no client and trust the server",
    "epsilon_server": "the server",
}


@dataclass(frozen=True)
class Column:
    """One column: what it shows, under which heading, and when it is worth its place."""

    key: str
    group: str
    title: str  # below its group
    short: str  # alone, on a terminal
    value: Callable[[Record], str]
    optional: bool = False  # left out when no run has it
    number: bool = True

    def show(self, record: Record) -> str:
        """Return the cell; of a damaged run only its name and that it is damaged are known."""
        if record.get("status") == DAMAGED and self.key != "label":
            return DAMAGED if self.key == "rounds" else ABSENT
        return self.value(record)

    def rank(self, record: Record) -> str:
        """Return what a table is sorted by: a number in full, or the words of the cell; empty if it is not known."""
        shown, value = self.show(record), record.get(self.key)
        if shown in (ABSENT, DIVERGED, DAMAGED):
            return ""
        if shown == "∞":
            return "Infinity"
        number = finite(value.get("default") if isinstance(value, Mapping) else value)
        return shown if number is None else f"{number:.10g}"

    @property
    def full(self) -> str:
        """Return the heading that is clear without its group."""
        return f"{self.group}: {self.title}" if self.group not in ("", "cost") else self.title


def _metric(name: str) -> Callable[[Record], str]:
    return lambda record: DIVERGED if diverged(record) else decimal(record.get(name))


def _best(name: str) -> Callable[[Record], str]:
    def show(record: Record) -> str:
        if diverged(record):
            return DIVERGED
        value, round_ = decimal(record.get(f"{name}_best")), record.get("best_round")
        # The round stands beside the metric that chose it.
        chosen = record.get("selected_by", "accuracy") == name
        return value if value == ABSENT or round_ is None or not chosen else f"{value} ({round_})"

    return show


def _outcome(name: str) -> Callable[[Record], str]:
    """Return the cell of what only an attack with a target has; the others have none, whether they diverged or not."""
    return lambda record: DIVERGED if diverged(record) and record.get(name) is not None else decimal(record.get(name))


def _epsilon(name: str) -> Callable[[Record], str]:
    def show(record: Record) -> str:
        if not record.get("private"):
            return "∞"  # the summary says null: no number bounds it
        return epsilon(record.get(name))

    return show


def _private(record: Record) -> str:
    if not record.get("private"):
        return "no"
    ledger = record.get("ledger")  # absent where a record does not come from a folder
    return "yes" if ledger is None else "yes, intact" if ledger["intact"] else "yes, broken"


def _audited(name: str) -> Callable[[Record], str]:
    return lambda record: audited(record.get(name))


def _bytes(name: str) -> Callable[[Record], str]:
    return lambda record: human_bytes(record.get(name))


def _rounds(record: Record) -> str:
    status, rounds = str(record.get("status", "finished")), count(record.get("rounds"))
    if status.startswith("unfinished"):
        return f"{rounds} of {count(record.get('rounds_planned'))}, unfinished"
    return rounds if status == "finished" else f"{rounds}, {status}"


def _joules(record: Record) -> str:
    told = record.get("joules_per_client")
    number = finite(told.get("default") if isinstance(told, Mapping) else None)
    return count(told) if number is None else two_digits(number)


def _votes(record: Record) -> str:
    number = finite(record.get("votes"))
    return ABSENT if number is None else f"{number:.2g}" if number < 100 else two_digits(number)


_ACCURACY, _BALANCED, _AUROC, _EPSILON = "accuracy", "balanced accuracy", "AUROC", "epsilon against"
_EACH, _TOTAL, _PAPER = "bytes per client and round", "bytes in total", "papers' formula, per client"
SECURE, _EXPANSION = "secure_overhead_up_bytes_per_client_round", "secure_expansion"
_SUCCESS, _CLASS, _AT_LEAST = "attack success", "accuracy on the attacked class", "epsilon audited, at least, against"
_COUNTS = "one client counts for"
RESULTS: Final = ("", _ACCURACY, _BALANCED, _AUROC, _SUCCESS, _CLASS, _EPSILON, _COUNTS, _AT_LEAST)

RUN: Final = Column("label", "", "run", "run", lambda r: str(r.get("label") or r.get("name") or ABSENT), number=False)
_COLUMNS: Final = (
    RUN,
    Column("scheme", "", "scheme", "scheme", lambda r: str(r.get("scheme") or ABSENT), number=False),
    Column("private", "", "private, ledger", "private", _private, number=False),
    Column("attack", "", "attack, malicious share", "attack", attack_words, optional=True, number=False),
    Column("rounds", "", "rounds", "rounds", _rounds),
    Column("rejected_rounds", "", "rounds rejected", "rejected", lambda r: count(r.get("rejected_rounds")), True),
    Column("accuracy_best", _ACCURACY, "best (round)", "best (round)", _best("accuracy")),
    Column("accuracy_final", _ACCURACY, "final", "final", _metric("accuracy_final")),
    Column("balanced_accuracy_best", _BALANCED, "best (round)", "balanced", _best("balanced_accuracy"), optional=True),
    Column("balanced_accuracy_final", _BALANCED, "final", "final", _metric("balanced_accuracy_final"), optional=True),
    Column("auroc_best", _AUROC, "best", "AUROC", _metric("auroc_best"), optional=True),
    Column("auroc_final", _AUROC, "final", "final", _metric("auroc_final"), optional=True),
    Column("attack_success_best", _SUCCESS, "best round", "success", _outcome("attack_success_best"), optional=True),
    Column("attack_success_final", _SUCCESS, "final", "final", _outcome("attack_success_final"), optional=True),
    Column("class_accuracy_best", _CLASS, "best round", "class", _outcome("class_accuracy_best"), optional=True),
    Column("class_accuracy_final", _CLASS, "final", "final", _outcome("class_accuracy_final"), optional=True),
    Column("epsilon", _EPSILON, "outsiders", "ε others", _epsilon("epsilon")),
    Column("epsilon_server", _EPSILON, ADVERSARIES["epsilon_server"], "ε server", _epsilon("epsilon_server")),
    Column("delta", _EPSILON, "at delta", "δ", lambda r: count(r.get("delta")), optional=True),
    Column("votes", _COUNTS, "honest ones (A)", "A", _votes, optional=True),
    Column("epsilon_lower", _AT_LEAST, "outsiders", "≥ others", _audited("epsilon_lower"), optional=True),
    Column("epsilon_server_lower", _AT_LEAST, "the server", "≥ server", _audited("epsilon_server_lower"), True),
    Column("bytes_up_per_client_round", _EACH, "up", "up / round", _bytes("bytes_up_per_client_round")),
    Column("bytes_down_per_client_round", _EACH, "down", "down / round", _bytes("bytes_down_per_client_round")),
    Column(SECURE, _EACH, "of it up for secrecy", "secure up", _bytes(SECURE), optional=True),
    Column(_EXPANSION, _EACH, "up over the packed vector", "× vector", lambda r: decimal(r.get(_EXPANSION), 3), True),
    Column("bytes_setup_per_client", "set-up", "once a client", "set-up", _bytes("bytes_setup_per_client")),
    Column("bytes_up_total", _TOTAL, "up", "up total", _bytes("bytes_up_total")),
    Column("bytes_down_total", _TOTAL, "down", "down total", _bytes("bytes_down_total")),
    Column("paper_cost_up_bytes", _PAPER, "up", "paper up", _bytes("paper_cost_up_bytes")),
    Column("paper_cost_down_bytes", _PAPER, "down", "paper down", _bytes("paper_cost_down_bytes")),
    Column("joules_per_client", "cost", "joules a client and round", "joules", _joules, True),
    Column("seconds", "cost", "time", "time", lambda r: human_seconds(r.get("seconds"))),
)


def columns(records: Sequence[Record]) -> list[Column]:
    """Return the columns that these runs need."""
    chosen = [c for c in _COLUMNS if not c.optional or any(record.get(c.key) is not None for record in records)]
    if all(record.get("scheme") == record.get("label") for record in records if record.get("status") != DAMAGED):
        chosen = [column for column in chosen if column.key != "scheme"]
    return chosen
