"""What a node keeps on disk, and nothing of it is a secret: its ledger, the highest round that it masked, its last run.

state/<16 digits of the experiment's digest>/
    ledger.jsonl     private runs: one charge a participation, over all runs of this experiment
    ledger.head      how many lines the ledger has had, the hash of the last, and the round that is masked next
    mark-<run>       the highest round of a run that was masked; mark-<run>-beside is that of measurements
    run              the run that it took part in last
    dataset          the account to which all of it is charged (`account`)
    signed-<run>     what the server claimed of a run at its end, whether this node agreed, and the salt of its answer
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, NamedTuple, Self

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.files import PRIVATE, replace_file
from sottovoce.core.lock import hold
from sottovoce.deployment.countersign import Claim, Opening, read_signed, signed_text
from sottovoce.federation.stages.evaluation import charged_round
from sottovoce.privacy import Ledger, PrivacyPlan
from sottovoce.privacy.ledger import GENESIS, verify
from sottovoce.secagg import RoundMark

_LEDGER: Final = "ledger.jsonl"
_HEAD: Final = "ledger.head"
_ANEW: Final = "restore the newest copy of the folder; without it this node takes no more part in this experiment"


class _Head(NamedTuple):
    """How far a ledger had come: its lines, the hash of the last, and the charge that is under way."""

    lines: int
    hash: str
    next: int | None

    @classmethod
    def read(cls, path: Path) -> _Head | None:
        """Return what a file says; None if there is none."""
        try:
            told = json.loads(path.read_bytes())
            return cls(int(told["lines"]), str(told["hash"]), None if told["next"] is None else int(told["next"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise PrivacyError(f"{path} is damaged, and says how far {_LEDGER} had come; {_ANEW}") from None


class Book:
    """A node's account of what it gave; used in a `with` block, by one process at a time.

    Guarantee: the ledger outlives runs. A server that starts the same experiment again and again gets no more masked
    vectors from a node than one plan allows. A ledger that was deleted, cut or restored from an older copy is refused
    while its head, or the mark of a round that it does not charge, lies beside it.
    """

    def __init__(
        self,
        folder: Path | None,
        plan: PrivacyPlan | None,
        *,
        opening: bool = False,
        reserve: Callable[[], None] | None = None,
    ) -> None:
        self._folder = folder
        self._reserve = reserve  # charges the account of the data set, once
        self._ledger: Ledger | None = None
        self._lock: IO[str] | None = None
        self._marks: dict[bytes, tuple[RoundMark, RoundMark]] = {}  # of every run, where there is no folder
        self._signed: dict[bytes, tuple[Claim, bool, Opening]] = {}  # the same
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = _locked(folder)
            try:
                if plan is not None:
                    self._open(folder, plan, opening)
            except BaseException:
                self.close()
                raise

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
            return self._marks_of(run)
        replace_file(self._folder / "run", run.hex().encode() + b"\n")
        return self._marks_of(run)

    def highest(self, run: bytes) -> int:
        """Return the highest round of a run that was masked or measured; 0 if none was."""
        rounds = [mark.highest for mark in self._marks_of(run)]
        return max((abs(charged_round(round_)) for round_ in rounds if round_ >= 0), default=0)

    def _marks_of(self, run: bytes) -> tuple[RoundMark, RoundMark]:
        if self._folder is None:
            return self._marks.setdefault(run, (RoundMark(), RoundMark()))
        name = f"mark-{run.hex()}"
        return RoundMark(self._folder / name), RoundMark(self._folder / f"{name}-beside")

    def sign(self, run: bytes, claim: Claim, *, agrees: bool) -> Opening:
        """Return what opens the commitment to the account, after writing down what is signed.

        Guarantee: of one run one claim is signed; the same one again gets the same bytes.
        """
        known = self._known_signature(run)
        if known is not None and known[:2] != (claim, agrees):
            raise PrivacyError(
                "the server shows other numbers than those that this node has signed; it signs no others"
            )
        if known is not None:
            return known[2]
        opening = Opening.make(*((0, GENESIS) if self._ledger is None else self._ledger.head))
        self._signed[run] = claim, agrees, opening
        if self._folder is not None:
            replace_file(self._folder / f"signed-{run.hex()}", signed_text(claim, agrees, opening), PRIVATE)
        return opening

    def _known_signature(self, run: bytes) -> tuple[Claim, bool, Opening] | None:
        if self._folder is None or run in self._signed:
            return self._signed.get(run)
        return read_signed(self._folder / f"signed-{run.hex()}")

    def affords(self, round_: int) -> bool:
        """Tell whether a round, or a measurement beside the rounds, may be charged."""
        return self._ledger is None or self._ledger.affords(charged_round(round_))

    def intend(self, round_: int) -> None:
        """Say on disk which round is masked next, so that its mark without a charge is known for a crash."""
        if self._ledger is not None:
            if self._reserve is not None:
                self._reserve()
            self._keep_head(charged_round(round_))

    def charge(self, round_: int) -> None:
        """Charge a round; on return it is on disk."""
        if self._ledger is not None:
            self._ledger.charge(charged_round(round_))
            self._keep_head(None)

    def _open(self, folder: Path, plan: PrivacyPlan, opening: bool) -> None:
        """Open the ledger, or refuse one that knows less than what lies beside it."""
        path, head = folder / _LEDGER, _Head.read(folder / _HEAD)
        if not (path.exists() and path.stat().st_size):
            beside = [name for name in (_HEAD, "run", "sealed") if (folder / name).exists()]
            if beside := [*beside, *(mark.name for mark in _marks(folder))]:
                raise PrivacyError(f"{path} is gone, and {beside[0]} beside it shows that there was one; {_ANEW}")
        ledger = self._ledger = Ledger.of_client(path, plan, opening=opening)
        if head is None and (ledger.rounds or ledger.spent):
            raise PrivacyError(f"{folder / _HEAD} is gone, which says how far {_LEDGER} had come; {_ANEW}")
        torn = head is not None and ledger.mended and head.lines == ledger.head[0]  # the lost line counts as a charge
        if head is not None and not torn and not ledger.holds(head.lines, head.hash):
            raise PrivacyError(
                f"{path} does not have the line {head.lines} that it had: it was cut, or is an older copy; {_ANEW}"
            )
        self._check_marks(folder, ledger, None if head is None else head.next)
        self._keep_head(None)

    def _check_marks(self, folder: Path, ledger: Ledger, next_: int | None) -> None:
        """Raise if a round was masked that the ledger does not charge, and no crash explains it.

        Of the round that was masked next when the node was killed nobody knows whether it has left, so it is charged. A
        torn line may have been any charge.
        """
        charged, torn = Counter(ledger.rounds), ledger.torn
        for mark in _marks(folder):
            round_ = charged_round(RoundMark(mark).highest)
            if charged[round_]:
                charged[round_] -= 1
            elif next_ == round_:
                next_ = None
                if ledger.affords(round_):
                    ledger.charge(round_)
            elif torn:
                torn -= 1
            else:
                raise PrivacyError(
                    f"{mark} says that round {round_} was masked, and {_LEDGER} has no charge of it: it is an older "
                    f"copy; {_ANEW}"
                )

    def _keep_head(self, next_: int | None) -> None:
        if self._ledger is not None and self._folder is not None:
            lines, last = self._ledger.head
            replace_file(self._folder / _HEAD, json.dumps({"lines": lines, "hash": last, "next": next_}) + "\n")


def _marks(folder: Path) -> list[Path]:
    """Return the files of the marks of all runs."""
    return sorted(path for path in folder.glob("mark-*") if not path.name.endswith(".lock"))


def _locked(folder: Path) -> IO[str]:
    """Hold a folder for one process: two nodes of one name would push each other out at the broker for ever."""
    file = (folder / "lock").open("a")
    try:
        hold(file.fileno(), wait=False)
    except OSError:
        file.close()
        raise InputError(f"{folder} is in use by another process: this node runs already") from None
    return file
