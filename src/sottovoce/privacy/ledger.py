"""Keep the account of what was spent: append-only lines, each chained to the one before by its hash.

A charge is written and synchronised *before* the sum it pays for can be opened, and never given back. One line is

    {"index": 3, "kind": "charge", "round": 3, "digest": "...", "previous": "...", "hash": "..."}

and its hash is SHA-256 over the line without it. The first line opens the ledger and names the plan. A line of kind
"draws" comes before anybody is asked: a salted hash of how often each client has been drawn, which binds the
checkpoint (zeroed draws would void the participation cap) and tells nobody who was drawn. Round 0 is a
release before round 1, such as a vote, and round -r the clients' measurement after round r: the plan's epsilon holds
their cost beside that of the rounds, so they have charges of their own and take none from them.

A process killed while writing leaves a torn last line: no newline, or nothing that reads as JSON. Its `charge` never
returned, so nothing was opened. In simulation the line is dropped, because the resumed round repeats the same noise
bit for bit and charges again. In a deployment it is counted: a disk that loses the end of a line that *was*
acknowledged looks the same, and one round too many is the error we can live with. A damaged line anywhere else is
refused.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from sottovoce.core.errors import PrivacyError, RunError
from sottovoce.core.files import sync_folder
from sottovoce.core.lock import hold
from sottovoce.privacy.plan.plan import PrivacyPlan

GENESIS: Final = "0" * 64


class Verdict(NamedTuple):
    """The result of checking a ledger: the rounds that whole lines charge, and what is wrong, if anything."""

    charged: list[int]
    problem: str | None


def verify(path: Path) -> Verdict:
    """Check the chain of a ledger without locking or changing it; a torn end, of a run that is writing, is left out."""
    charged: list[int] = []
    last, digest = GENESIS, None
    try:
        lines, _ = split_torn(path.read_bytes())
    except FileNotFoundError:
        return Verdict([], f"there is no {path.name}")
    except OSError as error:
        return Verdict([], f"{path.name} cannot be read: {error.strerror}")
    for index, line in enumerate(lines):
        entry = chained(line, index, last)
        if entry is None:
            return Verdict(charged, f"{path.name} line {index + 1} is damaged: the chain of hashes is broken")
        if (entry.get("kind") == "open") != (index == 0):
            return Verdict(charged, f"{path.name} line {index + 1} is of kind {entry.get('kind')!r}")
        if entry.get("digest") != (digest or entry.get("digest")):
            return Verdict(charged, f"{path.name} line {index + 1} belongs to another plan")
        if entry.get("kind") == "charge" and isinstance(entry.get("round"), int):
            charged.append(entry["round"])
        last, digest = entry["hash"], entry.get("digest")
    return Verdict(charged, None if lines else f"{path.name} is empty")


def chained(line: bytes, index: int, last: str) -> dict[str, Any] | None:
    """Return what a line holds if it follows the line whose hash is `last`."""
    try:
        entry: dict[str, Any] = json.loads(line)
        bare = {key: value for key, value in entry.items() if key != "hash"}
        sound = (entry["index"], entry["previous"], entry["hash"]) == (index, last, hash_of(bare))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return entry if sound else None


def open_locked(path: Path, *, patience: float = 0.0) -> Any:
    """Open a ledger's file for one process; wait so many seconds for another one that has it."""
    deadline = time.monotonic() + patience
    while True:
        file = path.open("a+b")
        try:
            hold(file.fileno(), wait=False)
            if _still_there(path, file):
                return file
            file.close()  # it was removed while we waited: nobody else would see what we write
        except OSError:
            file.close()
            if time.monotonic() >= deadline:
                raise PrivacyError(f"{path.name} is in use by another process; one run keeps one ledger") from None
            time.sleep(0.02)


def _still_there(path: Path, file: Any) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def split_torn(content: bytes) -> tuple[list[bytes], bytes]:
    """Return the whole lines and the torn end, which a kill can leave only at the end."""
    lines = content.split(b"\n")
    return lines[:-1], lines[-1]


def hash_of(entry: dict[str, Any]) -> str:
    """Return the hash of a line without its own."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


VERSION: Final = 1
NOTES: Final = ("ballots", "compare", "settled", "differ")  # lines of the helper of secret ballots

Step = Callable[[str], None]


def _nothing(step: str) -> None:
    """Do nothing: tests pass a function that kills the process here."""


class Ledger:
    """The account of rounds against a limit, for the server (all rounds) or for one client (its participations).

    Guarantee: when `charge` returns, the charge is on disk; `spent` never falls; no more than `limit` charges are ever
    granted for one plan; two processes cannot hold one ledger.
    """

    def __init__(
        self,
        path: Path,
        *,
        digest: str,
        limit: int,
        deployment: bool,
        before: int = 0,
        opening: int | None = None,
        step: Step = _nothing,
    ) -> None:
        self.path = path
        self._digest = digest
        self._limit = limit
        self._before = before  # charges that releases beside the rounds may take
        self._opening = opening  # of these, charges that round 0 may take; None: nobody asks for what is not due
        self._deployment = deployment
        self._step = step
        self._rounds: list[int] = []
        self._draws: dict[int, str] = {}  # the last commitment of each round
        self._notes: list[dict[str, Any]] = []
        self._torn = 0
        self._mended = False
        self._heads: list[str] = []  # the hash of every line
        self._file = open_locked(path)
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    @classmethod
    def of_server(cls, path: Path, plan: PrivacyPlan) -> Self:
        """Open the run's ledger: one charge a round, as many as the plan's budget affords."""
        return cls._of(path, plan, plan.rounds)

    @classmethod
    def of_client(cls, path: Path, plan: PrivacyPlan, *, opening: bool = False) -> Self:
        """Open a client's own ledger: one charge a participation, at most `max_participations`.

        `opening` tells that one of the releases beside the rounds is round 0; all others are measurements.
        """
        return cls._of(path, plan, plan.max_participations, int(opening))

    @classmethod
    def _of(cls, path: Path, plan: PrivacyPlan, limit: int, opening: int | None = None) -> Self:
        beside = (*plan.request.spent, *plan.request.apart)
        before, deployment = sum(event.rounds for event in beside), plan.request.deployment
        return cls(path, digest=plan.digest(), limit=limit, deployment=deployment, before=before, opening=opening)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the ledger; closing the file gives the lock back."""
        self._file.close()

    @property
    def head(self) -> tuple[int, str]:
        """Return how many lines there are, and the hash of the last one."""
        return self._index, self._last

    def holds(self, lines: int, head: str) -> bool:
        """Tell whether the ledger had so many lines once, the last with this hash: it was not cut or rewritten."""
        return 0 < lines <= self._index and self._heads[lines - 1] == head

    @property
    def broken(self) -> bool:
        """Tell whether a line could not be written; then the ledger is closed, and must be opened anew."""
        return bool(self._file.closed)

    @property
    def rounds(self) -> list[int]:
        """Return the rounds that were charged, in the order of their charges."""
        return list(self._rounds)

    @property
    def torn(self) -> int:
        """Count the lines that were torn, each of which stands for a charge of some round."""
        return self._torn

    @property
    def mended(self) -> bool:
        """Tell whether the last line was torn when the ledger was opened, and counts as a charge since."""
        return self._mended

    @property
    def spent(self) -> int:
        """Count the charges of rounds."""
        return sum(round_ > 0 for round_ in self._rounds) + self._torn

    def charged(self, round_: int) -> bool:
        """Tell whether a round was charged."""
        return round_ in self._rounds

    @property
    def left(self) -> int:
        """Count the charges that the limit still allows."""
        return max(0, self._limit - self.spent)

    def spent_after(self, round_: int) -> int:
        """Count the charges that a run has made when it ends a round.

        A resumed simulation repeats rounds that were charged already, and later ones do not count yet. In a deployment
        whatever was charged is spent.
        """
        return self.spent if self._deployment else sum(0 < charged <= round_ for charged in self._rounds)

    def affords(self, round_: int) -> bool:
        """Say whether `charge(round_)` would be granted: ask before sampling, and end the run cleanly if not."""
        if round_ <= 0:  # a torn line may have been this charge
            return self._repeats(round_) or self._beside(round_) + self._torn < self._most_beside(round_)
        return self._repeats(round_) or self.left > 0

    def charge(self, round_: int) -> None:
        """Charge a round; on return it is on disk and the sum may be opened.

        In simulation a round that was charged already repeats the same noise, so it is not charged twice. In a
        deployment noise is fresh, so a repeated round is another release.
        """
        if self._repeats(round_):
            return
        if not self.affords(round_):
            spent, limit = self.spent, self._limit
            if round_ <= 0:
                spent, limit = self._beside(round_) + self._torn, self._most_beside(round_)
            raise PrivacyError(
                f"round {round_} would exceed the budget: {spent} of {limit} are spent in {self.path.name}"
            )
        self._append({"kind": "charge", "round": round_})
        self._rounds.append(round_)

    def drawn(self, round_: int, commitment: str) -> None:
        """Record a commitment to the draws up to a round; on return it is on disk.

        A resumed simulation draws the same clients again, so another commitment for the same round is refused.
        """
        known = None if self._deployment else self._draws.get(round_)
        if known == commitment:
            return
        if known is not None:
            raise PrivacyError(
                f"round {round_} drew other clients before, by {self.path.name}; resume with the checkpoint that "
                "belongs to it"
            )
        self._append({"kind": "draws", "round": round_, "commitment": commitment})
        self._draws[round_] = commitment

    @property
    def notes(self) -> list[dict[str, Any]]:
        """Return what was noted beside charges and draws, line by line."""
        return list(self._notes)

    def note(self, kind: str, round_: int, fields: dict[str, Any]) -> None:
        """Write a line of another kind, which counts for nothing here; on return it is on disk."""
        if kind not in NOTES:
            raise PrivacyError(f"a ledger has no lines of kind {kind!r}")
        self._append({"kind": kind, "round": round_, **fields})
        self._notes.append({"kind": kind, "round": round_, **fields})

    @property
    def last_drawn(self) -> int:
        """Return the last round whose draws were recorded; 0 before the first."""
        return max(self._draws, default=0)

    def check_draws(self, round_: int, commitment: str) -> None:
        """Raise unless a checkpoint's draws are those that were recorded in its last round."""
        if self._draws.get(round_) != commitment:
            raise PrivacyError(
                f"the checkpoint of round {round_} counts other draws than {self.path.name} has recorded; restore the "
                "checkpoint that belongs to it"
            )

    def check_checkpoint(self, round_: int) -> None:
        """Raise if a checkpoint has finished a round that was never charged: then this is not its ledger."""
        highest = max(self._rounds, default=0)
        if round_ > highest:
            raise PrivacyError(
                f"the checkpoint is at round {round_}, but {self.path.name} has charged rounds up to {highest}; "
                "restore the ledger that belongs to it"
            )

    def _beside(self, round_: int) -> int:
        """Count the charges of releases beside the rounds: a vote is round 0, the measurement after round r is -r.

        A client counts either by itself: what one costs does not pay for the other.
        """
        apart = self._opening is not None
        return sum(each <= 0 and (not apart or (each == 0) == (round_ == 0)) for each in self._rounds)

    def _most_beside(self, round_: int) -> int:
        if self._opening is None:
            return self._before
        return self._opening if round_ == 0 else self._before - self._opening

    def _repeats(self, round_: int) -> bool:
        return not self._deployment and round_ in self._rounds

    @property
    def _index(self) -> int:
        return len(self._heads)

    @property
    def _last(self) -> str:
        return self._heads[-1] if self._heads else GENESIS

    def _append(self, fields: dict[str, Any]) -> None:
        if self._file.closed:  # a line after half a line would break the chain for ever
            raise PrivacyError(f"{self.path.name} could not be written before; start anew, so that it is read again")
        entry = {"index": self._index, **fields, "digest": self._digest, "previous": self._last}
        entry["hash"] = hash_of(entry)
        line = (json.dumps(entry) + "\n").encode()
        self._step("before the write")
        try:
            # Two writes, so that the tests can kill in between; a real kill can fall inside either.
            self._file.write(line[: len(line) // 2])
            self._file.flush()
            self._step("within the line")
            self._file.write(line[len(line) // 2 :])
            self._file.flush()
            self._step("before the sync")
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.close()
            full = "make room there" if error.errno == errno.ENOSPC else "mend that"
            raise RunError(f"{self.path} cannot be written: {error.strerror}; {full}, and start again") from None
        self._step("after the sync")
        self._heads.append(str(entry["hash"]))

    def _load(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole, torn = split_torn(content)
        for number, line in enumerate(whole, start=1):
            self._read(line, number)
        if torn:
            # Cut the torn end off, or the next line would be glued to it.
            self._file.truncate(len(content) - len(torn))
            os.fsync(self._file.fileno())
        self._file.seek(0, os.SEEK_END)
        if not self._index:
            self._append({"kind": "open", "version": VERSION, "limit": self._limit, "deployment": self._deployment})
            sync_folder(self.path.parent)
        elif torn and self._deployment:
            self._append({"kind": "torn"})
            self._torn += 1
            self._mended = True

    def _read(self, line: bytes, number: int) -> None:
        entry = chained(line, self._index, self._last)
        if entry is None:
            raise PrivacyError(f"{self.path.name} line {number} is damaged: the chain of hashes is broken; restore it")
        if entry["digest"] != self._digest:
            raise PrivacyError(
                f"{self.path.name} belongs to another plan ({entry['digest'][:12]}, not {self._digest[:12]}); "
                "a resumed run must keep its privacy settings"
            )
        if number == 1:
            told = (entry["kind"], entry.get("version"), entry.get("limit"), entry.get("deployment"))
            if told != ("open", VERSION, self._limit, self._deployment):
                raise PrivacyError(f"{self.path.name} was opened with other rules: {told[1:]}")
        elif entry["kind"] == "charge":
            self._rounds.append(int(entry["round"]))
        elif entry["kind"] == "draws":
            self._draws[int(entry["round"])] = str(entry["commitment"])
        elif entry["kind"] == "torn":
            self._torn += 1
        elif entry["kind"] in NOTES:
            self._notes.append(entry)
        else:
            raise PrivacyError(f"{self.path.name} line {number} is of unknown kind {entry['kind']!r}")
        self._heads.append(str(entry["hash"]))
