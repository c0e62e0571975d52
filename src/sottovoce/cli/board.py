"""Show how a federation is doing: a table that changes on a terminal, else a line at every evaluation."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from sottovoce.cli.progress import Lines, Record, Silence, Tally, View
from sottovoce.core.remote import printable
from sottovoce.report.units import ABSENT, decimal, epsilon, human_bytes, human_seconds

if TYPE_CHECKING:
    from rich.table import Table

    from sottovoce.federation.mqtt.engine import Status

__all__ = ["Board", "board"]


class Board:
    """Display of a federation at work: nodes, round, phase, bytes, accuracy, epsilon, time left.

    Of a private run it shows nothing from which the size of a cohort could be computed.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._tally = Tally(0)
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
        self._name, self._tally, self._private = name, Tally(rounds, private=private), private

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

    def __init__(self, inner: View) -> None:
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
