"""Play many runs: each in a folder of its own, gone on with if it was interrupted, read if it is done.

Sweeps, searches, published tables and studies all play their runs here; `play_each` is the loop that tells how far.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar

from sottovoce.assembly.overrides import NOTHING, Given
from sottovoce.config.engine import EngineTable
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.federation.engines.kinds import cluster
from sottovoce.federation.engines.local import cores
from sottovoce.models import keeping_features
from sottovoce.runs.folder import Record
from sottovoce.runs.loop import run

_RUNS_A_CORE: Final = 4  # that lead a run each: a server's side waits for its clients most of the time
_TIMES: Final = "times.jsonl"

Item = TypeVar("Item")
Result = TypeVar("Result")
Play = Callable[[Experiment], Record]
Tell = Callable[[int, int, str], None]  # how many are done, how many in all, the next one in words


class RunOutcome(NamedTuple):
    """What came of one run of many: its summary, or why there is none."""

    experiment: Experiment
    folder: Path
    summary: Record | None = None
    reason: str | None = None
    problem: InputError | PrivacyError | None = None


@dataclass(frozen=True)
class Campaign:
    """Many runs, each in a folder below one folder.

    With `timed`, `times.jsonl` beside the folders keeps how long each took here. It is the operator's, like
    `operator.jsonl` of a private run: the time of a run depends on who was drawn.
    """

    out: Path
    drops: tuple[str, ...] = ()  # files of a finished run that nobody needs: thirty models fill a disk
    timed: bool = False

    def folder(self, experiment: Experiment) -> Path:
        """Return the run folder of an experiment."""
        return self.out / experiment.experiment.name

    def play(
        self,
        experiment: Experiment,
        observe: Callable[[Record], None] = lambda record: None,
        given: Given = NOTHING,
    ) -> RunOutcome:
        """Play a run, go on with it or read it; what refuses it (the accountant, missing data) is its reason."""
        folder = self.folder(experiment)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.out} cannot be written: {error.strerror}; choose another --out") from None
        done, began = (folder / "summary.json").exists(), time.perf_counter()
        try:
            summary = run(experiment, folder, resume=True, observe=observe, given=given)
        except (InputError, PrivacyError) as error:
            return RunOutcome(experiment, folder, reason=str(error), problem=error)
        finally:
            if self.timed and not done and folder.exists():
                self._took(experiment, time.perf_counter() - began)
        self._forget(folder)
        return RunOutcome(experiment, folder, summary)

    def play_all(
        self,
        experiments: Sequence[Experiment],
        observe: Callable[[str, Record], None] = lambda name, record: None,
        tell: Tell = lambda done, total, words: None,
    ) -> list[Record]:
        """Play all runs and return their summaries in order; the first that is refused ends them with its reason.

        On a Ray cluster that was joined several are played at the same time.
        """
        lock = Lock()

        def play(experiment: Experiment) -> Record:
            name = experiment.experiment.name

            def note(record: Record) -> None:
                with lock:
                    observe(name, record)

            outcome = self.play(experiment, note)
            if outcome.summary is None:
                raise outcome.problem or InputError(f"{name} gave no summary")
            return outcome.summary

        engine = experiments[0].engine
        if engine.name == "ray" and engine.address != "local" and engine.data is None:
            return spread(experiments, engine, play)
        with keeping_features():
            return play_each(experiments, play, lambda experiment: experiment.experiment.name, tell)

    def seconds(self) -> dict[str, float]:
        """Return the seconds that each run took here, by its name; parts of a run that was interrupted add up."""
        try:
            lines = (self.out.parent / _TIMES).read_text(encoding="utf-8").splitlines()
        except OSError:
            return {}
        total: dict[str, float] = {}
        for line in lines:
            try:
                entry: dict[str, Any] = json.loads(line)
                total[entry["cell"]] = total.get(entry["cell"], 0.0) + float(entry["seconds"])
            except (ValueError, KeyError, TypeError):  # a torn line costs its own time only
                continue
        return total

    def _took(self, experiment: Experiment, seconds: float) -> None:
        with (self.out.parent / _TIMES).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"cell": experiment.experiment.name, "seconds": round(seconds, 3)}) + "\n")

    def _forget(self, folder: Path) -> None:
        """Remove what a finished run needs no more."""
        if self.drops:
            for name in self.drops:
                (folder / name).unlink(missing_ok=True)
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)


def play_each(
    items: Sequence[Item], play: Callable[[Item], Result], words: Callable[[Item], str], tell: Tell
) -> list[Result]:
    """Play one item after the other, and tell before each how far we are."""
    results = []
    for place, item in enumerate(items):
        tell(place, len(items), words(item))
        results.append(play(item))
    return results


def spread(points: Sequence[Experiment], table: EngineTable, play: Play) -> list[Record]:
    """Play all points and return what each gives, in their order; the first error stops the others.

    The server's side of every run is a thread of this process, so that all folders are on this machine.
    """
    with cluster(table) as session:
        free: SimpleQueue[int] = SimpleQueue()
        parts = shares(table.workers or session.cpus, min(len(points), _RUNS_A_CORE * cores()))
        for share in parts:
            free.put(share)

        def played(point: Experiment) -> Record:
            session.check()
            workers = free.get()
            try:
                own = point.engine.model_copy(update={"workers": workers})
                return play(point.model_copy(update={"engine": own}))
            finally:
                free.put(workers)

        with ThreadPoolExecutor(len(parts)) as pool:
            runs = [pool.submit(copy_context().run, played, point) for point in points]
            try:
                wait(runs, return_when=FIRST_EXCEPTION)
                _raise_first(runs)
                return [one.result() for one in runs]
            except BaseException:  # Ctrl-C too: the threads end by themselves when they see it
                session.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def shares(workers: int, runs: int) -> list[int]:
    """Divide workers among runs at the same time, as evenly as it goes, at least one each.

    >>> shares(8, 3), shares(2, 5)
    ([3, 3, 2], [1, 1])
    """
    at_once = max(1, min(workers, runs))
    return [workers // at_once + (place < workers % at_once) for place in range(at_once)]


def _raise_first(runs: list[Future[Record]]) -> None:
    for one in runs:
        if one.done() and (error := one.exception()) is not None:
            raise error
