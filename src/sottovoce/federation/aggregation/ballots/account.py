"""The helper's own account: what it was charged, whom it counted, and how far its oblivious transfers have come.

It is a ledger like the server's, with more kinds of lines, all of them with their round:

    ballots   the clients that were counted and the transfers that are used up by then, before the first of them
    compare   both proofs of the comparison of the two counts, before the helper's own leaves
    settled   the leader has shown its proof of a comparison after which the connection was lost
    differ    the counts were not the same: nothing is counted any more

The charge is on disk before the helper's share leaves. So after a crash the account says at least the truth.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from sottovoce.core.errors import PrivacyError, SecAggError
from sottovoce.privacy import Ledger, PrivacyPlan
from sottovoce.secagg.ballots import CountsDifferError

HELPER_LEDGER: Final = "helper-ledger.jsonl"


class Pending(NamedTuple):
    """A comparison whose end the leader has not shown: the helper's proof has left, the leader's has not come."""

    round: int
    own: bytes
    expected: bytes


class HelperAccount:
    """The account of one helper: rounds against the plan's, and participations of every client.

    Guarantee: a client is counted in at most `max_participations` rounds; transfers of a session never rewind; when
    `charge` returns, the round is on disk. In a deployment a leader that hangs up when it sees that counts differ
    gains nothing: without its proof no round follows.
    """

    def __init__(self, ledger: Ledger, plan: PrivacyPlan) -> None:
        self._ledger = ledger
        self._most = plan.max_participations
        self._deployment = plan.request.deployment
        self._rounds: dict[int, frozenset[int]] = {}
        self._again: Counter[int] = Counter()  # in a deployment a repeated round is another release
        self._counters: dict[str, int] = {}
        self._compared: Pending | None = None
        self._differs: int | None = None
        for note in ledger.notes:
            self._read(note)

    @classmethod
    def open(cls, folder: Path, plan: PrivacyPlan, played: int = 0) -> Self:
        """Open the helper's account in its folder, or refuse one that does not know the last round that was played."""
        account = cls(Ledger.of_server(folder / HELPER_LEDGER, plan), plan)
        try:
            account._ledger.check_checkpoint(played)
        except PrivacyError:
            account.close()
            raise
        return account

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._ledger.close()

    @property
    def spent(self) -> int:
        """Count the rounds that were charged."""
        return self._ledger.spent

    @property
    def last_round(self) -> int:
        """Return the highest round that was begun; 0 before the first."""
        return max(self._rounds, default=0)

    @property
    def head(self) -> tuple[int, str]:
        """Return how many lines the account has, and the hash of the last."""
        return self._ledger.head

    def holds(self, lines: int, head: str) -> bool:
        """Tell whether the account had so many lines once, the last with this hash."""
        return self._ledger.holds(lines, head)

    @property
    def broken(self) -> bool:
        """Tell whether a line could not be written, so that nothing more can be counted."""
        return self._ledger.broken

    @property
    def pending(self) -> Pending | None:
        """Return the comparison that the leader has yet to end; None if there is none, as always in simulation."""
        compared = self._compared
        ended = compared is None or not self._deployment or self._ledger.charged(compared.round)
        return None if ended else compared

    def participations(self, client: int, round_: int | None = None) -> int:
        """Count the rounds in which a client was counted; a simulation that repeats `round_` does not count it.

        What comes before round 1 is no participation: its one message is in the plan beside the rounds.
        """
        repeated = None if self._deployment else round_
        known = sum(client in clients for other, clients in self._rounds.items() if other > 0 and other != repeated)
        return known + self._again[client]

    def admits(self, client: int, round_: int) -> bool:
        """Tell whether a client may be counted in a round: it has not been in too many."""
        return self.participations(client, round_) < self._most

    def check_round(self, round_: int) -> None:
        """Raise if a round cannot be counted: begun before in a deployment, beyond the budget, or the run is over."""
        if self._differs is not None:
            raise CountsDifferError(self._differs)
        if self.pending is not None:
            raise CountsDifferError(self.pending.round, "the server left the comparison of its counts unfinished")
        if self._deployment and round_ <= self.last_round:
            raise PrivacyError(
                f"round {round_} was begun before, by {self._ledger.path.name}, which is at round {self.last_round}; "
                "rounds only rise"
            )
        if not self._ledger.affords(round_):
            raise PrivacyError(f"round {round_} would exceed the helper's budget; it ends here")

    def reserve(self, round_: int, clients: Iterable[int], *, counter: int, session: str = "") -> None:
        """Write down whom a round counts, and up to where its transfers reach, before the first of them."""
        counted = sorted(clients)
        if counter < self._counters.get(session, 0):
            raise PrivacyError(
                f"transfers of session {session[:12]} reach {self._counters[session]} already and cannot go back to "
                f"{counter}; begin a new session"
            )
        for client in counted:
            if not self.admits(client, round_):
                raise PrivacyError(f"client {client} was counted in {self._most} rounds already, and may be in no more")
        self._ledger.note("ballots", round_, {"clients": counted, "session": session, "counter": counter})
        self._remember(round_, counted, session, counter)

    def compare(self, round_: int, own: bytes, expected: bytes) -> None:
        """Write down the proofs of a comparison, before the helper's leaves."""
        self._ledger.note("compare", round_, {"own": own.hex(), "expected": expected.hex()})
        self._compared = Pending(round_, own, expected)

    def differ(self, round_: int) -> None:
        """Write down that the counts of a round differ; from then on no round is counted."""
        self._differs = round_
        self._ledger.note("differ", round_, {})

    def settle(self, proof: bytes) -> None:
        """End a comparison after which the connection was lost by the leader's proof, or the run if it is wrong."""
        pending = self.pending
        if pending is None:
            raise SecAggError("there is no comparison of counts to settle")
        if not hmac.compare_digest(proof, pending.expected):
            self.differ(pending.round)
            raise CountsDifferError(pending.round)
        self._ledger.note("settled", pending.round, {})
        self._compared = None

    def charge(self, round_: int) -> None:
        """Charge a round; on return it is on disk and the helper's share may leave."""
        self._ledger.charge(round_)

    def _read(self, note: dict[str, Any]) -> None:
        round_ = int(note["round"])
        match note["kind"]:
            case "ballots":
                self._remember(round_, note["clients"], str(note["session"]), int(note["counter"]))
            case "compare":
                self._compared = Pending(round_, bytes.fromhex(note["own"]), bytes.fromhex(note["expected"]))
            case "settled":
                self._compared = None
            case _:
                self._differs = round_

    def _remember(self, round_: int, clients: Iterable[int], session: str, counter: int) -> None:
        counted = frozenset(clients)
        if self._deployment and round_ in self._rounds:
            self._again.update(counted)
        else:
            self._rounds[round_] = self._rounds.get(round_, frozenset()) | counted
        self._counters[session] = max(counter, self._counters.get(session, 0))
