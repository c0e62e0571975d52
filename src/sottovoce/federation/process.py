"""Be a worker process: one thread, told what to do through a pipe.

The engine starts `python -m sottovoce.federation.process`, not a multiprocessing child: a user's script needs no
`if __name__ == "__main__"`, and a worker imports only what it uses. It ends when its pipe does.
"""

from __future__ import annotations

import sys
import traceback
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
                answer = ("done", getattr(actor, name)(*arguments))
        except SottovoceError as error:
            answer = ("refused", (type(error), str(error)))
        except Exception:
            answer = ("broken", traceback.format_exc())
        try:
            connection.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return


def main() -> None:
    """Serve the pipe whose descriptor is the first argument."""
    serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
