"""Choose the settings of an experiment on public data only (docs/tuning.md)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sottovoce.config.experiment import Experiment, parse, to_toml, with_settings
from sottovoce.config.names import GRIDS
from sottovoce.core.errors import InputError, RunError
from sottovoce.core.files import replace_file
from sottovoce.data import closed, origin
from sottovoce.models import keeping_features
from sottovoce.runs.folder import Record, take_lock
from sottovoce.search.axes import Axis, read_axes
from sottovoce.search.cells import SearchRuns, Step, Tables, digest
from sottovoce.search.grid import Point, Trials, rungs, search
from sottovoce.search.proxy import clients_origin, make_proxy, public_origin

__all__ = ["FIRST_SEED", "Step", "Tuned", "chosen_file", "tune"]

FIRST_SEED: Final = 10_001  # far from the seeds of results: a setting must not be chosen for the w_0 it will start from


@dataclass(frozen=True)
class Tuned:
    """The outcome of a search: the tables of the chosen file, and what `tune.json` says."""

    tables: dict[str, Any]
    document: Record


def tune(
    tables: Tables,
    public: str,
    folder: Path | str,
    *,
    budget: int = 30,
    seeds: int = 3,
    first_seed: int = FIRST_SEED,
    records: int | None = None,
    workers: int | None = None,
    observe: Callable[[Step], None] = lambda step: None,
) -> Tuned:
    """Search the `[tune]` table of an experiment on public data, and return the best settings.

    `tables` are those of the file, as they are written there. `records` is the number of train records of the clients'
    data, where the catalogue does not know it.

    Guarantee: no file of the clients' data (`[data] source`) is opened; whatever tries to load it gets a PrivacyError.
    """
    experiment = parse(tables, where="tune")
    rungs(budget, seeds)  # refuses numbers that make no search
    axes = read_axes(experiment)
    public_origin(experiment, public)
    mine, path = experiment.experiment.seed, Path(folder)
    taken = [seed for seed in range(first_seed, first_seed + seeds + 1) if seed != mine][:seeds]
    with closed(clients_origin(experiment)):
        aside = _aside(experiment, public, axes)
        proxy = make_proxy(experiment, public, aside=aside, records=records, seed=first_seed)
        cells = SearchRuns(tables, axes, proxy, path, taken, workers, observe)
        start = cells.start(experiment)
        cells.check_values(start)
        protocol = {
            "public": proxy.source,
            "records": proxy.fingerprint(),
            "experiment": digest({name: told for name, told in tables.items() if name not in (*GRIDS, "engine")}),
        }
        with _opened(path, protocol), keeping_features():
            trials = search([len(axis.values) for axis in axes], start, cells.play, budget=budget, seeds=seeds)
            best = trials.best()
            if best is None:
                raise cells.problem or RunError("no setting could be run")
            document = _document(experiment, cells, trials, best) | {"protocol": protocol}
            replace_file(path / "tune.csv", _csv(document))
            replace_file(path / "tune.json", json.dumps(document, indent=2) + "\n")
    return Tuned(_chosen(experiment, cells, best), document)


def chosen_file(tuned: Tuned, command: str) -> str:
    """Return the text of the chosen file; its comment says how it was chosen, and holds no date."""
    told = tuned.document
    seeds = ", ".join(str(seed) for seed in told["seeds"][: len(told["scores"])])
    lines = [
        f"Chosen by: {command}",
        f"on {told['public']} alone; no record of {told['source']} was read.",
        f"{told['settings_tried']} settings in {told['runs']} runs; the chosen one has a mean "
        f"{told['metric'].replace('_', ' ')} of {told['score']:.4f}",
        f"on {told['scored_records']} train records of {told['public']} that no client held (seeds {seeds}).",
        "This score is the best of many and too good: it is for choosing, and no result.",
    ]
    return "".join(f"# {line}\n" for line in lines) + "\n" + to_toml(tuned.tables)


def _chosen(experiment: Experiment, cells: SearchRuns, best: Point) -> dict[str, Any]:
    """Return the file's tables with the chosen values, a name of its own, and where they come from."""
    provenance: dict[tuple[str, ...], str] = {
        ("experiment", "name"): f"{experiment.experiment.name}-tuned",
        ("experiment", "chosen_on"): cells.proxy.origin.source,
    }
    tables = with_settings(cells.changed(best), provenance)
    parse(tables, where="the chosen file")
    order = ["experiment", *(name for name in tables if name != "experiment")]
    return {name: tables[name] for name in order}


def _aside(experiment: Experiment, public: str, axes: list[Axis]) -> int:
    """Return how many public records must be set aside for `[scheme] public`: none unless that is the same data."""
    listed = {axis.path: axis.values for axis in axes}
    table, privacy = experiment.scheme, experiment.privacy
    clipping = [] if privacy is None else [privacy.clipping, *listed.get(("privacy", "clipping"), ())]
    if not experiment.make_scheme().needs_importance and "public" not in clipping:
        return 0
    same, names = public_origin(experiment, public), [table.public, *listed.get(("scheme", "public"), ())]
    if not any(isinstance(name, str) and origin(name, experiment.data.folder).same_as(same) for name in names):
        return 0
    counts = [table.public_samples, *listed.get(("scheme", "public_samples"), ())]
    return max(count for count in counts if isinstance(count, int))


def _document(experiment: Experiment, cells: SearchRuns, trials: Trials, best: Point) -> Record:
    """Return what `tune.json` says: what was searched, how, on what, and every setting with its scores."""
    tried = [
        {
            "settings": cells.settings(point),
            "score": None if None in scores else trials.mean(point),
            "scores": [score for score in scores if score is not None],
            "reason": cells.reasons.get(point),
        }
        for point, scores in trials.scores.items()
    ]
    return {
        "name": experiment.experiment.name,
        "source": experiment.data.source,
        "public": cells.proxy.origin.source,
        "metric": cells.metric,
        "scored_records": cells.proxy.scored,
        "search": "whole grid" if trials.whole else "one key after another",
        "axes": {axis.name: list(axis.values) for axis in cells.axes},
        "budget": trials.budget,
        "runs": trials.runs,
        "seeds": cells.seeds,
        "settings_tried": sum(trial["score"] is not None for trial in tried),
        "chosen": cells.settings(best),
        "score": trials.mean(best),
        "scores": trials.scores[best],
        "notes": [*cells.proxy.notes, *_remarks(experiment, cells, trials, best)],
        "tried": tried,
    }


def _remarks(experiment: Experiment, cells: SearchRuns, trials: Trials, best: Point) -> Iterator[str]:
    """Yield what a reader should know of the search beyond the numbers."""
    if trials.cut:
        yield f"the budget of {trials.budget} runs ended before the search did; with a larger one it goes on from here"
    for axis, place in zip(cells.axes, best, strict=True):
        if len(axis.values) > 1 and axis.ordered and place in (0, len(axis.values) - 1):
            end = "smallest" if axis.values[place] == min(axis.values) else "largest"
            yield f"{axis.name} = {axis.values[place]} is the {end} value that was tried; a wider list may do better"
    if (ideal := experiment.protocol.ideal) is not None:
        yield f'the cells summed with secure = "{ideal}": the sums are those of "{experiment.secure}"'
    elsewhere = {name: table for name, table in experiment.tables().items() if name not in ("data", "experiment")}
    for path, text in _texts(elsewhere):
        if path != ("scheme", "public") and text == cells.proxy.origin.source:
            yield (
                f"[{path[0]}] {'.'.join(path[1:])} names {text!r} too, so it was made from the very records that "
                "score: it fits them better than it will fit the clients'"
            )


def _texts(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, (*path, str(key)))
    elif isinstance(value, str):
        yield path, value


def _csv(document: Record) -> str:
    """Return every setting that was tried with its scores, one line each, in the order of the search."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names, seeds = list(document["axes"]), document["seeds"]
    writer.writerow([*names, "score", *(f"seed {seed}" for seed in seeds), "reason"])
    for trial in document["tried"]:
        scores = [*trial["scores"], *([""] * (len(seeds) - len(trial["scores"])))]
        values = [trial["settings"][name] for name in names]
        mean = "" if trial["score"] is None else trial["score"]
        writer.writerow([*values, mean, *scores, trial["reason"] or ""])
    return text.getvalue()


@contextmanager
def _opened(folder: Path, protocol: dict[str, str]) -> Iterator[None]:
    """Hold the folder of a search: a new one, or one with cells of the same search."""
    words = {"public": "other public data", "records": "other public records", "experiment": "another experiment"}
    if folder.exists() and not folder.is_dir():
        raise InputError(f"folder {folder} is a file; choose another with --runs")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = take_lock(folder, folder, "--runs")
    except OSError as error:
        raise InputError(f"folder {folder} cannot be written: {error.strerror}; choose another with --runs") from None
    with lock:
        if (folder / "tune.json").exists():
            try:
                before = json.loads((folder / "tune.json").read_text(encoding="utf-8"))["protocol"]
            except (OSError, ValueError, KeyError, TypeError):
                raise RunError(f"{folder / 'tune.json'} is damaged; delete it, or choose another --runs") from None
            for key, told in words.items():
                if before.get(key) != protocol[key]:
                    raise InputError(f"{folder} holds cells of {told}; choose another with --runs")
        elif any(entry.name != ".lock" for entry in folder.iterdir()):
            raise InputError(f"folder {folder} is not empty and holds no search; choose another with --runs")
        else:
            replace_file(folder / "tune.json", json.dumps({"protocol": protocol}, indent=2) + "\n")
        yield
