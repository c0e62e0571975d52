"""Serve the report on this machine alone, and follow runs that go on.

Two addresses answer: `/`, the page, made anew when a folder changes, and `/state`, which the page asks for to learn
that it did. No file is served. The page is made as `report --html` makes it, so the operator's files (`operator.jsonl`,
`checkpoint/`) are neither read nor watched.
"""

from __future__ import annotations

import hashlib
import html
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from sottovoce.core.errors import InputError
from sottovoce.core.packages import require
from sottovoce.report.html import page
from sottovoce.report.runs import read_runs

_FILES: Final = ("config.toml", "rounds.jsonl", "summary.json", "audit.json", "model-best.npz")


def state_of(paths: Sequence[Path]) -> str:
    """Return a short text that changes when what is reported of these folders may have changed."""
    told = hashlib.sha256()
    for path in paths:
        for name in _FILES:
            try:
                status = (path / name).stat()
                told.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
            except OSError:
                told.update(f"{name} -\n".encode())
    return told.hexdigest()[:16]


class Watch(ThreadingHTTPServer):
    """A server of one page, on a free port of 127.0.0.1; close it by `with`."""

    daemon_threads = True  # a browser that keeps a connection open does not keep the command from ending

    def __init__(self, paths: Sequence[Path]) -> None:
        require("--watch", "plotly", "jinja2")
        self.paths = list(paths)
        self._made: tuple[str, bytes] | None = None
        self._making = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Answer)

    @property
    def address(self) -> str:
        """Return where the page is."""
        return f"http://127.0.0.1:{self.server_port}/"

    @property
    def hosts(self) -> set[str]:
        """Return the names under which a browser may ask: another one is a foreign page that points its name here."""
        return {f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")}

    def page(self) -> bytes:
        """Return the page of the folders as they are now; made once for each state."""
        with self._making:
            state = state_of(self.paths)  # before reading: a change meanwhile makes the page anew
            if self._made is None or self._made[0] != state:
                try:
                    text = page(*read_runs(self.paths), watching=state)
                except InputError as error:  # a folder was moved away; it may come back
                    text = f'<!doctype html><meta http-equiv="refresh" content="2"><p>{html.escape(str(error))}</p>'
                self._made = state, text.encode()
            return self._made[1]


class _Answer(BaseHTTPRequestHandler):
    """What the server says to a browser."""

    server: Watch
    timeout = 30

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            self._send(403, b"ask for 127.0.0.1", "text/plain")
        elif self.path == "/":
            self._send(200, self.server.page(), "text/html; charset=utf-8")
        elif self.path == "/state":
            self._send(200, state_of(self.server.paths).encode(), "text/plain")
        else:
            self._send(404, b"there is one page: /", "text/plain")

    def _send(self, code: int, content: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")  # the page has its own, stricter one
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        try:
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):  # the reader closed the page
            self.close_connection = True

    def version_string(self) -> str:
        return "sottovoce"

    def log_message(self, *_: Any) -> None:
        """Say nothing: the terminal is the user's."""
