"""Write data to stdout and messages to stderr."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sottovoce.core.errors import InputError, RunError
from sottovoce.core.remote import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

_REMEMBERED = 10_000  # sentences that are not said again
FORMS = ("text", "json")  # of a log
_EVENTS = (
    "sottovoce.deployment.",
    "sottovoce.federation.engines.mqtt.",
)  # told each time
_PIPE_WIDTH = 240  # a file or a pipe has no edge at which lines must be folded
_wide = False
written = 0  # characters that were written to stdout


class ReaderGone(Exception):  # noqa: N818
    """Sign that nobody reads stdout any more, which is no error."""


def put(text: str) -> None:
    """Write to stdout, at once."""
    global written
    written += len(text)
    if sys.stdout is None:  # the shell closed it (`>&-`)
        raise RunError("the answer cannot be printed: stdout is closed")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None


def discard_stdout() -> None:
    """Send stdout to nowhere, so that Python does not fail again when it empties its buffer at the end."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def put_json(document: Any) -> None:
    """Write one JSON document; numbers that JSON does not have are null."""
    text = json.dumps(_plain(document), indent=2, ensure_ascii=False, allow_nan=False, default=str)
    if not text.replace("\n", "").isprintable():  # JSON escapes some of what a terminal acts on, and not all
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    put(text + "\n")


def put_tables(*tables: RenderableType, at_most: int | None = None) -> None:
    """Write rich tables, in colour on a terminal; `at_most` is the number of characters in a line."""
    from rich.console import Console

    from sottovoce.cli.fit import fit

    console = Console(file=sys.stdout, width=_PIPE_WIDTH if _wide else at_most or width(), highlight=False)
    with console.capture() as captured:
        for table in tables:
            for part in fit(table, console.width):
                console.print(_Harmless(part))
    # Tables are padded to their width; blanks at the end of a line help nobody.
    put("\n".join(line.rstrip() for line in captured.get().strip("\n").splitlines()) + "\n")


class _Harmless:
    """Renderable whose text holds nothing that a terminal acts on; rich adds colours after that."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for segment in console.render(self._inner, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def set_wide(wide: bool) -> bool:
    """Let tables be as wide as they like from now on, whatever the terminal; the option --wide."""
    global _wide
    _wide = wide
    return wide


def width() -> int:
    """Return how many characters a line of stdout can take."""
    if _wide or not _on_terminal():
        return _PIPE_WIDTH
    from rich.console import Console

    return Console(file=sys.stdout).width


def note(text: str) -> None:
    """Write a line to stderr; if nobody reads it, go on without."""
    with suppress(OSError, ValueError):
        print(printable(text), file=sys.stderr, flush=True)


@contextmanager
def messages(
    say: Callable[[str], None] = note, *, quiet: bool = False, private: bool = False, form: str | None = None
) -> Iterator[None]:
    """Print what the library logs; if quiet, warnings only.

    Events of a federation are told each time, and every other sentence once. With a `form`, `text` or `json`, all of
    it is told each time, one line an event, with time, level and where it comes from.

    Of a private run, what follows from the clients' records is for an operator at a terminal, and never for a log.
    """
    if form is not None and form not in FORMS:
        raise InputError(f"--log must be {' or '.join(FORMS)}, got {form!r}")
    handler, logger = _Sayer(say, private=private, form=form), logging.getLogger("sottovoce")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def log_line(record: logging.LogRecord, form: str) -> str:
    """Return one line for an event: time in UTC, level, where it comes from and what it says."""
    when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    level, source = record.levelname.lower(), record.name.removeprefix("sottovoce.")
    words = printable(record.getMessage())
    if form == "text":
        return f"{when} {level} {source}: {words}"
    return json.dumps({"time": when, "level": level, "source": source, "message": words}, ensure_ascii=False)


def saying(form: str | None, plain: Callable[[str], None] = note) -> Callable[[str], None]:
    """Return what writes a command's own sentences: plainly, or as lines of the log where it has a form."""
    if form is None:
        return plain

    def say(text: str) -> None:
        level = logging.WARNING if text.startswith("warning: ") else logging.INFO
        words = text.removeprefix("warning: ")
        note(log_line(logging.LogRecord("sottovoce.cli", level, "", 0, words, None, None), form))

    return say


class _Sayer(logging.Handler):
    """Logging handler that hands every event, and every other sentence that is new, to a function."""

    def __init__(self, say: Callable[[str], None], *, private: bool = False, form: str | None = None) -> None:
        super().__init__()
        self._private = private
        self._form = form
        self._say = say
        self._said: dict[str, None] = {}  # the newest of them: others may make up sentences without end

    def emit(self, record: logging.LogRecord) -> None:
        """Say the record, if it is an event or was not said before."""
        secret = self._private and getattr(record, "of_clients", False)
        if secret and not _at_terminal():
            return
        if self._form is not None:
            self._say(log_line(record, self._form))
            return
        begin = "operator only: " * secret + "warning: " * (record.levelno >= logging.WARNING)
        text = printable(f"{begin}{record.getMessage()}")
        if record.name.startswith(_EVENTS):
            self._say(text)
        elif text not in self._said:
            self._said[text] = None
            if len(self._said) > _REMEMBERED:
                del self._said[next(iter(self._said))]
            self._say(text)


def _at_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on stderr that work goes on, after two seconds and then every ten."""
    over, began = threading.Event(), time.monotonic()

    def tell() -> None:
        pause = 2.0
        while not over.wait(pause):
            note(f"{what}, {time.monotonic() - began:.0f} s so far")
            pause = 10.0

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if hasattr(value, "_asdict"):  # a named tuple
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
