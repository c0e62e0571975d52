"""Marks of the helper's account: by them an account that was deleted, cut, edited or restored from a copy is noticed.

A mark says how many lines the account has and what the hash of the last one is, in one run, and the helper signs it.
The server has the newest mark on disk before it uses the answer that brought it, and shows it whenever it calls. A
helper whose account does not hold the marked line has forgotten what it counted, and refuses.

state/helper-mark-<run>    in the folder of the server's keys: one line of JSON, no secret
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from sottovoce.core.errors import InputError, PrivacyError, RunError, SecAggError, WireError
from sottovoce.core.remote import read_json
from sottovoce.deployment.durable import PRIVATE, replace_file
from sottovoce.secagg.primitives import SIGNATURE, sign, verify

__all__ = ["MARK", "Mark", "MarkFile"]

_DOMAIN: Final = b"sottovoce helper mark 1\n"
_HEAD: Final = 32
_MOST: Final = 4096  # bytes of a mark's file
MARK: Final = 8 + _HEAD + SIGNATURE
"""Bytes of a mark between server and helper."""


@final
@dataclass(frozen=True)
class Mark:
    """How far the helper's account has come in a run: its lines, and the hash of the last one in hex."""

    lines: int
    head: str
    signature: bytes

    @staticmethod
    def make(run: bytes, head: tuple[int, str], signing_key: bytes) -> Mark:
        """Return the mark of an account, signed by its helper."""
        lines, last = head
        return Mark(lines, last, sign(signing_key, _signed(run, lines, last)))

    def holds(self, run: bytes, key: bytes) -> bool:
        """Tell whether the helper with this key made the mark in this run."""
        return verify(key, self.signature, _signed(run, self.lines, self.head))

    def packed(self) -> bytes:
        """Return the mark as it travels."""
        return self.lines.to_bytes(8, "little") + bytes.fromhex(self.head) + self.signature

    @staticmethod
    def unpack(packed: bytes) -> Mark | None:
        """Return the mark that bytes are; None if they stand for none."""
        if len(packed) != MARK:
            raise SecAggError(f"a mark of the helper's account has {MARK} bytes, got {len(packed)}")
        lines = int.from_bytes(packed[:8], "little")
        if lines >= 1 << 63:
            raise SecAggError(f"a mark of {lines} lines is refused: no account has so many")
        return Mark(lines, packed[8 : 8 + _HEAD].hex(), packed[8 + _HEAD :]) if lines else None


@dataclass
class MarkFile:
    """The newest mark that a server has of its helper's account, in a folder of its own."""

    folder: Path
    key: bytes  # the helper's, by the roster

    def read(self, run: bytes) -> Mark | None:
        """Return the newest mark of a run, or None if there was none; refuses another helper's."""
        path = self._path(run)
        try:
            told = read_json(path.read_bytes(), most=_MOST)
            mark = Mark(int(told["lines"]), str(told["head"]), bytes.fromhex(told["signature"]))
            if len(bytes.fromhex(mark.head)) != _HEAD or not 0 < mark.lines < 1 << 63:
                raise ValueError(mark.lines)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, WireError):
            raise InputError(f"{path} is damaged; restore it: it says how far the helper's account had come") from None
        if not mark.holds(run, self.key):
            raise InputError(
                f"{path} was not signed by the helper of the roster: this run was begun with another helper, and keeps "
                "it; choose another --out"
            )
        return mark

    def keep(self, run: bytes, mark: Mark | None, before: Mark | None, *, grown: bool) -> Mark:
        """Bring a mark to the disk, if the helper signed it and it is not behind the one before; with `grown`, ahead.

        Guarantee: on return the answer that brought the mark may be used.
        """
        if mark is None or not mark.holds(run, self.key):
            raise SecAggError("the helper did not sign the mark of its account; nothing was released")
        again = before is not None and not grown and mark == before
        if before is not None and not again and mark.lines <= before.lines:
            raise PrivacyError(
                f"the helper's account has gone back: it had {before.lines} lines, and its {mark.lines} now are "
                "others; its operator restores it, and gives its folder as --state"
            )
        if again:
            return mark
        text = json.dumps({"lines": mark.lines, "head": mark.head, "signature": mark.signature.hex()})
        try:
            with suppress(FileExistsError):
                self.folder.mkdir(parents=True, mode=0o700)
            replace_file(self._path(run), text.encode() + b"\n", PRIVATE)
        except OSError as error:
            raise RunError(f"{self.folder} cannot be written: {error.strerror}; mend that, and start again") from None
        return mark

    def _path(self, run: bytes) -> Path:
        return self.folder / f"helper-mark-{run.hex()}"


def _signed(run: bytes, lines: int, head: str) -> bytes:
    return _DOMAIN + run + lines.to_bytes(8, "little") + bytes.fromhex(head)
