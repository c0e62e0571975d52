"""Show how a run is doing: a bar on a terminal, else a line at every evaluation."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from sottovoce.cli.output import note
from sottovoce.core.remote import printable
from sottovoce.report.units import ABSENT, decimal, epsilon, human_bytes, human_seconds

if TYPE_CHECKING:
    from rich.progress import Progress
if TYPE_CHECKING:
    from rich.table import Table

    from sottovoce.federation.engines.mqtt.engine import Status

Record = Mapping[str, Any]
_NAME = 24  # letters of a run's name on one line beside its bar: on 80 columns nothing else is cut


class TimeLeft:
    """Estimate of the time left, from the rounds that were really played.

    A resumed run hands over its old rounds first, all at once. A round that was played took at least its own seconds
    since the one before; an old one did not, and is not counted, nor is one that was void. Before the first
    that is played a server may have waited for nodes.
    """

    def __init__(self, rounds: int, now: Callable[[], float] = time.monotonic) -> None:
        self._rounds = rounds
        self._now = now
        self._last: float | None = None
        self._spent = 0.0
        self._played = 0

    def tick(self, record: Record) -> float | None:
        """Take in a round and return the seconds left, or None while they are not known."""
        now, seconds = self._now(), float(record.get("seconds") or 0.0)
        if self._last is not None and now - self._last >= max(0.9 * seconds, 1e-3):
            waited = bool(seconds) and not self._played
            self._spent += min(now - self._last, 2 * seconds) if waited else now - self._last
            self._played += 1
        self._last = now
        if not self._played:
            return None
        return max(0, self._rounds - int(record["round"])) * self._spent / self._played


class RunNumbers:
    """Numbers that the progress of one run shows.

    Of a private run that is nothing from which the size of a cohort could be computed: what a terminal shows ends up
    in logs. Real bytes and failures are in `operator.jsonl`.
    """

    def __init__(self, rounds: int, *, private: bool = False) -> None:
        self.rounds = rounds
        self.round = 0
        self.accuracy: float | None = None
        self.private = private
        self.bytes_up = 0
        self.bytes_down = 0
        self.left: float | None = None
        self.trouble = ""
        self._clock = TimeLeft(rounds)

    def take(self, record: Record) -> None:
        """Take in one round."""
        self.round = int(record["round"])
        # A private round may have no epsilon: no answer rate is charged, or outsiders saw a failure.
        self.private = self.private or bool(record.get("private")) or record.get("epsilon") is not None
        self.accuracy = record.get("accuracy", self.accuracy)
        self.left = self._clock.tick(record)
        if self.private:
            self.trouble = "aborted, operator.jsonl says why" if record.get("aborted") else ""
            return
        self.bytes_up += int(record.get("bytes_up") or 0)
        self.bytes_down += int(record.get("bytes_down") or 0)
        failures = len(record.get("failures") or ())
        self.trouble = str(
            record.get("reason") or (f"{failures} client{'s' * (failures > 1)} failed" if failures else "")
        )


class ProgressView(Protocol):
    """Display of records as they come; `name` tells the runs of a sweep apart."""

    def __enter__(self) -> Self:
        """Start."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and leave the terminal as it was."""
        ...

    def start(self, name: str, rounds: int, *, private: bool = False) -> None:
        """Announce a run; of a private one a record may have no epsilon, and its secrets are kept all the same."""
        ...

    def show(self, name: str, record: Record) -> None:
        """Show one round."""
        ...

    def say(self, text: str) -> None:
        """Write a message that is not about progress."""
        ...


class Silence:
    """Display that shows no progress, only messages."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self, name: str, rounds: int, *, private: bool = False) -> None:
        """Do nothing."""

    def show(self, name: str, record: Record) -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        """Write the line all the same."""
        note(text)


class Lines:
    """Display that writes a line at every evaluation."""

    def __init__(self, *, named: bool) -> None:
        self._named = named
        self._tallies: dict[str, RunNumbers] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self, name: str, rounds: int, *, private: bool = False) -> None:
        """Announce a run."""
        self._tallies[name] = RunNumbers(rounds, private=private)

    def show(self, name: str, record: Record) -> None:
        """Write the line if the round was evaluated or went wrong."""
        tally = self._tallies[name]
        tally.take(record)
        if "accuracy" not in record and not tally.trouble:
            return
        parts = [f"accuracy {decimal(record['accuracy'])}"] if "accuracy" in record else []
        if not tally.private:
            parts += [f"{human_bytes(tally.bytes_up)} up", f"{human_bytes(tally.bytes_down)} down"]
        if tally.left is not None and tally.round < tally.rounds:
            parts.append(f"{human_seconds(tally.left)} left")
        if tally.trouble:
            parts.append(tally.trouble)
        note(f"{f'{name}: ' if self._named else ''}round {tally.round} of {tally.rounds}: {', '.join(parts)}")

    def say(self, text: str) -> None:
        """Write the line."""
        note(text)


class Bar:
    """Display that draws a bar for every run on a terminal."""

    def __init__(self, *, named: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        self._named = named
        self._tallies: dict[str, tuple[RunNumbers, Any]] = {}
        self._bars: Progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(max_width=_NAME, overflow="fold")),
            BarColumn(bar_width=None),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            TextColumn("accuracy {task.fields[accuracy]}"),
            TextColumn("{task.fields[sent]} up"),
            TextColumn("{task.fields[left]}"),
            console=Console(file=sys.stderr),
            expand=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def start(self, name: str, rounds: int, *, private: bool = False) -> None:
        """Add a bar."""
        fields: dict[str, Any] = {"accuracy": ABSENT, "sent": human_bytes(0), "left": "starting"}
        shown = name if self._named else ""
        self._tallies[name] = RunNumbers(rounds, private=private), self._bars.add_task(shown, total=rounds, **fields)

    def show(self, name: str, record: Record) -> None:
        """Move the bar."""
        tally, task = self._tallies[name]
        tally.take(record)
        left = "done" if tally.round >= tally.rounds else f"{human_seconds(tally.left)} left"
        self._bars.update(
            task,
            completed=tally.round,
            accuracy=decimal(tally.accuracy),
            sent=ABSENT if tally.private else human_bytes(tally.bytes_up),
            left=left if tally.left is not None or left == "done" else "",
        )
        if tally.trouble:
            self.say(f"round {tally.round}: {tally.trouble}")

    def say(self, text: str) -> None:
        """Write the line above the bars."""
        self._bars.console.print(printable(text), markup=False, highlight=False)


def view(*, quiet: bool, named: bool = False) -> ProgressView:
    """Choose how to show progress."""
    if quiet:
        return Silence()
    return Bar(named=named) if sys.stderr.isatty() else Lines(named=named)


class Board:
    """Display of a federation at work: nodes, round, phase, bytes, accuracy, epsilon, time left.

    Of a private run it shows nothing from which the size of a cohort could be computed.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._tally = RunNumbers(0)
        self._name = ""
        self._private = False
        self._epsilon = ABSENT
        self._status: Status | None = None
        self._live = Live(
            console=Console(file=sys.stderr),
            get_renderable=self.table,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def start(self, name: str, rounds: int, *, private: bool = False) -> None:
        """Announce a run."""
        self._name, self._tally, self._private = name, RunNumbers(rounds, private=private), private

    def watch(self, status: Status) -> None:
        """Show what an engine tells of its nodes from now on."""
        self._status = status

    def show(self, name: str, record: Record) -> None:
        """Take in one round."""
        self._tally.take(record)
        planned, spent = record.get("epsilon"), record.get("epsilon_spent")
        self._epsilon = ABSENT if planned is None else f"{epsilon(planned)} ({epsilon(spent)} spent)"
        if self._tally.trouble:
            self.say(f"round {self._tally.round}: {self._tally.trouble}")

    def say(self, text: str) -> None:
        """Write the line above the table."""
        self._live.console.print(printable(text), markup=False, highlight=False)

    def table(self) -> Table:
        """Draw the table."""
        from rich.table import Table

        told, status, private = self._tally, self._status, self._private
        drawn = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
        columns: dict[str, str] = {
            "run": self._name,
            "nodes": ABSENT if status is None else f"{status.there} of {status.nodes}",
            "round": f"{told.round} of {told.rounds}",
            "phase": _phase(status, private=private),
            "up": ABSENT if private else human_bytes(told.bytes_up),
            "down": ABSENT if private else human_bytes(told.bytes_down),
            "accuracy": decimal(told.accuracy),
            "epsilon of outsiders": self._epsilon,
            "left": ABSENT if told.left is None else human_seconds(told.left),
        }
        for title in columns:
            drawn.add_column(title, overflow="fold")
        drawn.add_row(*columns.values())
        return drawn


class _Plain:
    """Display without a table that also takes what a board takes."""

    def __init__(self, inner: ProgressView) -> None:
        self._inner = inner

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        self._inner.__exit__(*problem)

    def start(self, name: str, rounds: int, *, private: bool = False) -> None:
        """Announce a run."""
        self._inner.start(name, rounds, private=private)

    def watch(self, status: Status) -> None:
        """Do nothing."""

    def show(self, name: str, record: Record) -> None:
        """Show one round."""
        self._inner.show(name, record)

    def say(self, text: str) -> None:
        """Write the line."""
        self._inner.say(text)


def _phase(status: Status | None, *, private: bool) -> str:
    if status is None or not status.phase:
        return ABSENT
    waiting = "" if private or not status.waiting_for else f", waits for {status.waiting_for}"
    return f"{status.phase} of {status.round}{waiting}"


class Shown(Protocol):
    """Display of a federation at work."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def start(self, name: str, rounds: int, *, private: bool = False) -> None:
        """Announce a run."""
        ...

    def watch(self, status: Status) -> None:
        """Show what an engine tells of its nodes from now on."""
        ...

    def show(self, name: str, record: Record) -> None:
        """Show one round."""
        ...

    def say(self, text: str) -> None:
        """Write a message that is not about progress."""
        ...


def board(*, quiet: bool) -> Shown:
    """Choose how to show a federation at work."""
    if quiet:
        return _Plain(Silence())
    return Board() if sys.stderr.isatty() else _Plain(Lines(named=False))
