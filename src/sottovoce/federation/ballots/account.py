"""The helper's own account: what it was charged, whom it counted, and how far its oblivious transfers have come.

It is a ledger like the server's, with one kind of line more, "ballots": the round, the clients that were counted and
the transfers that are used up by then. The line is on disk before the first transfer of the round, the charge before
the helper's share leaves. So after a crash the account says at least the truth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sottovoce.core.errors import PrivacyError
from sottovoce.privacy import Ledger, PrivacyPlan

__all__ = ["HELPER_LEDGER", "HelperAccount"]

HELPER_LEDGER: Final = "helper-ledger.jsonl"


class HelperAccount:
    """The account of one helper: rounds against the plan's, and participations of every client.

    Guarantee: a client is counted in at most `max_participations` rounds; transfers of a session never rewind; when
    `charge` returns, the round is on disk.
    """

    def __init__(self, ledger: Ledger, plan: PrivacyPlan) -> None:
        self._ledger = ledger
        self._most = plan.max_participations
        self._deployment = plan.request.deployment
        self._rounds: dict[int, frozenset[int]] = {}
        self._again: Counter[int] = Counter()  # in a deployment a repeated round is another release
        self._counters: dict[str, int] = {}
        for note in ledger.notes:
            self._remember(int(note["round"]), note["clients"], str(note["session"]), int(note["counter"]))

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

    def participations(self, client: int, round_: int | None = None) -> int:
        """Count the rounds in which a client was counted; a simulation that repeats `round_` does not count it."""
        repeated = None if self._deployment else round_
        known = sum(client in clients for other, clients in self._rounds.items() if other != repeated)
        return known + self._again[client]

    def admits(self, client: int, round_: int) -> bool:
        """Tell whether a client may be counted in a round: it has not been in too many."""
        return self.participations(client, round_) < self._most

    def check_round(self, round_: int) -> None:
        """Raise if this round of a deployment, or a later one, was begun before, or if the budget has none left."""
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

    def charge(self, round_: int) -> None:
        """Charge a round; on return it is on disk and the helper's share may leave."""
        self._ledger.charge(round_)

    def _remember(self, round_: int, clients: Iterable[int], session: str, counter: int) -> None:
        counted = frozenset(clients)
        if self._deployment and round_ in self._rounds:
            self._again.update(counted)
        else:
            self._rounds[round_] = self._rounds.get(round_, frozenset()) | counted
        self._counters[session] = max(counter, self._counters.get(session, 0))
