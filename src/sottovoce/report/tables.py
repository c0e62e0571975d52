"""Lay runs out side by side: quality, privacy with its adversary, bytes, the papers' cost, time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sottovoce.report.runs import DAMAGED
from sottovoce.report.units import ABSENT, count, decimal, epsilon, human_bytes, human_seconds, human_value

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["ADVERSARIES", "Column", "card", "columns", "grouped", "notes", "rows", "split", "table"]

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

    @property
    def full(self) -> str:
        """Return the heading that is clear without its group."""
        return f"{self.group}: {self.title}" if self.group not in ("", "cost") else self.title


def _metric(name: str) -> Callable[[Record], str]:
    return lambda record: decimal(record.get(name))


def _best(name: str) -> Callable[[Record], str]:
    def show(record: Record) -> str:
        value, round_ = decimal(record.get(f"{name}_best")), record.get("best_round")
        # The round stands beside the metric that chose it.
        chosen = record.get("selected_by", "accuracy") == name
        return value if value == ABSENT or round_ is None or not chosen else f"{value} ({round_})"

    return show


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


def _bytes(name: str) -> Callable[[Record], str]:
    return lambda record: human_bytes(record.get(name))


def _rounds(record: Record) -> str:
    status, rounds = str(record.get("status", "finished")), count(record.get("rounds"))
    if status.startswith("unfinished"):
        return f"{rounds} of {count(record.get('rounds_planned'))}, unfinished"
    return rounds if status == "finished" else f"{rounds}, {status}"


_ACCURACY, _BALANCED, _AUROC, _EPSILON = "accuracy", "balanced accuracy", "AUROC", "epsilon against"
_EACH, _TOTAL, _PAPER = "bytes per client and round", "bytes in total", "papers' formula, per client"
_SECURE, _EXPANSION = "secure_overhead_up_bytes_per_client_round", "secure_expansion"
_RESULTS: Final = ("", _ACCURACY, _BALANCED, _AUROC, _EPSILON)

_COLUMNS: Final = (
    Column("label", "", "run", "run", lambda r: str(r.get("label") or r.get("name") or ABSENT), number=False),
    Column("scheme", "", "scheme", "scheme", lambda r: str(r.get("scheme") or ABSENT), number=False),
    Column("private", "", "private, ledger", "private", _private, number=False),
    Column("rounds", "", "rounds", "rounds", _rounds),
    Column("accuracy_best", _ACCURACY, "best (round)", "best (round)", _best("accuracy")),
    Column("accuracy_final", _ACCURACY, "final", "final", _metric("accuracy_final")),
    Column("balanced_accuracy_best", _BALANCED, "best (round)", "balanced", _best("balanced_accuracy"), optional=True),
    Column("balanced_accuracy_final", _BALANCED, "final", "final", _metric("balanced_accuracy_final"), optional=True),
    Column("auroc_best", _AUROC, "best", "AUROC", _metric("auroc_best"), optional=True),
    Column("auroc_final", _AUROC, "final", "final", _metric("auroc_final"), optional=True),
    Column("epsilon", _EPSILON, "outsiders", "ε others", _epsilon("epsilon")),
    Column("epsilon_server", _EPSILON, ADVERSARIES["epsilon_server"], "ε server", _epsilon("epsilon_server")),
    Column("delta", _EPSILON, "at delta", "δ", lambda r: count(r.get("delta")), optional=True),
    Column("bytes_up_per_client_round", _EACH, "up", "up / round", _bytes("bytes_up_per_client_round")),
    Column("bytes_down_per_client_round", _EACH, "down", "down / round", _bytes("bytes_down_per_client_round")),
    Column(_SECURE, _EACH, "of it up for secrecy", "secure up", _bytes(_SECURE), optional=True),
    Column(_EXPANSION, _EACH, "up over the packed vector", "× vector", lambda r: decimal(r.get(_EXPANSION), 3), True),
    Column("bytes_setup_per_client", "set-up", "once a client", "set-up", _bytes("bytes_setup_per_client")),
    Column("bytes_up_total", _TOTAL, "up", "up total", _bytes("bytes_up_total")),
    Column("bytes_down_total", _TOTAL, "down", "down total", _bytes("bytes_down_total")),
    Column("paper_cost_up_bytes", _PAPER, "up", "paper up", _bytes("paper_cost_up_bytes")),
    Column("paper_cost_down_bytes", _PAPER, "down", "paper down", _bytes("paper_cost_down_bytes")),
    Column("joules_per_client", "cost", "joules a client", "joules", lambda r: count(r.get("joules_per_client")), True),
    Column("seconds", "cost", "time", "time", lambda r: human_seconds(r.get("seconds"))),
)

_RESULT_NOTE: Final = (
    "private: whether the ledger's chain is intact; "
    "best (round): the best evaluated round, which stands beside the metric that chose it; "
    "ε others: against outsiders, who hold no client and trust the server; "
    "ε server: against the server; ∞: not private"
)
_COST_NOTE: Final = (
    "up / round, down / round: bytes serialised per client and round; set-up: once a client; total: all clients and "
    "rounds; paper: the papers' formula, per client at the best round"
)
_SECURE_NOTE: Final = (
    "; secure up: the part of up / round that masks, keys and shares add to the vector; × vector: up / round over the "
    "packed vector"
)


def columns(records: Sequence[Record]) -> list[Column]:
    """Return the columns that these runs need."""
    chosen = [c for c in _COLUMNS if not c.optional or any(record.get(c.key) is not None for record in records)]
    if all(record.get("scheme") == record.get("label") for record in records if record.get("status") != DAMAGED):
        chosen = [column for column in chosen if column.key != "scheme"]
    return chosen


def rows(records: Sequence[Record]) -> list[dict[str, str]]:
    """Return one row a run, every value as text under its key."""
    chosen = columns(records)
    return [{column.key: column.show(record) for column in chosen} for record in records]


def notes(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return what a reader must not miss, and whose it is: simulated noise, unsafe switches, failures."""
    told: dict[str, list[str]] = {}
    for record in records:
        found = [str(record.get("note") or ""), *_doubts(record)]
        if record.get("budget_spent"):
            found.append("stopped because the privacy budget was spent")
        for key, words in (("aborted_rounds", "rounds were aborted"), ("failures", "answers of clients failed")):
            if record.get(key):
                found.append(f"{count(record[key])} {words}")
        for note in filter(None, found):
            told.setdefault(note, []).append(_COLUMNS[0].show(record))
    return [(note, ", ".join(names)) for note, names in told.items()]


def _doubts(record: Record) -> list[str]:
    """Return why a run's numbers may not be what they seem."""
    if record.get("status") == DAMAGED:
        return [f"damaged: {record['reason']}"]
    unsafe = (record.get("privacy") or {}).get("unsafe")
    found = [f"unsafe: {reason}" for reason in (unsafe if isinstance(unsafe, list) else ())]
    ledger = record.get("ledger") or {}
    if ledger.get("problem"):
        found.append(f"the ledger does not prove epsilon: {ledger['problem']}")
    if record.get("bytes_expected"):
        found.append("bytes are expected values, not measured ones, which would tell how many clients were drawn")
    if record.get("cohorts_told"):
        found.append("made by an older version: bytes tell how many clients were drawn, which epsilon does not cover")
    return found


def table(records: Sequence[Record], width: int) -> list[Table]:
    """Return one table if it fits `width` characters, else one for what came out and one for what it cost."""
    parts = split(records, width)
    remarks = [f"{note} ({names})" for note, names in notes(records)]
    cost_note = _COST_NOTE + (_SECURE_NOTE if any(column.key == _SECURE for part in parts for column in part) else "")
    if len(parts) == 1:
        return [_table(parts[0], records, "\n".join([_RESULT_NOTE, cost_note, *remarks]))]
    return [
        _table(parts[0], records, "\n".join([_RESULT_NOTE, *remarks])),
        _table(parts[1], records, cost_note),
    ]


def split(records: Sequence[Record], width: int, *, folded: int | None = None) -> list[list[Column]]:
    """Return the columns of one table if `width` characters are enough, else of one for results and one for costs.

    Longer cells are counted as `folded` characters, where they are folded.
    """
    chosen = columns(records)
    if _natural_width(chosen, records, folded) <= width:
        return [chosen]
    results = [column for column in chosen if column.group in _RESULTS]
    return [results, [chosen[0], *(column for column in chosen if column not in results)]]


def card(record: Record) -> Table:
    """Return one run as a list of what it did and what it cost."""
    lines = {column.full: column.show(record) for column in columns([record])}
    remarks = "; ".join(note for note, _ in notes([record]))
    return _pairs(lines | ({"note": remarks} if remarks else {}))


_PREFIXES: Final = (
    (("bytes_", "paper_cost_", "bits_", "secure_overhead", "secure_expansion"), "bytes"),
    (("privacy", "private", "epsilon", "delta", "noise_", "clip", "accountant", "secure"), "privacy"),
    (("seconds", "joules"), "time and energy"),
)


def grouped(record: Record) -> Table:
    """Return any record as keys and values, grouped by what the keys begin with; nested records are flattened."""
    groups: dict[str, dict[str, str]] = {"experiment": {}, **{title: {} for _, title in _PREFIXES}}
    for key, value in _flat(record):
        title = next((name for starts, name in _PREFIXES if key.startswith(starts)), "experiment")
        if key.startswith("epsilon") and value is None and record.get("private") is False:
            groups[title][key] = "∞"
        else:
            groups[title][key] = human_value(key, value)
    return _pairs(*(group for group in groups.values() if group))


def _flat(record: Record, before: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in record.items():
        name = f"{before}{key}"
        inner = value._asdict() if hasattr(value, "_asdict") else value  # a named tuple
        pairs += _flat(inner, f"{name}.") if isinstance(inner, Mapping) else [(name, value)]
    return pairs


def _pairs(*groups: Mapping[str, str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    drawn = Table(show_header=False, box=None, pad_edge=False)
    drawn.add_column(style="dim")
    drawn.add_column(overflow="fold")
    for index, group in enumerate(groups):
        if index:
            drawn.add_row("", "")
        for key, value in group.items():
            drawn.add_row(Text(key), Text(value))
    return drawn


def _table(chosen: Sequence[Column], records: Sequence[Record], caption: str) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=Text(caption), caption_justify="left")
    for column in chosen:
        # Text, not str: a run may be called "[red]".
        drawn.add_column(Text(column.short), justify="right" if column.number else "left", overflow="fold")
    for record in records:
        drawn.add_row(*(Text(column.show(record)) for column in chosen))
    return drawn


def _natural_width(chosen: Sequence[Column], records: Sequence[Record], folded: int | None = None) -> int:
    """Return the width that the cells need, each cut to `folded` characters; three blanks stand between columns."""
    shown = ((column.short, *(column.show(record)[:folded] for record in records)) for column in chosen)
    return sum(3 + max(map(len, cells)) for cells in shown)
