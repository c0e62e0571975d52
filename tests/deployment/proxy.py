"""A connection to a broker through a proxy that can cut it, also in the middle of a message."""

from __future__ import annotations

import contextlib
import socket
import threading

__all__ = ["Proxy"]


class Proxy:
    """A port that leads to another; it counts what goes up and hangs up when told to."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.left: int | None = None  # bytes that may still go up before the connection is cut
        self.cuts = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Hang up on both sides at once."""
        for pair in self._pairs:
            for side in pair:
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
                side.close()
        self._pairs.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._pairs.append((near, far))
                threading.Thread(target=self._pump, args=(near, far, True), daemon=True).start()
                threading.Thread(target=self._pump, args=(far, near, False), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, up: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(16384):
                if up and self.left is not None:
                    sink.sendall(data[: self.left])
                    self.left -= len(data)
                    if self.left <= 0:
                        self.left = None
                        self.cuts += 1
                        self.cut()
                        return
                else:
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
