"""The real count of a deployed run: the leader here, the helper at another institution, and a link between them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from sottovoce.federation.aggregate import Conversation, Spend
from sottovoce.federation.ballots.real import RealCount
from sottovoce.federation.ballots.terms import CountKeys, terms_of
from sottovoce.federation.client import Client
from sottovoce.federation.coding import Terms
from sottovoce.privacy import PrivacyPlan
from sottovoce.secagg.ballots import BallotTerms, Leader, Record

__all__ = ["Link", "RemoteCount", "deployed_terms", "in_run"]

_NO_RUN = bytes(16)


class Link(Protocol):
    """A way to the helper."""

    @property
    def record(self) -> Record:
        """Return what the leader keeps of comparisons with the helper."""
        ...

    def begin(self, setup: bytes) -> bytes:
        """Tell the helper which run this is, and return the run's id; raise if it does not count for it."""
        ...

    def ready(self) -> bool:
        """Wait until the helper can be asked, but not for ever; tell whether the connection is a new one."""
        ...

    def answer(self, kind: str, payload: bytes) -> bytes:
        """Return the helper's answer, or raise as it did; SecAggError too if it is gone."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


def deployed_terms(plan: PrivacyPlan, keys: CountKeys, config_digest: bytes) -> BallotTerms:
    """Return the terms of a deployed count before its run is known; `in_run` and `RemoteCount` say which it is."""
    return terms_of(plan, keys, _NO_RUN, config_digest)


def in_run(client: Client, federation: bytes, run: bytes) -> Client:
    """Return a node's client whose ballots, and all that it signs in secure sums, hold for one run."""
    knowledge = client.knowledge
    policy = None if knowledge.policy is None else knowledge.policy.in_run(federation, run)
    ballot = None if knowledge.ballot is None else replace(knowledge.ballot, session=run)
    return replace(client, knowledge=replace(knowledge, policy=policy, ballot=ballot))


@dataclass
class RemoteCount(RealCount):
    """The count of ballots with a helper elsewhere.

    Guarantee: with `covers` a round that fails releases the noise of two aggregators, the leader's, and is charged; so
    nobody learns from it whom or how many it had drawn.
    """

    link: Link = field(kw_only=True, repr=False)
    setup: bytes = field(kw_only=True, repr=False)
    signing_key: bytes = field(kw_only=True, repr=False)
    covers: bool = field(kw_only=True)

    @contextmanager
    def counting(self, folder: Path, played: int = 0) -> Iterator[None]:
        """Call the helper, which keeps its account itself, and hang up at the end."""
        run = self.link.begin(self.setup)
        terms = replace(self.terms, session=run)
        self._leader = Leader(terms, self.signing_key, self.registry, self.link.answer, os.urandom, self.link.record)
        try:
            yield
        finally:
            self.link.close()
            self._leader = None

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Ask everyone for a ballot, and count; where a failure must not be seen, noise alone is opened and charged."""
        charged = False

        def once() -> None:
            nonlocal charged
            if not charged:
                spend()
            charged = True

        if self.link.ready() and self._leader is not None:
            self._leader.forsake()  # transfers end with their connection
        total = yield from super().collect(round_, cohort, down, terms, once)
        if total.values is None and self.covers:
            once()
            votes = self.coding.leader_noise(round_) + self.coding.leader_noise(round_)
            total.values, total.clip_norm = self.coding.decode(votes, round_)
        return total
