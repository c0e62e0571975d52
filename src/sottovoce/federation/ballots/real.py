"""The real count: the leader here, the helper in a process of its own, between them the protocol of `secagg.ballots`.

A helper that dies ends its round with nothing released; the next round starts another one, with new transfers and the
same account.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sottovoce.core.errors import RunError, SecAggError
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.federation.aggregate import Conversation, Spend, Total
from sottovoce.federation.ballots.account import HelperAccount
from sottovoce.federation.ballots.coding import Ballots
from sottovoce.federation.ballots.process import HelperProcess, HelperSetup
from sottovoce.federation.ballots.terms import CountKeys, terms_of
from sottovoce.federation.coding import Terms
from sottovoce.federation.engine import Request
from sottovoce.federation.secure import downlink_hash
from sottovoce.privacy import PrivacyPlan
from sottovoce.secagg import verifying_key
from sottovoce.secagg.ballots import BallotTerms, Leader
from sottovoce.secagg.primitives import exchange_key

__all__ = ["RealCount", "simulated_terms"]


def simulated_terms(plan: PrivacyPlan, seeds: Seeds, config_digest: bytes) -> BallotTerms:
    """Return the terms of a simulated count: all keys follow from the seed."""
    leader, helper = (verifying_key(key) for key in (leader_signing(seeds), helper_signing(seeds)))
    keys = CountKeys(leader, helper, exchange_key(helper_private(seeds)))
    return terms_of(plan, keys, seeds.server.key(Purpose.BALLOT, size=16), config_digest)


def leader_signing(seeds: Seeds) -> bytes:
    """Return the leader's signing key in simulation."""
    return seeds.server.key(Purpose.SETUP, 2)


def helper_signing(seeds: Seeds) -> bytes:
    """Return the helper's signing key in simulation."""
    return seeds.helper.key(Purpose.SETUP, 1)


def helper_private(seeds: Seeds) -> bytes:
    """Return the key by which the helper opens seeds, in simulation."""
    return seeds.helper.key(Purpose.SETUP, 2)


@dataclass
class RealCount:
    """The count of ballots by leader and helper."""

    coding: Ballots
    terms: BallotTerms
    registry: Mapping[int, bytes]
    seeds: Seeds
    helper: HelperProcess | None = field(default=None, init=False)
    _leader: Leader | None = field(default=None, init=False)

    @contextmanager
    def counting(self, folder: Path, played: int = 0) -> Iterator[None]:
        """Start a helper that keeps its account in a folder, and stop it at the end."""
        HelperAccount.open(folder, self.coding.plan, played).close()  # so that one that is damaged ends the run here
        seeds = self.seeds
        self.helper = HelperProcess(
            HelperSetup(folder, self.coding, self.terms, self.registry, helper_signing(seeds), helper_private(seeds))
        )
        # Transfers take the system's entropy even in simulation: they never repeat, and no result depends on them.
        self._leader = Leader(self.terms, leader_signing(seeds), self.registry, self.helper.answer, os.urandom)
        try:
            yield
        finally:
            self.helper.close()
            self.helper = self._leader = None

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Ask everyone for a ballot, and count; the leader is charged before it asks for the helper's share."""
        leader = self._leader
        if leader is None:
            raise RunError("ballots need a helper, and none was started")
        leader.begin(round_, cohort, downlink_hash(down))
        request = Request(round_, "train", dict.fromkeys(cohort, down), take=leader.accept, opening=True, pinned=True)
        reply = yield request
        total = Total(clip_norm=terms.clip_norm, senders=len(reply.sizes))
        total.count(request, reply)
        needed = self.coding.plan.shares.survivors(len(cohort))
        if total.senders < needed:
            total.reason = f"round {round_}: {total.senders} messages, but {needed} are needed; nothing was released"
            return total
        try:
            accepted = leader.agree()
            refused = set(reply.sizes).difference(accepted)
            total.failures |= dict.fromkeys(refused, "the helper does not count this ballot")
            total.senders = len(accepted)
            leader.multiply()
            leader.compare()  # counts that differ end the run, and not this round alone
            spend()
            votes = leader.open(self.coding.leader_noise(round_))
        except SecAggError as error:
            leader.forsake()
            total.reason = f"round {round_}: {error}"
            return total
        total.values, total.clip_norm = self.coding.decode(votes, round_)
        return total
