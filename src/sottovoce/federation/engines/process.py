"""Be a worker process: one thread, told what to do through a pipe.

The engine starts python with a call of `main`, not a multiprocessing child: a user's script needs no
`if __name__ == "__main__"`, and a worker imports only what it uses. It ends when its pipe does.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Generator, Iterator
from multiprocessing.connection import Connection
from typing import Any

from sottovoce.core.errors import RunError, SottovoceError
from sottovoce.federation.engines.shared_memory import Places, view
from sottovoce.federation.engines.worker import Blueprint, Worker

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


class _Process:
    """What a worker process is before it has a worker: able to start one."""

    worker: Worker | None = None

    def start(self, blueprint: Blueprint, descriptor: int, places: Places) -> None:
        """Map the shared records and make the worker."""
        self.worker = Worker(blueprint, view(descriptor, places))


def serve(connection: Connection) -> None:
    """Answer calls until the pipe ends."""
    process = _Process()
    while True:
        try:
            call = connection.recv()
        except (EOFError, OSError):
            return
        actor = process if call[0] == "start" else process.worker
        for outcome in perform(actor, call):
            try:
                connection.send(outcome)
            except (BrokenPipeError, ConnectionResetError):
                return
            del outcome  # it may be as long as the model, and the next is about to be made


def main() -> None:
    """Serve the pipe whose descriptor is the first argument."""
    serve(Connection(int(sys.argv[1])))
