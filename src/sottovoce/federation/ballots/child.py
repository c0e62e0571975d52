"""Be the helper's process: `python -m sottovoce.federation.ballots.child DESCRIPTOR`; nobody imports this file."""

from __future__ import annotations

import signal
import sys
from multiprocessing.connection import Connection

from sottovoce.federation.ballots.process import serve

if __name__ == "__main__":
    # A Ctrl-C reaches the whole group: the leader ends the run, and the helper with it by closing the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Connection(int(sys.argv[1])))
