"""The count of ballots: ideal, by a trusted party; or real, by a leader and a helper that do not collude.

    IdealCount    the exact sum of ballots and two noises, without cryptography
    RealCount     the leader here, the helper in a process of its own, between them the protocol of `secagg.ballots`
    RemoteCount   the leader here, the helper at another institution, and a link between them

A helper that dies ends its round with nothing released; the next round starts another one, with new transfers and the
same account.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, final

from typing_extensions import override

from sottovoce.core.errors import PrivacyError, RunError, SecAggError
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.federation.aggregation.aggregator import (
    AggregationProtocol,
    Aggregator,
    Conversation,
    Costs,
    Materials,
    Spend,
    Total,
    one_message,
)
from sottovoce.federation.aggregation.ballots.account import HelperAccount
from sottovoce.federation.aggregation.ballots.coding import Ballots, CountKeys, terms_of
from sottovoce.federation.aggregation.ballots.process import HelperProcess, HelperSetup
from sottovoce.federation.aggregation.direct import Direct
from sottovoce.federation.aggregation.secure import downlink_hash, once
from sottovoce.federation.client import Client
from sottovoce.federation.coding import Terms
from sottovoce.federation.engine import Request
from sottovoce.privacy import PrivacyPlan
from sottovoce.secagg import verifying_key
from sottovoce.secagg.ballots import BallotTerms, Leader, Record, ballot_size, bytes_between
from sottovoce.secagg.primitives import exchange_key
from sottovoce.secagg.sizes import Outline

_NO_RUN = bytes(16)


@contextmanager
def counting(
    aggregator: Aggregator, folder: Path, played: int = 0, account: PrivacyPlan | None = None
) -> Iterator[None]:
    """Let an aggregator that counts ballots keep the helper's account in a folder; others need nothing.

    `played` is the last round that a run has played: an account that does not know it is not the run's. `account` is
    the plan of the run, if the aggregator is that of a stage before it: the helper has one account of both.
    """
    if not isinstance(aggregator, IdealCount | RealCount):
        yield
        return
    with aggregator.counting(folder, played, account):
        yield


def count_costs(outline: Outline, down: int) -> Costs:
    """Return the costs of a round of ballots, with the transfers between leader and helper.

    `outline.bits` are those of the shares that leader and helper have of a vote.
    """
    costs = one_message(outline.cohort, ballot_size(outline.length), down)
    return replace(costs, between=bytes_between(outline.cohort, outline.length, outline.bits, outline.coins))


@dataclass
class IdealCount:
    """The count of ballots by a trusted party that keeps the helper's account beside the leader's."""

    coding: Ballots
    _account: HelperAccount | None = field(default=None, init=False)

    @contextmanager
    def counting(self, folder: Path, played: int = 0, account: PrivacyPlan | None = None) -> Iterator[None]:
        """Keep the helper's account in a folder while a run lasts."""
        with HelperAccount.open(folder, account or self.coding.plan, played) as self._account:
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

    def costs(self, cohort: int, down: int) -> Costs:
        """Return the bytes of a round: one ballot each."""
        return replace(count_costs(self.coding.outline(cohort), down), between=0)


def simulated_terms(plan: PrivacyPlan, seeds: Seeds, config_digest: bytes, first_round: int = 1) -> BallotTerms:
    """Return the terms of a simulated count: all keys follow from the seed."""
    leader, helper = (verifying_key(key) for key in (leader_signing(seeds), helper_signing(seeds)))
    keys = CountKeys(leader, helper, exchange_key(helper_private(seeds)))
    return terms_of(plan, keys, seeds.server.key(Purpose.BALLOT, size=16), config_digest, first_round)


def deployed_terms(plan: PrivacyPlan, keys: CountKeys, config_digest: bytes) -> BallotTerms:
    """Return the terms of a deployed count before its run is known; `in_run` and `RemoteCount` say which it is."""
    return terms_of(plan, keys, _NO_RUN, config_digest)


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
    def counting(self, folder: Path, played: int = 0, account: PrivacyPlan | None = None) -> Iterator[None]:
        """Start a helper that keeps its account in a folder, and stop it at the end."""
        plan = account or self.coding.plan
        HelperAccount.open(folder, plan, played).close()  # so that one that is damaged ends the run here
        keys = helper_signing(self.seeds), helper_private(self.seeds)
        self.helper = HelperProcess(HelperSetup(folder, plan, self.coding, self.terms, self.registry, *keys))
        seeds = self.seeds
        # Transfers take the system's entropy even in simulation: they never repeat, and no result depends on them.
        toss = self.coding.leader_coins if self.coding.coins else None
        self._leader = Leader(
            self.terms, leader_signing(seeds), self.registry, self.helper.answer, os.urandom, toss=toss
        )
        try:
            yield
        finally:
            self.helper.close()
            self.helper = self._leader = None

    def costs(self, cohort: int, down: int) -> Costs:
        """Return the bytes of a round: one ballot each, and the transfers between leader and helper."""
        return count_costs(self.coding.outline(cohort), down)

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Ask everyone for a ballot, and count; the leader is charged before it asks for the helper's share."""
        leader = self._leader
        if leader is None:
            raise RunError("ballots need a helper, and none was started")
        leader.begin(round_, cohort, downlink_hash(down))
        needed, payloads = self.coding.plan.shares.survivors(len(cohort)), dict.fromkeys(cohort, down)
        request = Request(round_, "train", payloads, take=leader.accept, opening=True, pinned=True, least=needed)
        reply = yield request
        total = Total(clip_norm=terms.clip_norm, senders=len(reply.sizes))
        total.count(request, reply)
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


class HelperChannel(Protocol):
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


@dataclass
class RemoteCount(RealCount):
    """The count of ballots with a helper elsewhere.

    Guarantee: with `covers` a round that fails releases the noise of two aggregators, the leader's, and is charged; so
    nobody learns from it whom or how many it had drawn.
    """

    link: HelperChannel = field(kw_only=True, repr=False)
    setup: bytes = field(kw_only=True, repr=False)
    signing_key: bytes = field(kw_only=True, repr=False)
    covers: bool = field(kw_only=True)

    @contextmanager
    def counting(self, folder: Path, played: int = 0, account: PrivacyPlan | None = None) -> Iterator[None]:
        """Call the helper, which keeps its account itself, and hang up at the end."""
        run = self.link.begin(self.setup)
        terms = replace(self.terms, session=run)
        toss = self.coding.leader_coins if self.coding.coins else None
        self._leader = Leader(
            terms, self.signing_key, self.registry, self.link.answer, os.urandom, self.link.record, toss
        )
        try:
            yield
        finally:
            self.link.close()
            self._leader = None

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Ask everyone for a ballot, and count; where a failure must not be seen, noise alone is opened and charged."""
        charge = once(spend)
        if self.link.ready() and self._leader is not None:
            self._leader.forsake()  # transfers end with their connection
        total = yield from super().collect(round_, cohort, down, terms, charge)
        if total.values is None and self.covers:
            charge()
            total.values, total.clip_norm = self.coding.decode(self.coding.cover(round_), round_)
        return total


def in_run(client: Client, federation: bytes, run: bytes) -> Client:
    """Return a node's client whose ballots, and all that it signs in secure sums, hold for one run."""
    knowledge = client.knowledge
    policy = None if knowledge.policy is None else knowledge.policy.in_run(federation, run)
    ballot = None if knowledge.ballot is None else replace(knowledge.ballot, session=run)
    return replace(client, knowledge=replace(knowledge, policy=policy, ballot=ballot))


def make_count(materials: Materials) -> Aggregator:
    """Return the count of ballots: by one who is trusted, by two processes here, or with a helper elsewhere.

    A stage whose messages are no ballots is summed as it is.
    """
    coding, terms, link = materials.coding, materials.ballot, materials.link
    if not isinstance(coding, Ballots):
        return Direct(coding, materials.fewest)
    if terms is not None and link is not None:
        return _remote_count(materials, coding, terms, link)
    if materials.deployment:
        raise PrivacyError("a deployed count of ballots needs a helper elsewhere; name it in [aggregation] helper")
    return IdealCount(coding) if terms is None else RealCount(coding, terms, materials.keys, Seeds(materials.seed))


def _remote_count(materials: Materials, coding: Ballots, terms: BallotTerms, link: HelperChannel) -> RemoteCount:
    """Return the count with a helper elsewhere; under simulated randomness the leader's key is the seed's."""
    simulated = Seeds(materials.seed)
    signing = materials.leader_signing if materials.deployment else leader_signing(simulated)
    if signing is None:
        raise PrivacyError("a deployed count of ballots needs the signing key of the training server")
    return RemoteCount(
        coding,
        terms,
        materials.keys,
        simulated,
        link=link,
        setup=materials.setup,
        signing_key=signing,
        covers=materials.deployment,
    )


@final
class IdealBallotCount(AggregationProtocol):
    """A count of ballots by a trusted party, which adds the noise of both aggregators."""

    name = "ideal-ballot"
    noise_by = "aggregators"
    counts_votes = True
    costs = staticmethod(count_costs)

    @classmethod
    @override
    def make(cls, materials: Materials) -> Aggregator:
        return make_count(materials)


@final
class BallotCount(AggregationProtocol):
    """A count of ballots by a leader and a helper that do not collude, and each add noise."""

    name = "ballot"
    noise_by = "aggregators"
    counts_votes = True
    needs_helper = True
    ideal = "ideal-ballot"
    label = "ballots"
    trust = (
        "two servers that do not collude and add their noise, and no client; "
        "one that leaves the protocol gets a yes or no about ballots, and a wrong guess ends the run"
    )
    costs = staticmethod(count_costs)

    @classmethod
    @override
    def make(cls, materials: Materials) -> Aggregator:
        return make_count(materials)
