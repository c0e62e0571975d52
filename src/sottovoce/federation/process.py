"""Be a worker process: one thread, told what to do through a pipe.

The engine starts `python -m sottovoce.federation.process`, not a multiprocessing child: a user's script needs no
`if __name__ == "__main__"`, and a worker imports only what it uses. It ends when its pipe does.
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection

from sottovoce.federation.calls import perform
from sottovoce.federation.shared import Place, view
from sottovoce.federation.worker import Blueprint, Worker

__all__ = ["main", "serve"]


class _Process:
    """What a worker process is before it has a worker: able to start one."""

    worker: Worker | None = None

    def start(self, blueprint: Blueprint, descriptor: int, places: dict[str, Place]) -> None:
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


if __name__ == "__main__":
    main()
