"""Answer a browser on this machine: a few addresses, read only, each made by a function; no file is served."""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple, Self

from sottovoce.core.errors import InputError
from sottovoce.core.words import value_words

HTML: Final = "text/html; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
_ALONE: Final = "frame-ancestors 'none'"  # a page may have its own, stricter policy


class PageAnswer(NamedTuple):
    """What an address says: content, its kind, the status code and the policy for what a page may load."""

    content: bytes
    kind: str = TEXT
    code: int = 200
    policy: str = _ALONE


class PagePlace(NamedTuple):
    """Where pages are served: `host:port`, or a port alone, which is this machine's own."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> PagePlace:
        """Read a place.

        >>> PagePlace.parse("8080"), PagePlace.parse("[::1]:80")
        (PagePlace(host='127.0.0.1', port=8080), PagePlace(host='::1', port=80))
        """
        found = re.fullmatch(r"(?:\[?([^\[\]/\s]+?)\]?:)?([0-9]{1,5})", text)
        if found is None or not int(found[2]) < 1 << 16:
            raise InputError(f"--status must be host:port, such as 127.0.0.1:8080, got {value_words(text)}")
        return cls(found[1] or "127.0.0.1", int(found[2]))

    @property
    def loopback(self) -> bool:
        """Tell whether nobody but this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PageServer(ThreadingHTTPServer):
    """A server of a few addresses; `with` serves them from a thread of its own, or call `serve_forever`.

    Guarantee: nothing can be changed through it, and who asks under a foreign name is refused: a page of somebody
    else that points its own name at this machine reads nothing.
    """

    daemon_threads = True  # a browser that keeps a connection open does not keep the command from ending
    allow_reuse_address = True

    def __init__(
        self, place: PagePlace, routes: Mapping[str, Callable[[], PageAnswer]], option: str = "--status"
    ) -> None:
        self.place, self.routes = place, dict(routes)
        self.address_family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        self._thread: threading.Thread | None = None
        try:
            super().__init__((place.host, place.port), _Handler)
        except OSError as error:
            why = str(error.strerror).split(" (")[0]
            raise InputError(f"{option} {place} cannot be listened to: {why}; give another") from None

    def server_bind(self) -> None:
        """Bind without asking the network for the name of this machine, which can take seconds."""
        socket.socket.bind(self.socket, self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    @property
    def address(self) -> str:
        """Return where the page is."""
        return f"http://{self.place._replace(port=self.server_port)}/"

    def knows(self, host: str | None) -> bool:
        """Tell whether a browser may ask under this name: another one is a foreign page that points its name here."""
        names = {"127.0.0.1", "localhost", "[::1]", str(self.place).rpartition(":")[0]}
        if host in {f"{name}:{self.server_port}" for name in names}:
            return True
        if self.place.loopback or host is None:
            return False
        try:  # opened to others on purpose: they ask by an address, which no foreign name is
            ipaddress.ip_address(host.rpartition(":")[0].strip("[]") or host)
        except ValueError:
            return False
        return True

    def start(self) -> Self:
        """Serve from a thread of its own, until `close`."""
        self._thread = threading.Thread(target=self.serve_forever, args=(0.2,), name="pages", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop serving, and free the port."""
        if self._thread is not None:
            self.shutdown()
            self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    """What the server says to a browser."""

    server: PageServer
    timeout = 30

    def do_GET(self) -> None:
        if not self.server.knows(self.headers.get("Host")):
            self._send(PageAnswer(b"ask for 127.0.0.1", code=403))
        elif (route := self.server.routes.get(self.path)) is not None:
            self._send(route())
        else:
            self._send(PageAnswer(f"there is {' '.join(sorted(self.server.routes))}".encode(), code=404))

    def _send(self, answer: PageAnswer) -> None:
        self.send_response(answer.code)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", answer.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        try:
            self.wfile.write(answer.content)
        except (BrokenPipeError, ConnectionResetError):  # the reader closed the page
            self.close_connection = True

    def version_string(self) -> str:
        return "sottovoce"

    def log_message(self, *_: Any) -> None:
        """Say nothing: the terminal is the user's."""
