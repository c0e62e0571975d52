"""What travels between an engine and its workers: a call, and what came of it, in parts or whole."""

from __future__ import annotations

import traceback
from collections.abc import Generator, Iterator
from typing import Any

from sottovoce.core.errors import RunError, SottovoceError

__all__ = ["Call", "Outcome", "perform", "read_outcome"]

Call = tuple[str, tuple[Any, ...]]  # a method of `Worker` and its arguments
Outcome = tuple[str, Any]


def perform(worker: object, call: Call) -> Iterator[Outcome]:
    """Make a call and yield what comes of it: any number of parts, then one that is the last.

    Parts go out as they come: who sums or stores them need not hold them all.
    """
    name, arguments = call
    try:
        result = getattr(worker, name)(*arguments)
        if isinstance(result, Generator):
            while True:
                try:
                    part = next(result)
                except StopIteration as stop:
                    result = stop.value
                    break
                yield "part", part
                del part  # it is as long as the model, and the next is about to be made
    except SottovoceError as error:
        yield "refused", (type(error), str(error))
    except Exception:
        yield "broken", traceback.format_exc()
    else:
        yield "done", result


def read_outcome(outcome: Outcome) -> tuple[bool, Any]:
    """Return an answer or a part of one, and whether it is the last; raise what the worker raised."""
    kind, value = outcome
    if kind == "refused":
        error, message = value
        raise error(message)
    if kind == "broken":
        raise RunError(f"a worker failed:\n{value}")
    return kind == "done", value
