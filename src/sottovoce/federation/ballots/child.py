"""Be the helper's process: `python -m sottovoce.federation.ballots.child DESCRIPTOR`; nobody imports this file."""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection

from sottovoce.federation.ballots.process import serve

if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
