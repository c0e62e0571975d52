"""Read run folders: `config.toml`, `rounds.jsonl`, `ledger.jsonl`, and `summary.json` and `audit.json` once written."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from sottovoce.core.errors import InputError, RunError
from sottovoce.models import METRICS, leading_metric
from sottovoce.privacy.ledger import verify
from sottovoce.report.attacks import attack_facts, facts_of_rounds
from sottovoce.report.audits import audit_facts, read_audit
from sottovoce.report.newer import newer
from sottovoce.runs.folder import read_rounds, read_summary
from sottovoce.runs.population import source_name

Facts = dict[str, Any]
Tables = dict[str, dict[str, Any]]

_COUNTS: Final = ("round", "bytes_up", "bytes_down")  # of every run; only one that is not private tells its cohorts
DAMAGED: Final = "damaged"  # the status of a folder that cannot be read


@dataclass(frozen=True)
class Run:
    """Content of a run folder."""

    path: Path
    config: str  # the text of config.toml
    tables: Tables
    rounds: list[dict[str, Any]]
    summary: dict[str, Any] | None
    audit: dict[str, Any] | None = None
    newer: str | None = None  # what says that a newer version made it

    @property
    def name(self) -> str:
        """Return the experiment's name."""
        return str(self.table("experiment").get("name") or self.path.resolve().name)

    @property
    def scheme(self) -> str:
        """Return the scheme's name."""
        told = (self.summary or {}).get("scheme")
        return str(told or self.table("scheme").get("name") or "unknown")

    @property
    def private(self) -> bool:
        """Tell whether the run was private."""
        told = (self.summary or {}).get("private")
        return bool(self.table("privacy")) if told is None else bool(told)

    @property
    def planned(self) -> int | None:
        """Return how many rounds the run was to have."""
        rounds = self.table("experiment").get("rounds")
        return rounds if isinstance(rounds, int) else None

    def table(self, name: str) -> dict[str, Any]:
        """Return one table of the config; empty if it is absent."""
        return self.tables.get(name, {})

    def evaluated(self, metric: str = "accuracy") -> list[dict[str, Any]]:
        """Return the rounds with a value of this metric."""
        return [record for record in self.rounds if _is_number(record.get(metric))]

    @property
    def lead(self) -> str:
        """Return the metric that chooses the best round: balanced accuracy if there are two classes."""
        told = (self.summary or {}).get("selected_by")
        if told in METRICS:
            return str(told)
        metric = leading_metric(binary=True)
        binary = f"{metric}_best" in (self.summary or {}) or self.evaluated(metric)
        return leading_metric(bool(binary))

    @property
    def tells_cohorts(self) -> bool:
        """Tell whether bytes are measured and depend on who was drawn; in a private run of today they do not."""
        return any("cohort" in record for record in self.rounds)


def read_runs(paths: Iterable[Path]) -> tuple[list[Run], list[Facts]]:
    """Read several folders, each once; return the runs, and a record with the reason for what cannot be read.

    Raises if there is no run among them.
    """
    different: dict[Path, Path] = {}
    for path in paths:
        different.setdefault(path.resolve(), path)
    runs: list[Run] = []
    damaged: list[Facts] = []
    for path in different.values():
        try:
            runs.append(read_run(path))
        except InputError as error:
            reason = "; ".join(filter(None, (str(error), newer(path))))
            damaged.append({"label": str(path), "path": str(path), "status": DAMAGED, "reason": reason})
    if not runs:
        raise InputError("; ".join(record["reason"] for record in damaged))
    return runs, damaged


def read_run(path: Path) -> Run:
    """Read one folder, finished or not; what is no run, or a damaged one, is an error of one sentence."""
    try:
        text = (path / "config.toml").read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(_no_run(path)) from None
    except ValueError as error:
        raise InputError(f"{path / 'config.toml'} is damaged: {error}") from None
    except OSError as error:
        raise InputError(f"{path / 'config.toml'} cannot be read: {error.strerror}") from None
    if not all(isinstance(table, dict) for table in tables.values()):
        raise InputError(f"{path / 'config.toml'} is damaged: every entry must be a table")
    try:
        rounds, summary = read_rounds(path), read_summary(path)
    except RunError as error:
        raise InputError(str(error)) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    for number, record in enumerate(rounds, start=1):
        if not isinstance(record, dict) or not all(_is_number(record.get(key)) for key in _COUNTS):
            raise InputError(
                f"{path / 'rounds.jsonl'} is damaged: line {number} lacks a number of {', '.join(_COUNTS)}"
            )
    if summary is not None and not (isinstance(summary, dict) and isinstance(summary.get("privacy", {}), dict)):
        raise InputError(f"{path / 'summary.json'} is damaged: it must hold one object, and so must its 'privacy'")
    _plan_epsilon(rounds, summary, tables.get("privacy", {}))
    return Run(path, text, tables, rounds, summary, read_audit(path), newer(path))


def _plan_epsilon(rounds: list[dict[str, Any]], summary: dict[str, Any] | None, privacy: dict[str, Any]) -> None:
    """Put the plan's epsilon into rounds of an older version, which wrote what was spent under its name.

    While such a run has no summary, only a target that its config names is known of its plan.
    """
    planned = privacy.get("epsilon") if summary is None else summary.get("epsilon")
    for record in rounds:
        if record.get("epsilon") is not None and "epsilon_spent" not in record:
            record["epsilon_spent"], record["epsilon"] = record["epsilon"], planned


def label(runs: Iterable[Run]) -> list[str]:
    """Return a name for each run that no other has: the experiment's, else the folder's, else the path."""
    listed = list(runs)
    for names in ([run.name for run in listed], [run.path.resolve().name for run in listed]):
        if len(set(names)) == len(names):
            return names
    return [str(run.path) for run in listed]


def lead(runs: Iterable[Run]) -> str:
    """Return the metric that chose the best round of every run, or accuracy, which all have, if they differ."""
    leads = {run.lead for run in runs if run.evaluated(run.lead)}
    return leads.pop() if len(leads) == 1 else "accuracy"


def facts(runs: Iterable[Run]) -> list[Facts]:
    """Return one flat record a run: the summary's fields, or for an unfinished run what its rounds tell so far."""
    listed = list(runs)
    return [
        attack_facts(run.table("threat"))
        | _told(run)
        | audit_facts(run.audit)
        | {"label": name, "path": str(run.path), "status": _status(run), "newer": run.newer}
        | {"name": run.name, "scheme": run.scheme, "private": run.private, "selected_by": run.lead}
        | {"bytes_expected": run.private and not run.tells_cohorts, "cohorts_told": run.private and run.tells_cohorts}
        | {"ledger": _ledger(run) if run.private else None}
        | {"unit": run.table("privacy").get("unit", "client") if run.private else None}
        | {"population_name": _population(run), "setting": _setting(run), "seed": run.table("experiment").get("seed")}
        for name, run in zip(label(listed), listed, strict=True)
    ]


def _setting(run: Run) -> str:
    """Return the experiment without its seed and name: runs that agree in it differ in their seeds alone."""
    general = {key: value for key, value in run.table("experiment").items() if key not in ("seed", "name")}
    tables = {name: table for name, table in run.tables.items() if name not in ("engine", "sweep", "experiment")}
    return hashlib.sha256(repr(sorted({**tables, "experiment": general}.items())).encode()).hexdigest()[:16]


def _population(run: Run) -> str:
    """Return whose records a run is on, by name."""
    told, data = run.table("privacy").get("population"), run.table("data")
    folder = data.get("folder")
    source = data.get("source", "digits")
    named = source if isinstance(source, list) else str(source)
    return str(told or source_name(named, None if folder is None else str(folder)))


def _ledger(run: Run) -> Facts:
    """Check the ledger of a private run; a chain cut short is whole, so the rounds are compared with it too."""
    charged, problem = verify(run.path / "ledger.jsonl")
    released = {record["round"] for record in run.rounds if not {"reason", "aborted", "void"} & set(record)}
    if problem is None and not released <= set(charged):
        problem = f"ledger.jsonl has no charge for round {min(released - set(charged))}, which was run"
    return {"intact": problem is None, "charges": len(charged), "problem": problem}


def _cohorts(run: Run) -> tuple[float, float]:
    """Return how many clients sent and were asked, in all rounds; their bytes are expected values if they are."""
    if run.tells_cohorts:
        asked = [record.get("cohort", 0) for record in run.rounds]
        sent = [record.get("senders", record.get("cohort", 0)) for record in run.rounds]
        return sum(sent), sum(asked)
    try:
        rate = Fraction(str(run.table("cohort")["sample_rate"]))
        expected = len(run.rounds) * float(rate * run.table("data")["clients"])
    except (KeyError, ValueError, TypeError, ZeroDivisionError):
        return 0, 0
    return expected, expected


def _told(run: Run) -> Facts:
    if run.summary is not None:
        return run.summary
    # The same arithmetic as the summary's, over the rounds that there are; what only the end can tell is null.
    senders, asked = _cohorts(run)
    up, down = (sum(record[key] for record in run.rounds) for key in ("bytes_up", "bytes_down"))
    told: Facts = {
        "rounds": len(run.rounds),
        "rounds_planned": run.planned,
        "bytes_up_per_client_round": up / senders if senders else None,
        "bytes_down_per_client_round": down / asked if asked else None,
        "bytes_up_total": up,
        "bytes_down_total": down,
        "bytes_setup_per_client": None,
        "paper_cost_up_bytes": None,
        "paper_cost_down_bytes": None,
        "joules_per_client": None,
        "epsilon": run.rounds[-1].get("epsilon") if run.rounds else None,
        "epsilon_spent": run.rounds[-1].get("epsilon_spent") if run.rounds else None,
        "epsilon_server": run.rounds[-1].get("epsilon_server") if run.rounds else None,
        "delta": run.table("privacy").get("delta"),
        "seconds": None if run.private else round(sum(record.get("seconds", 0) for record in run.rounds), 3),
    }
    evaluated = run.evaluated(run.lead)
    best = max(evaluated, key=lambda record: float(record[run.lead]), default={})
    told["best_round"] = best.get("round")
    for metric, each in METRICS.items():
        if each.summarised and (metric == "accuracy" or run.evaluated(metric)):
            told[f"{metric}_best"] = best.get(metric)
            told[f"{metric}_final"] = evaluated[-1].get(metric) if evaluated else None
    return told | facts_of_rounds(run.rounds, best, evaluated[-1] if evaluated else {})


def _status(run: Run) -> str:
    done = len(run.rounds)
    if run.summary is None:
        return f"unfinished, round {done} of {run.planned or '?'}"
    return "stopped early" if run.summary.get("stopped_early") else "finished"


def _no_run(path: Path) -> str:
    if not path.exists():
        return f"there is no run folder {path}"
    if path.is_dir() and any(path.glob("*/config.toml")):
        return f"{path} is no run folder but holds some; name them: {path}/*"
    return f"{path} is no run folder: it has no config.toml; give the --out folder of a run"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
