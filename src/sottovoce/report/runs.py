"""Read run folders: `config.toml`, `rounds.jsonl` and, once the run has ended, `summary.json`; nothing else."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sottovoce.core.errors import InputError, RunError
from sottovoce.experiment.folder import read_rounds, read_summary

__all__ = ["Facts", "Run", "facts", "label", "read_run", "read_runs"]

Facts = dict[str, Any]
Tables = dict[str, dict[str, Any]]

_METRICS: Final = ("accuracy", "balanced_accuracy", "auroc")
_COUNTS: Final = ("round", "cohort", "bytes_up", "bytes_down", "seconds")


@dataclass(frozen=True)
class Run:
    """Hold what a run folder tells."""

    path: Path
    config: str  # the text of config.toml
    tables: Tables
    rounds: list[dict[str, Any]]
    summary: dict[str, Any] | None

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


def read_runs(paths: Iterable[Path]) -> list[Run]:
    """Read several folders; one given twice is read once."""
    different: dict[Path, Path] = {}
    for path in paths:
        different.setdefault(path.resolve(), path)
    return [read_run(path) for path in different.values()]


def read_run(path: Path) -> Run:
    """Read one folder, finished or not; what is no run, or a damaged one, is an error of one sentence."""
    try:
        text = (path / "config.toml").read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(_no_run(path)) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path / 'config.toml'} cannot be read: {error}") from None
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
    if summary is not None and not isinstance(summary, dict):
        raise InputError(f"{path / 'summary.json'} is damaged: it must hold one object")
    return Run(path, text, tables, rounds, summary)


def label(runs: Iterable[Run]) -> list[str]:
    """Return a name for each run that no other has: the experiment's, else the folder's, else the path."""
    listed = list(runs)
    for names in ([run.name for run in listed], [run.path.resolve().name for run in listed]):
        if len(set(names)) == len(names):
            return names
    return [str(run.path) for run in listed]


def facts(runs: Iterable[Run]) -> list[Facts]:
    """Return one flat record a run: the summary's fields, or for an unfinished run what its rounds tell so far."""
    listed = list(runs)
    return [
        {"label": name, "path": str(run.path), "status": _status(run), **_told(run)}
        for name, run in zip(label(listed), listed, strict=True)
    ]


def _told(run: Run) -> Facts:
    if run.summary is not None:
        return {**run.summary, "name": run.name, "scheme": run.scheme, "private": run.private}
    # The same arithmetic as the summary's, over the rounds that there are; what only the end can tell is null.
    senders = sum(record.get("senders", record["cohort"]) for record in run.rounds)
    asked = sum(record["cohort"] for record in run.rounds)
    up, down = (sum(record[key] for record in run.rounds) for key in ("bytes_up", "bytes_down"))
    told: Facts = {
        "name": run.name,
        "scheme": run.scheme,
        "private": run.private,
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
        "epsilon_server": run.rounds[-1].get("epsilon_server") if run.rounds else None,
        "delta": run.table("privacy").get("delta"),
        "seconds": round(sum(record["seconds"] for record in run.rounds), 3),
    }
    for metric in _METRICS:
        seen = run.evaluated(metric)
        if seen or metric == "accuracy":
            best = max(seen, key=lambda record: float(record[metric]), default=None)
            told[f"{metric}_best"] = best and best[metric]
            told[f"{metric}_final"] = seen[-1][metric] if seen else None
            if metric == "accuracy":
                told["best_round"] = best and best["round"]
    return told


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
