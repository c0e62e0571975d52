"""The ideal count: the exact sum of ballots and two noises, as if a trusted party counted; no cryptography."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sottovoce.federation.aggregate import Conversation, Direct, Spend
from sottovoce.federation.ballots.account import HelperAccount
from sottovoce.federation.ballots.coding import Ballots
from sottovoce.federation.coding import Terms

__all__ = ["IdealCount"]


@dataclass
class IdealCount:
    """The count of ballots by a trusted party that keeps the helper's account beside the leader's."""

    coding: Ballots
    _account: HelperAccount | None = field(default=None, init=False)

    @contextmanager
    def counting(self, folder: Path, played: int = 0) -> Iterator[None]:
        """Keep the helper's account in a folder while a run lasts."""
        with HelperAccount.open(folder, self.coding.plan, played) as self._account:
            yield
        self._account = None

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Ask everyone to vote, and count; both accounts are charged before the votes are opened."""

        def spend_both() -> None:
            if self._account is not None:
                self._account.charge(round_)
            spend()

        if self._account is not None:
            self._account.reserve(round_, cohort, counter=0)
        direct = Direct(self.coding, self.coding.plan.shares.survivors)
        return (yield from direct.collect(round_, cohort, down, terms, spend_both))
