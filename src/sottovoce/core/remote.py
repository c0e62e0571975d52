"""What others wrote: JSON of bounded size and depth, and text that no terminal acts on.

Every JSON document that comes from another machine is read by `read_json`, and every text of another's that is shown,
logged or put into a message goes through `one_line` or `printable`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, Final

from sottovoce.core.errors import WireError

DEPTH: Final = 16  # lists and tables inside each other; our own documents have four
_LONGEST: Final = 400  # letters of a sentence that is shown
# A text, also one without an end, is skipped as a whole: brackets in it open nothing.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def read_json(payload: bytes, *, most: int) -> Any:
    """Return the document in a payload of at most `most` bytes, or refuse it.

    Guarantee: memory and stack are bounded by `most` and `DEPTH`, whatever the payload; only WireError is raised.
    """
    if len(payload) > most:
        raise WireError(f"{len(payload)} bytes of JSON came, at most {most} are read")
    level = 0
    for token in _TOKEN.findall(payload):
        level += (token in b"[{") - (token in b"]}")
        if level > DEPTH:
            raise WireError(f"JSON with more than {DEPTH} lists and tables inside each other is not read")
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        raise WireError("this is no JSON") from None


def printable(text: str) -> str:
    """Return a text in which a question mark stands for whatever a terminal would act on; lines stay lines.

    >>> printable("node\\x1b]0;root\\x07 is there")
    'node?]0;root? is there'
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else _stand_in(letter) for letter in text)


def one_line(text: str | bytes, longest: int = _LONGEST) -> str:
    """Return what somebody else wrote as one line of printable letters, cut where it is too long."""
    if isinstance(text, bytes):
        text = text[: 4 * longest].decode("utf-8", "replace")
    plain = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * longest])
    return " ".join(plain.split())[:longest] or "no reason was given"


def _stand_in(letter: str) -> str:
    return " " if unicodedata.category(letter) == "Zs" else "?"
