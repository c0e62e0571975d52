"""What a server keeps of its helper: marks of its account, and the last comparison of two counts.

By marks an account that was deleted, cut, edited or restored from a copy is noticed.

A mark says how many lines the account has and what the hash of the last one is, in one run, and the helper signs it.
The server has the newest mark on disk before it uses the answer that brought it, and shows it whenever it calls. A
helper whose account does not hold the marked line has forgotten what it counted, and refuses.

A comparison that was lost with its connection is ended by what was kept of it: if it could be called off when it
fails, either side could try again and again.

state/helper-mark-<run>          in the folder of the server's keys: one line of JSON, no secret
state/helper-comparison-<run>    the same: both proofs of the last comparison, or that the counts of a round differed
"""

from __future__ import annotations

import hmac
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from sottovoce.core.errors import InputError, PrivacyError, RunError, SecAggError, WireError
from sottovoce.core.files import PRIVATE, replace_file
from sottovoce.core.remote import read_json
from sottovoce.secagg.ballots import CountsDifferError
from sottovoce.secagg.primitives import SIGNATURE, sign, verify

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
        _write(self._path(run), text)
        return mark

    def _path(self, run: bytes) -> Path:
        return self.folder / f"helper-mark-{run.hex()}"


@dataclass
class ComparisonFile:
    """The last comparison of a run, on the server's disk."""

    folder: Path
    run: bytes

    def begin(self, round_: int, own: bytes, expected: bytes) -> None:
        """Bring both proofs of a comparison to the disk, before the helper's is asked for."""
        _write(self._path, json.dumps({"round": round_, "own": own.hex(), "expected": expected.hex()}))

    def differ(self, round_: int) -> None:
        """Bring to the disk that the counts of a round differ."""
        _write(self._path, json.dumps({"round": round_, "differ": True}))

    def check(self) -> None:
        """Raise if the counts of a round of this run have differed."""
        last = self._read()
        if last is not None and "differ" in last:
            raise CountsDifferError(int(last["round"]))

    def settle(self, round_: int, proof: bytes) -> bytes:
        """Return the own proof of a comparison that the helper has not seen the end of, once the helper's is right."""
        self.check()
        last = self._read()
        if last is None or last["round"] != round_:
            raise CountsDifferError(round_, f"the helper asks how its comparison ended, and {self._path} has another")
        if not hmac.compare_digest(proof, bytes.fromhex(last["expected"])):
            self.differ(round_)
            raise CountsDifferError(round_)
        return bytes.fromhex(last["own"])

    def _read(self) -> dict[str, Any] | None:
        try:
            last: dict[str, Any] = json.loads(self._path.read_bytes())
            proofs = (
                [last["round"]] if "differ" in last else [bytes.fromhex(last[name]) for name in ("own", "expected")]
            )
            if not isinstance(last["round"], int) or not all(proofs):
                raise ValueError(last["round"])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{self._path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f"{self._path} is damaged; restore it: it says how the last comparison ended") from None
        return last

    @property
    def _path(self) -> Path:
        return self.folder / f"helper-comparison-{self.run.hex()}"


def _write(path: Path, text: str) -> None:
    try:
        with suppress(FileExistsError):
            path.parent.mkdir(parents=True, mode=0o700)
        replace_file(path, text.encode() + b"\n", PRIVATE)
    except OSError as error:
        raise RunError(f"{path.parent} cannot be written: {error.strerror}; mend that, and start again") from None


def _signed(run: bytes, lines: int, head: str) -> bytes:
    return _DOMAIN + run + lines.to_bytes(8, "little") + bytes.fromhex(head)
