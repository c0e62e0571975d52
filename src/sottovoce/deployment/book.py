"""What a node keeps on disk, and nothing of it is a secret: its ledger, the highest round that it masked, its last run.

state/<16 digits of the experiment's digest>/
    ledger.jsonl     private runs: one charge a participation, over all runs of this experiment
    mark-<run>       the highest round of a run that was masked; mark-<run>-beside is that of measurements
    run              the run that it took part in last
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO, Self

from sottovoce.core.errors import InputError
from sottovoce.core.files import replace_file
from sottovoce.federation.evaluation import charged_round
from sottovoce.privacy import Ledger, PrivacyPlan
from sottovoce.privacy.ledger import verify
from sottovoce.secagg import RoundMark

__all__ = ["Book"]


class Book:
    """A node's account of what it gave; used in a `with` block, by one process at a time.

    Guarantee: the ledger outlives runs. A server that starts the same experiment again and again gets no more masked
    vectors from a node than one plan allows.
    """

    def __init__(self, folder: Path | None, plan: PrivacyPlan | None, *, opening: bool = False) -> None:
        self._folder = folder
        self._ledger: Ledger | None = None
        self._lock: IO[str] | None = None
        self._marks: dict[bytes, tuple[RoundMark, RoundMark]] = {}  # of every run, where there is no folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = _locked(folder)
            if plan is not None:
                self._ledger = Ledger.of_client(folder / "ledger.jsonl", plan, opening=opening)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder."""
        if self._ledger is not None:
            self._ledger.close()
        if self._lock is not None:
            self._lock.close()

    @property
    def last_run(self) -> str | None:
        """Return the run that the node took part in last, in hex."""
        path = None if self._folder is None else self._folder / "run"
        return path.read_text(encoding="ascii").strip() if path is not None and path.exists() else None

    @property
    def spent(self) -> int:
        """Count the participations that were charged."""
        return 0 if self._ledger is None else self._ledger.spent

    @property
    def given_elsewhere(self) -> int:
        """Count the participations in other experiments whose accounts lie beside this one.

        Each has a plan of its own, and what they learn of the same records adds up.
        """
        if self._folder is None:
            return 0
        others = [path for path in self._folder.parent.glob("*/ledger.jsonl") if path.parent.name != self._folder.name]
        return sum(len(verify(path).charged) for path in others)

    def enter(self, run: bytes) -> tuple[RoundMark, RoundMark]:
        """Remember a run, and return the marks of its highest masked round and measurement.

        Guarantee: a run that comes again under the same id, whatever came between, finds the marks that it left.
        """
        if self._folder is None:
            return self._marks.setdefault(run, (RoundMark(), RoundMark()))
        replace_file(self._folder / "run", run.hex().encode() + b"\n")
        name = f"mark-{run.hex()}"
        return RoundMark(self._folder / name), RoundMark(self._folder / f"{name}-beside")

    def affords(self, round_: int) -> bool:
        """Tell whether a round, or a measurement beside the rounds, may be charged."""
        return self._ledger is None or self._ledger.affords(charged_round(round_))

    def charge(self, round_: int) -> None:
        """Charge a round; on return it is on disk."""
        if self._ledger is not None:
            self._ledger.charge(charged_round(round_))


def _locked(folder: Path) -> IO[str]:
    """Hold a folder for one process: two nodes of one name would push each other out at the broker for ever."""
    file = (folder / "lock").open("a")
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise InputError(f"{folder} is in use by another process: this node runs already") from None
    return file
