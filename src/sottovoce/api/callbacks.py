"""Callbacks of a run: objects with any of `on_start(config)`, `on_round(record, state)`, `on_end(summary)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from sottovoce.core.errors import InputError
from sottovoce.runs.loggers import LOGGERS

_METHODS = ("on_start", "on_round", "on_end")


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
