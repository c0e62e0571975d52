"""Be a worker process: one thread, told what to do through a pipe.

The engine starts `python -m sottovoce.federation.process`, not a multiprocessing child: a user's script needs no
`if __name__ == "__main__"`, and a worker imports only what it uses. It ends when its pipe does.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Generator
from multiprocessing.connection import Connection
from typing import Any

from sottovoce.core.errors import SottovoceError
from sottovoce.federation.shared import view
from sottovoce.federation.worker import Worker

__all__ = ["main", "serve"]


def serve(connection: Connection) -> None:
    """Answer calls until the pipe ends."""
    actor: Worker | None = None
    while True:
        try:
            name, arguments = connection.recv()
        except (EOFError, OSError):
            return
        try:
            if name == "start":
                blueprint, descriptor, places = arguments
                actor = Worker(blueprint, view(descriptor, places))
                answer: tuple[str, Any] = ("done", None)
            else:
                result = getattr(actor, name)(*arguments)
                answer = ("done", _stream(connection, result) if isinstance(result, Generator) else result)
        except SottovoceError as error:
            answer = ("refused", (type(error), str(error)))
        except Exception:
            answer = ("broken", traceback.format_exc())
        try:
            connection.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return


def _stream(connection: Connection, parts: Generator[Any, None, Any]) -> Any:
    """Send each part as it comes and return the last: who sums or stores them need not hold them all."""
    while True:
        try:
            connection.send(("part", next(parts)))
        except StopIteration as stop:
            return stop.value


def main() -> None:
    """Serve the pipe whose descriptor is the first argument."""
    serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
