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
from pathlib import Path
from typing import Final

from sottovoce.core.errors import InputError
from sottovoce.core.packages import require
from sottovoce.core.pages import HTML, PageAnswer, PagePlace, PageServer
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


class Watch(PageServer):
    """A server of one page, on a free port of 127.0.0.1; close it by `with`."""

    def __init__(self, paths: Sequence[Path]) -> None:
        require("--watch", "plotly", "jinja2")
        self.paths = list(paths)
        self._made: tuple[str, bytes] | None = None
        self._making = threading.Lock()
        routes = {
            "/": lambda: PageAnswer(self.page(), HTML),
            "/state": lambda: PageAnswer(state_of(self.paths).encode()),
        }
        super().__init__(PagePlace("127.0.0.1", 0), routes, "--watch")

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
