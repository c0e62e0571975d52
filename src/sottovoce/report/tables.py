"""Lay runs out side by side: quality, privacy with its adversary, bytes, the papers' cost, time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sottovoce.experiment.population import totals
from sottovoce.report.attacks import DIVERGED, diverged
from sottovoce.report.audits import LOWER, accusations
from sottovoce.report.columns import RESULTS, RUN, SECURE, Column, Record, columns
from sottovoce.report.runs import DAMAGED
from sottovoce.report.units import count, epsilon, finite, human_value

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["card", "grouped", "notes", "rows", "split", "table", "warnings"]

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
_ATTACK_NOTE: Final = (
    "attack: and the share of malicious clients; success: attacked test records predicted as the attacker wants; "
    "class: accuracy on the attacked class, both in the best round; rejected: rounds that the guard refused"
)
_VOTES_NOTE: Final = (
    "A: one client counts for A honest ones though every message is checked, because it may leave out its noise; with "
    "ballots 1"
)
_AUDIT_NOTE: Final = "≥ others, ≥ server: epsilon that an audit measured; above ε it contradicts the proof"
_DIVERGED_NOTE: Final = f"diverged: the final model only guesses, so a {DIVERGED} stands in place of its accuracy"


def rows(records: Sequence[Record]) -> list[dict[str, str]]:
    """Return one row a run, every value as text under its key."""
    chosen = columns(records)
    return [{column.key: column.show(record) for column in chosen} for record in records]


def notes(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return what a reader must not miss, and whose it is: simulated noise, unsafe switches, failures."""
    told: dict[str, list[str]] = {}
    for record in records:
        found = [str(record.get("note") or ""), *_doubts(record)]
        if diverged(record):
            found.append(_DIVERGED_NOTE)
        if record.get("epsilon_reason"):
            found.append(f"no epsilon against outsiders: {record['epsilon_reason']}")
        elif record.get("epsilon_not_against"):
            found.append(f"epsilon against outsiders does not hold against {record['epsilon_not_against']}")
        if (spent := finite(record.get("epsilon_spent"))) is not None and spent < (finite(record.get("epsilon")) or 0):
            found.append(f"ε is the plan's; {epsilon(spent)} was spent, an odometer reading and no guarantee")
        if record.get("private") and record.get("test_data"):
            found.append(f"test records: {record['test_data']}")
        if record.get("cohort_floor_note"):
            found.append(str(record["cohort_floor_note"]))
        if rejected := finite(record.get("rejected_rounds")):
            found.append(f"the guard rejected {count(rejected)} of {count(record.get('rounds'))} rounds")
        if record.get("budget_spent"):
            found.append("stopped because the privacy budget was spent")
        failed = {"aborted_rounds": "rounds were aborted", "void_rounds": "rounds are void"}
        for key, words in (failed | {"failures": "answers of clients failed"}).items():
            if record.get(key):
                found.append(f"{count(record[key])} {words}")
        for note in filter(None, found):
            told.setdefault(note, []).append(RUN.show(record))
    return [*_sums(records), *((note, ", ".join(names)) for note, names in told.items())]


def _sums(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return what private runs on the same records cost together, and whose they are."""
    found = []
    for each in totals([record for record in records if record.get("status") != DAMAGED]):
        looked = each["if_chosen_after_looking"]
        unknown = f"; {count(each['unknown'])} of them tell no cost and are left out" if each["unknown"] else ""
        words = (
            f"{count(each['runs'])} private runs on the same records add up: together ε {epsilon(each['epsilon'])} "
            f"against outsiders and {epsilon(each['epsilon_server'])} against the server at δ {each['delta']:.3g} if "
            f"all were fixed before the first was looked at (pld), else {epsilon(looked['epsilon'])} and "
            f"{epsilon(looked['epsilon_server'])} at δ {looked['delta']:.3g} (added){unknown}"
        )
        found.append((words, str(each["population"])))
    return found


def _doubts(record: Record) -> list[str]:
    """Return why a run's numbers may not be what they seem."""
    if record.get("status") == DAMAGED:
        return [f"damaged: {record['reason']}"]
    unsafe = (record.get("privacy") or {}).get("unsafe")
    found = [f"ACCUSED by its audit: {reason}" for reason in accusations(record)]
    if record.get("newer"):
        found.append(str(record["newer"]))
    if (record.get("audit") or {}).get("problem"):
        found.append(str(record["audit"]["problem"]))
    found += [f"unsafe: {reason}" for reason in (unsafe if isinstance(unsafe, list) else ())]
    ledger = record.get("ledger") or {}
    if ledger.get("problem"):
        found.append(f"the ledger does not prove epsilon: {ledger['problem']}")
    if record.get("ballot"):
        found.append(
            "ballots: epsilon against the server holds against either aggregator, not against both together; one that "
            "leaves the protocol gets a yes or no more about ballots, and a wrong guess ends the run"
        )
    if record.get("bytes_expected"):
        found.append("bytes are expected values, not measured ones, which would tell how many clients were drawn")
    if record.get("cohorts_told"):
        found.append("made by an older version: bytes tell how many clients were drawn, which epsilon does not cover")
    return found


def warnings(records: Sequence[Record]) -> list[str]:
    """Return what must be said before the table, run by run: damaged folders, broken ledgers, accusations."""
    found = []
    for record in records:
        audit, ledger = record.get("audit") or {}, record.get("ledger") or {}
        damaged = [record.get("reason")] if record.get("status") == DAMAGED else []
        accused = [f"ACCUSED by its audit: {reason}" for reason in accusations(record)]
        problems = [*damaged, record.get("newer"), ledger.get("problem"), *accused, audit.get("problem")]
        found += [f"{RUN.show(record)}: {problem}" for problem in problems if problem]
    return found


def table(records: Sequence[Record], width: int) -> list[Table]:
    """Return one table if it fits `width` characters, else one for what came out and one for what it cost."""
    parts = split(records, width)
    remarks = [f"{note} ({names})" for note, names in notes(records)]
    cost_note = _COST_NOTE + (_SECURE_NOTE if any(column.key == SECURE for part in parts for column in part) else "")
    shown = {column.key for column in parts[0]}
    results = [
        _RESULT_NOTE,
        *([_ATTACK_NOTE] if shown & {"attack", "rejected_rounds"} else []),
        *([_VOTES_NOTE] if "votes" in shown else []),
        *([_AUDIT_NOTE] if shown & set(LOWER.values()) else []),
    ]
    if len(parts) == 1:
        return [_table(parts[0], records, "\n".join([*results, cost_note, *remarks]))]
    return [
        _table(parts[0], records, "\n".join([*results, *remarks])),
        _table(parts[1], records, cost_note),
    ]


def split(records: Sequence[Record], width: int, *, folded: int | None = None) -> list[list[Column]]:
    """Return the columns of one table if `width` characters are enough, else of one for results and one for costs.

    Longer cells are counted as `folded` characters, where they are folded.
    """
    chosen = columns(records)
    if _natural_width(chosen, records, folded) <= width:
        return [chosen]
    results = [column for column in chosen if column.group in RESULTS]
    return [results, [chosen[0], *(column for column in chosen if column not in results)]]


def card(record: Record) -> Table:
    """Return one run as a list of what it did and what it cost."""
    shown = columns([record])
    if record.get("deployed"):  # between machines the epsilon that counts on no secret draw comes first
        keys = [column.key for column in shown]
        shown.insert(keys.index("epsilon"), shown.pop(keys.index("epsilon_server")))
    lines = {column.full: column.show(record) for column in shown}
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
