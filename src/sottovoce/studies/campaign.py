"""Play published rows in order of value, and keep what came out as evidence: one small file for each row and seed.

The files are results to publish, so that everybody can see what was run and with what; the run folders stay where they
were played. Several machines share the work by `part`: each takes every n-th row, and no two write the same file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.files import replace_file
from sottovoce.core.validate import nearest
from sottovoce.runs.folder import Record
from sottovoce.studies.catalogue import listing, study_of
from sottovoce.studies.published.table import METRICS, ScaleName

NEAR: Final = 0.03  # a metric within three points of the printed one holds; the printed ones have two digits
GUESS: Final = 0.05  # a model that is nearer than this to always answering the same has not converged
VERDICTS: Final = ("held", "not held", "not run", "ours")
_FOLDER: Final = files("sottovoce.studies").joinpath("campaigns")
_KEPT: Final = ("row", "column", "printed", "sign", "ours", "difference", "diverged", "baseline", "note")


class _Rows(BaseModel):
    """Rows of one table: all of them, or those with one of the words of `only`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: str
    only: tuple[str, ...] = ()
    seeds: int = Field(1, ge=1, le=1000)


class CampaignFile(BaseModel):
    """A list of rows in the order in which they are played."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    scale: ScaleName = "full"
    rows: tuple[_Rows, ...] = Field(min_length=1)


class RowTask(NamedTuple):
    """One row with one seed: what one file of evidence tells."""

    table: str
    row: str
    scale: ScaleName
    seed: int

    @property
    def words(self) -> str:
        """Name the task for a person."""
        return f"{self.table} {self.row}, {self.scale}, seed {self.seed}"

    def file(self, folder: Path) -> Path:
        """Return where its evidence is kept."""
        row = re.sub(r"[^a-z0-9.]+", "-", self.row.lower()).strip("-")
        return folder / self.table / f"{row}-{self.scale}-{self.seed}.json"


def campaign_names() -> list[str]:
    """Return the names of the campaigns that ship."""
    return sorted(entry.name.removesuffix(".toml") for entry in _FOLDER.iterdir() if entry.name.endswith(".toml"))


def read_campaign(name: str) -> CampaignFile:
    """Return a campaign by its name, or from a TOML file of one's own."""
    known = campaign_names()
    if name in known:
        text = _FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8")
    elif name.endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--campaign: {name} cannot be read: {error}") from None
    else:
        guess = nearest(name, known)
        hint = f"did you mean {guess!r}?" if guess else f"there are: {', '.join(known)}; or give a .toml file"
        raise InputError(f"there is no campaign {name!r}; {hint}")
    try:
        return CampaignFile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"campaign {name} is not TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"campaign {name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def tasks(campaign: CampaignFile, part: tuple[int, int] = (1, 1)) -> list[RowTask]:
    """Return what is played, each once, first all seeds of the rows that come first; of several parts, one."""
    known: dict[RowTask, None] = {}
    for batch in campaign.rows:
        for row in _rows(batch.table, batch.only):
            for seed in range(1, batch.seeds + 1):
                known[RowTask(batch.table, row, campaign.scale, seed)] = None
    number, of = part
    return list(known)[number - 1 :: of]


def play(
    campaign: CampaignFile,
    cells: Path,
    *,
    part: tuple[int, int] = (1, 1),
    out: Path | str = "runs/reproduce",
    workers: int | None = None,
    observe: Callable[[str, int, Record], None] = lambda cell, rounds, record: None,
    tell: Callable[[int, int, RowTask], None] = lambda done, total, task: None,
) -> Iterator[tuple[RowTask, str | None]]:
    """Play what has no file yet, and yield each task with the reason if it could not be played.

    A run that was interrupted goes on; one that another process plays at this moment is left to it.
    """
    wanted = tasks(campaign, part)
    for done, task in enumerate(wanted):
        tell(done, len(wanted), task)
        path = task.file(cells)
        if path.exists():
            continue
        before = _cpu()
        try:
            document = study_of(task.table).reproduce(
                task.table,
                scale=task.scale,
                rows=[task.row],
                first_seed=task.seed,
                out=out,
                workers=workers,
                observe=observe,
            )
        except (InputError, PrivacyError) as error:
            yield task, str(error)
            continue
        lines = [line for line in document["cells"] if line["row"] == task.row]
        if not any(line["ours"] is not None or line["diverged"] for line in lines):
            yield task, next((line["note"] for line in lines if line["note"]), "it gave no number")
            continue
        _write(path, task, document["setup"], lines, _cpu() - before)
        yield task, None


def read_evidence(cells: Path) -> list[dict[str, Any]]:
    """Return all files of evidence below a folder; a damaged one is named."""
    found = []
    for path in sorted(cells.rglob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            RowTask(record["table"], record["row"], record["scale"], int(record["seed"]))
            found.append(record)
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(f"{path} is no file of evidence; delete it, or write it again by --campaign") from None
    return found


def evidence(cells: Path) -> dict[str, Any]:
    """Return every printed row of every table with what was run of it: ours, difference, verdict.

    A verdict is about the metrics of a row at the papers' scale, the mean over its seeds: `held` if all are within
    three points of the printed ones (or neither converges), else `not held`; `not run` if there is no evidence. A
    `small` run judges nothing and is shown beside.
    """
    by_row: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in read_evidence(cells):
        by_row.setdefault((record["table"], record["row"]), []).append(record)
    heads = {entry["name"]: entry for entry in listing(cells)}
    tables = []
    for name, head in heads.items():
        study = study_of(name)
        printed: dict[str, list[dict[str, Any]]] = {}
        for cell in study.printed(name):
            printed.setdefault(cell["row"], []).append(cell)
        rows = [_row(row, lines, by_row.get((name, row), [])) for row, lines in printed.items()]
        tables.append({"name": name, "title": head["title"], "source": head["source"], "rows": rows})
    counts = dict.fromkeys(VERDICTS, 0)
    for row in (row for table in tables for row in table["rows"]):
        counts[row["verdict"]] += 1
    return {"tables": tables, "counts": counts, "near": NEAR}


def _row(name: str, lines: Sequence[dict[str, Any]], records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    full = [record for record in records if record["scale"] == "full"]
    small = [record for record in records if record["scale"] == "small"]
    cells = [
        {
            **line,
            "ours": _mean(full, line),
            "small": _mean(small, line),
            "diverged": _diverged(full, line),
            "baseline": _baseline(full),
        }
        for line in lines
    ]
    for cell in cells:
        known = cell["ours"] is not None and cell["printed"] is not None
        cell["difference"] = cell["ours"] - cell["printed"] if known else None
    return {
        "row": name,
        "cells": cells,
        "verdict": _verdict(cells, full),
        "seeds": sorted({record["seed"] for record in full}),
        "setting": " / ".join(dict.fromkeys(record["setting"] for record in full)) or None,
        "commits": sorted({record["commit"] for record in full if record["commit"]}),
        "cpu_seconds": sum(record["cpu_seconds"] or 0.0 for record in full) or None,
    }


def _verdict(cells: Sequence[dict[str, Any]], full: Sequence[dict[str, Any]]) -> str:
    judged = [cell for cell in cells if cell["column"] in METRICS]
    if judged and all(cell["sign"] == "new" for cell in judged):
        return "ours"
    if not full:
        return "not run"
    return "held" if all(_holds(cell) for cell in judged) else "not held"


def _holds(cell: dict[str, Any]) -> bool:
    if cell["sign"] == "-":
        return bool(cell["diverged"]) or (
            cell["ours"] is not None and cell["ours"] <= (cell["baseline"] or 0.0) + GUESS
        )
    if cell["printed"] is None:
        return True  # the text at hand has lost the cell: nothing to hold against us, nor for us
    return not cell["diverged"] and cell["difference"] is not None and abs(cell["difference"]) <= NEAR + 1e-9


def _mean(records: Sequence[dict[str, Any]], line: dict[str, Any]) -> float | None:
    values = [
        cell["ours"]
        for record in records
        for cell in record["cells"]
        if cell["column"] == line["column"] and cell["ours"] is not None
    ]
    return sum(values) / len(values) if values else None


def _baseline(records: Sequence[dict[str, Any]]) -> float | None:
    return next((cell["baseline"] for record in records for cell in record["cells"] if cell.get("baseline")), None)


def _diverged(records: Sequence[dict[str, Any]], line: dict[str, Any]) -> bool:
    return any(cell["diverged"] for record in records for cell in record["cells"] if cell["column"] == line["column"])


def _rows(table: str, only: Sequence[str]) -> list[str]:
    names = list(dict.fromkeys(cell["row"] for cell in study_of(table).printed(table)))
    for word in only:
        if not any(_has(word, name) for name in names):
            raise InputError(f"table {table} has no row with {word!r}; `sottovoce reproduce {table} --json` names all")
    return [name for name in names if not only or any(_has(word, name) for word in only)]


def _has(word: str, name: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(word.lower())}(?![\w-])", name.lower()) is not None


def _write(path: Path, task: RowTask, setup: Sequence[str], lines: Sequence[dict[str, Any]], cpu: float) -> None:
    record = {
        "table": task.table,
        "row": task.row,
        "scale": task.scale,
        "seed": task.seed,
        "setting": "; ".join(setup),
        "version": version("sottovoce"),
        "commit": _commit(),
        "cpu_seconds": round(cpu, 3),
        "cells": [{key: line.get(key) for key in _KEPT if key != "row"} for line in lines],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(record, indent=1) + "\n")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; choose another --cells") from None


def _cpu() -> float:
    """Return the CPU seconds of this process and of workers that have ended."""
    return sum(os.times()[:4])


def _commit() -> str | None:
    """Return the commit of our own checkout; an installed package has none, whatever folder it lies in."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists() or Path(__file__).parents[2].name != "src":
        return None
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
