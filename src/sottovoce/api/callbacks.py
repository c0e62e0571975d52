"""Callbacks of a run: objects with any of `on_start(config)`, `on_round(record, state)`, `on_end(summary)`."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from sottovoce.core.errors import InputError
from sottovoce.runs.loggers import LOGGERS

_METHODS = ("on_start", "on_round", "on_end")
_PATIENCE: Final = 2.0  # seconds before progress is shown
_EVERY: Final = 0.5  # seconds between two looks


class _EveryRound:
    """A plain function as a callback."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.on_round = _of_two(function)


class _Adapted:
    """A callback whose `on_round` takes the record alone."""

    def __init__(self, callback: Any) -> None:
        self.on_start = getattr(callback, "on_start", _nothing)
        self.on_round = _of_two(callback.on_round)
        self.on_end = getattr(callback, "on_end", _nothing)


class ProgressLine:
    """Callback that keeps one line on stderr up to date: round, accuracy, time left. It shows what may be published."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._start = self._shown = now()
        self._first: int | None = None  # after it the clock runs: a resumed run hands over its old rounds at once
        self._rounds = 0
        self._accuracy = ""
        self._written = 0

    def on_start(self, config: Mapping[str, Any]) -> None:
        """Begin to count."""
        self._rounds = int(config["experiment"]["rounds"])
        self._start = self._shown = self._now()

    def on_round(self, record: Mapping[str, Any], _: Any) -> None:
        """Write the line again, not oftener than twice a second."""
        round_, now = int(record["round"]), self._now()
        self._first = round_ - 1 if self._first is None else self._first
        if (accuracy := record.get("accuracy")) is not None:
            self._accuracy = f", accuracy {accuracy:.4f}"
        if now - self._start < _PATIENCE or now - self._shown < _EVERY:
            return
        left = (now - self._start) / (round_ - self._first) * (self._rounds - round_)
        self._write(f"round {round_} of {self._rounds}{self._accuracy}, {max(left, 0):.0f} s left")
        self._shown = now

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """End the line, if there is one."""
        if self._written:
            self._write(f"{self._rounds} rounds{self._accuracy}, {self._now() - self._start:.0f} s")
            sys.stderr.write("\n")

    def _write(self, line: str) -> None:
        sys.stderr.write("\r" + line.ljust(self._written))
        sys.stderr.flush()
        self._written = len(line)


def watched(callbacks: list[object], verbose: bool | None) -> list[object]:
    """Return callbacks with a line of progress: if it is asked for, or on a terminal or in a notebook."""
    if verbose is None:
        verbose = sys.stderr.isatty() or "ipykernel" in sys.modules
    return [*callbacks, ProgressLine()] if verbose else callbacks


def adapted(callbacks: Any) -> list[object]:
    """Return callbacks in the form that a run calls; a function is called after every round, as `on_round` is.

    A text names a logger.
    """
    if callable(callbacks) or isinstance(callbacks, str) or not isinstance(callbacks, Iterable):
        callbacks = [callbacks]
    ready: list[object] = []
    for callback in callbacks:
        if isinstance(callback, str):
            ready.append(LOGGERS[callback]())
            continue
        if isinstance(callback, type):
            raise InputError(
                f"callbacks must be objects, got the class {callback.__name__}; write {callback.__name__}()"
            )
        if hasattr(callback, "on_round"):
            ready.append(_Adapted(callback))
        elif any(hasattr(callback, method) for method in _METHODS):
            ready.append(callback)
        elif callable(callback):
            ready.append(_EveryRound(callback))
        else:
            raise InputError(
                f"a callback must be a function or have one of {', '.join(_METHODS)}, got {type(callback).__name__}"
            )
    return ready


def _of_two(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return a function of the record and the state, also for one that takes the record alone."""
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return lambda record, state: function(record)
    except ValueError:  # a builtin without a signature
        return lambda record, state: function(record)
    return function


def _nothing(told: Any) -> None:
    return None
