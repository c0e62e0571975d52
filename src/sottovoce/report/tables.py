"""Lay runs out side by side: quality, privacy with its adversary, bytes, the papers' cost, time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sottovoce.devices.remarks import two_digits
from sottovoce.models import METRICS, leading_metric
from sottovoce.report.attacks import DIVERGED, attack_words, diverged
from sottovoce.report.audits import LOWER, accusations, audited
from sottovoce.report.quality import advice, lines, over_seeds, weak
from sottovoce.report.runs import DAMAGED
from sottovoce.report.units import ABSENT, count, decimal, epsilon, finite, human_bytes, human_seconds, human_value
from sottovoce.runs.population import totals

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "ADVERSARIES",
    "RESULTS",
    "RUN",
    "SECURE",
    "Record",
    "TableColumn",
    "card",
    "columns",
    "grouped",
    "notes",
    "pairs",
    "rows",
    "split",
    "table",
    "warnings",
]

Record = Mapping[str, Any]

ADVERSARIES: Final = {
    "epsilon": "outsiders, who hold no client and trust the server",
    "epsilon_server": "the server",
}


@dataclass(frozen=True)
class TableColumn:
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
        if self.key.startswith("epsilon") and finite_text(shown):
            return shown  # rows that show the same epsilon are equal: noise is solved to a few digits
        number = finite(value.get("default") if isinstance(value, Mapping) else value)
        return shown if number is None else f"{number:.10g}"

    @property
    def full(self) -> str:
        """Return the heading that is clear without its group."""
        return f"{self.group}: {self.title}" if self.group not in ("", "cost") else self.title


def finite_text(shown: str) -> bool:
    """Tell whether a cell is a number by itself."""
    try:
        return finite(float(shown)) is not None
    except ValueError:
        return False


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


def _quality(name: str) -> tuple[TableColumn, TableColumn]:
    """Return the columns of a metric: of the best round, and of the final model; accuracy is always worth its place."""
    metric, first = METRICS[name], name == "accuracy"
    chooses = name in (leading_metric(binary=False), leading_metric(binary=True))
    title = "best (round)" if chooses else "best"
    return (
        TableColumn(f"{name}_best", metric.words, title, title if first else metric.short, _best(name), not first),
        TableColumn(f"{name}_final", metric.words, "final", "final", _metric(f"{name}_final"), not first),
    )


def _baseline(record: Record) -> str:
    return decimal(record.get("baseline_accuracy"))


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
    promise = "yes" if record.get("deployed") else "on paper"  # a simulation protects nobody
    return promise if ledger is None or ledger["intact"] else f"{promise}, broken"


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


_EPSILON = "epsilon against"
_MEASURED: Final = tuple(name for name, metric in METRICS.items() if metric.summarised)
_EACH, _TOTAL, _PAPER = "bytes per client and round", "bytes in total", "papers' formula, per client"
SECURE, _EXPANSION = "secure_overhead_up_bytes_per_client_round", "secure_expansion"
_SUCCESS, _CLASS, _AT_LEAST = "attack success", "accuracy on the attacked class", "epsilon audited, at least, against"
_COUNTS = "one client counts for"
_QUALITIES: Final = tuple(METRICS[name].words for name in _MEASURED)
_OWN: Final = "your metrics"
RESULTS: Final = ("", *_QUALITIES, _OWN, _SUCCESS, _CLASS, _EPSILON, _COUNTS, _AT_LEAST)

RUN: Final = TableColumn(
    "label", "", "run", "run", lambda r: str(r.get("label") or r.get("name") or ABSENT), number=False
)
_COLUMNS: Final = (
    RUN,
    TableColumn("scheme", "", "scheme", "scheme", lambda r: str(r.get("scheme") or ABSENT), number=False),
    TableColumn("private", "", "private, ledger", "private", _private, number=False),
    TableColumn("attack", "", "attack, malicious share", "attack", attack_words, optional=True, number=False),
    TableColumn("rounds", "", "rounds", "rounds", _rounds),
    TableColumn("rejected_rounds", "", "rounds rejected", "rejected", lambda r: count(r.get("rejected_rounds")), True),
    *_quality("accuracy"),
    TableColumn("baseline_accuracy", METRICS["accuracy"].words, "baseline", "baseline", _baseline, optional=True),
    *(column for name in _MEASURED if name != "accuracy" for column in _quality(name)),
    TableColumn(
        "attack_success_best", _SUCCESS, "best round", "success", _outcome("attack_success_best"), optional=True
    ),
    TableColumn("attack_success_final", _SUCCESS, "final", "final", _outcome("attack_success_final"), optional=True),
    TableColumn("class_accuracy_best", _CLASS, "best round", "class", _outcome("class_accuracy_best"), optional=True),
    TableColumn("class_accuracy_final", _CLASS, "final", "final", _outcome("class_accuracy_final"), optional=True),
    TableColumn("epsilon", _EPSILON, "outsiders", "ε others", _epsilon("epsilon")),
    TableColumn("epsilon_server", _EPSILON, ADVERSARIES["epsilon_server"], "ε server", _epsilon("epsilon_server")),
    TableColumn("delta", _EPSILON, "at delta", "δ", lambda r: count(r.get("delta")), optional=True),
    TableColumn("votes", _COUNTS, "honest ones (A)", "A", _votes, optional=True),
    TableColumn("epsilon_lower", _AT_LEAST, "outsiders", "≥ others", _audited("epsilon_lower"), optional=True),
    TableColumn("epsilon_server_lower", _AT_LEAST, "the server", "≥ server", _audited("epsilon_server_lower"), True),
    TableColumn("bytes_up_per_client_round", _EACH, "up", "up / round", _bytes("bytes_up_per_client_round")),
    TableColumn("bytes_down_per_client_round", _EACH, "down", "down / round", _bytes("bytes_down_per_client_round")),
    TableColumn(SECURE, _EACH, "of it up for secrecy", "secure up", _bytes(SECURE), optional=True),
    TableColumn(
        _EXPANSION, _EACH, "up over the packed vector", "× vector", lambda r: decimal(r.get(_EXPANSION), 3), True
    ),
    TableColumn("bytes_setup_per_client", "set-up", "once a client", "set-up", _bytes("bytes_setup_per_client")),
    TableColumn("bytes_up_total", _TOTAL, "up", "up total", _bytes("bytes_up_total")),
    TableColumn("bytes_down_total", _TOTAL, "down", "down total", _bytes("bytes_down_total")),
    TableColumn("paper_cost_up_bytes", _PAPER, "up", "paper up", _bytes("paper_cost_up_bytes")),
    TableColumn("paper_cost_down_bytes", _PAPER, "down", "paper down", _bytes("paper_cost_down_bytes")),
    TableColumn("joules_per_client", "cost", "joules a client and round", "joules", _joules, True),
    TableColumn("seconds", "cost", "time", "time", lambda r: human_seconds(r.get("seconds"))),
)


_ACCURACY: Final = frozenset({"accuracy_best", "accuracy_final"})
_OTHERS: Final = frozenset(f"{name}_final" for name in _MEASURED if name != "accuracy")


def columns(records: Sequence[Record]) -> list[TableColumn]:
    """Return the columns that these runs need."""
    known = {c.key for c in _COLUMNS if any(record.get(c.key) is not None for record in records)}
    chosen = [c for c in _COLUMNS if not c.optional or c.key in known]
    if _OTHERS & known and not _ACCURACY & known:  # numbers and answers are right or wrong by other measures
        chosen = [column for column in chosen if column.key not in _ACCURACY]
    own = dict.fromkeys(name for record in records for name in record.get("own_metrics") or ())
    place = next(place for place, column in enumerate(chosen) if column.key == "epsilon")
    chosen[place:place] = [
        TableColumn(f"{name}_final", _OWN, f"{name}, final", name, _metric(f"{name}_final"), optional=True)
        for name in own
    ]
    if all(record.get("scheme") == record.get("label") for record in records if record.get("status") != DAMAGED):
        chosen = [column for column in chosen if column.key != "scheme"]
    return chosen


_RESULT_NOTE: Final = (
    "private: on paper is what a simulation promises, which protects nobody; broken: its ledger; "
    "best (round): the best evaluated round, which stands beside the metric that chose it; "
    "baseline: accuracy of always giving the most frequent answer; "
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
        found = [_weak(record), str(record.get("note") or ""), *_doubts(record)]
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
    return [*over_seeds(records), *_sums(records), *((note, ", ".join(names)) for note, names in told.items())]


def _weak(record: Record) -> str:
    words = weak(record)
    return "" if words is None else f"{words}; try: {'; '.join(advice(record))}"


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
    """Return what must be said before the table, run by run: damaged folders, weak models, ledgers, accusations."""
    found = []
    for record in records:
        audit, ledger = record.get("audit") or {}, record.get("ledger") or {}
        damaged = [record.get("reason")] if record.get("status") == DAMAGED else []
        accused = [f"ACCUSED by its audit: {reason}" for reason in accusations(record)]
        problems = [*damaged, weak(record), record.get("newer"), ledger.get("problem"), *accused, audit.get("problem")]
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


def split(records: Sequence[Record], width: int, *, folded: int | None = None) -> list[list[TableColumn]]:
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
    told = lines(record)
    shown = [column for column in shown if column.key != "baseline_accuracy" or "baseline" not in told]
    last = max(place for place, column in enumerate(shown) if column.group in _QUALITIES)
    cells = {column.full: column.show(record) for column in shown[: last + 1]}
    cells |= told | {column.full: column.show(record) for column in shown[last + 1 :]}
    remarks = "; ".join(note for note, _ in notes([record]) if note != _weak(record))
    return pairs(cells | ({"note": remarks} if remarks else {}))


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
    return pairs(*(group for group in groups.values() if group))


def _flat(record: Record, before: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in record.items():
        name = f"{before}{key}"
        inner = value._asdict() if hasattr(value, "_asdict") else value  # a named tuple
        pairs += _flat(inner, f"{name}.") if isinstance(inner, Mapping) else [(name, value)]
    return pairs


def pairs(*groups: Mapping[str, str]) -> Table:
    """Return headings and values as a table of two columns; groups are set apart by an empty line."""
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


def _table(chosen: Sequence[TableColumn], records: Sequence[Record], caption: str) -> Table:
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


def _natural_width(chosen: Sequence[TableColumn], records: Sequence[Record], folded: int | None = None) -> int:
    """Return the width that the cells need, each cut to `folded` characters; three blanks stand between columns."""
    shown = ((column.short, *(column.show(record)[:folded] for record in records)) for column in chosen)
    return sum(3 + max(map(len, cells)) for cells in shown)
