"""Tell systemd that a service is ready and not stuck: a few words on a socket that it names (sd_notify).

Without `NOTIFY_SOCKET` in the environment nothing is told. With `WATCHDOG_USEC` a thread says `WATCHDOG=1` twice in
that time, as long as the work shows signs of life; systemd restarts a service that has fallen silent.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from typing import Final

IDLE: Final = 120.0  # seconds without a sign of life after which a waiting agent is stuck
BUSY: Final = 7200.0  # the same while it solves a plan, reads records or trains


def notify(words: str) -> bool:
    """Tell systemd; false if nobody listens."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.connect(f"\0{place[1:]}" if place[0] == "@" else place)
            to.send(words.encode())
    except OSError:
        return False
    return True


class Watchdog:
    """Signs of life of a service's main thread, passed on while they are young enough."""

    def __init__(self) -> None:
        self._seen = time.monotonic()
        self._patience = IDLE
        self._over = threading.Event()

    def beat(self, *, busy: bool | None = None) -> None:
        """Show life; `busy` says how long the next sign may take."""
        self._seen = time.monotonic()
        if busy is not None:
            self._patience = BUSY if busy else IDLE

    @property
    def alive(self) -> bool:
        """Tell whether the last sign is young enough."""
        return time.monotonic() - self._seen < self._patience

    def start(self) -> None:
        """Say that the service is ready, and go on telling that it lives."""
        notify("READY=1")
        with suppress(ValueError):
            if (every := float(os.environ.get("WATCHDOG_USEC", "0")) / 2e6) > 0:
                threading.Thread(target=self._tell, args=(every,), name="watchdog", daemon=True).start()

    def stop(self, *, told: bool = True) -> None:
        """Say that the service ends, unless another program goes on in its process."""
        self._over.set()
        if told:
            notify("STOPPING=1")

    def _tell(self, every: float) -> None:
        while not self._over.wait(every):
            if self.alive:
                notify("WATCHDOG=1")
