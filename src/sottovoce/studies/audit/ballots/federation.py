"""A federation whose ballots are counted: real clients, coding, accounts and noise; ideally or by the real protocol.

A session is a run of some rounds with one set of secrets. With `secure` leader and helper are the state machines of
`secagg.ballots`, in this process, so that what travels between them can be seen; else it is the ideal count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import RunError, SottovoceError
from sottovoce.federation.aggregation.aggregator import Aggregator, Total
from sottovoce.federation.aggregation.ballots.account import HELPER_LEDGER, HelperAccount
from sottovoce.federation.aggregation.ballots.coding import BallotForm, Ballots
from sottovoce.federation.aggregation.ballots.count import IdealCount
from sottovoce.federation.aggregation.secure import SimulatedKeys
from sottovoce.federation.coding import Terms
from sottovoce.federation.engine import drive
from sottovoce.federation.host import Host, Malice
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.ledger import verify
from sottovoce.schemes.packed_signs import Signs
from sottovoce.studies.audit.ballots.aggregators import AggregatorPair, HeardCount
from sottovoce.studies.audit.ballots.observation import Casting, Mixed, SumOpening, Voters
from sottovoce.studies.audit.federation import AuditEngine, AuditFederation, Still, records_of_nothing

Votes = NDArray[np.int64]


@dataclass
class CountSight:
    """What was to be seen of one round of a count."""

    total: Total
    cast: dict[int, Signs]  # the ballots of those that sent one
    opened: Votes | None = None  # the votes with both noises
    unpaid: list[str] = field(default_factory=list)  # aggregators that had not charged the round when it was opened
    masked: dict[int, Signs] = field(default_factory=dict)  # real counts: ballots as the leader sees them
    wire: list[tuple[str, bytes, bytes]] = field(default_factory=list)  # real counts: request, payload, answer

    def noise(self, length: int) -> Votes:
        """Return what was opened beside the votes that were cast: the noise of both aggregators."""
        if self.opened is None:
            raise RunError("nothing was opened")
        return self.opened - sum_of(list(self.cast.values()), length)


def sum_of(ballots: Sequence[Signs], length: int) -> Votes:
    """Return the sum of the votes of packed ballots, the slow and obvious way."""
    if not ballots:
        return np.zeros(length, np.int64)
    ones = np.zeros(length, np.int64)
    for start in range(0, len(ballots), 256):
        ones += np.unpackbits(np.stack(ballots[start : start + 256]), axis=1, count=length, bitorder="little").sum(
            axis=0, dtype=np.int64
        )
    return 2 * ones - len(ballots)


@dataclass(frozen=True)
class BallotFederation:
    """Everything that the games of an audit have in common."""

    federation: AuditFederation
    form: BallotForm
    pair: AggregatorPair | None  # None: the count is ideal

    @property
    def plan(self) -> PrivacyPlan:
        """Return the plan."""
        return self.federation.plan

    @property
    def length(self) -> int:
        """Return the votes of a ballot."""
        return self.plan.request.length

    @property
    def coins(self) -> tuple[int, ...]:
        """Return the coins that both aggregators toss together."""
        return () if self.plan.grid is None else self.plan.grid.coins

    def coding(self, owners: Mixed) -> Ballots:
        """Return how an aggregator that knows these secrets draws its noise."""
        return Ballots(self.plan, owners, self.form)

    @contextmanager
    def session(self, owners: Mixed, folder: Path | None) -> Iterator[AuditSession]:
        """Begin a run with these secrets; the helper keeps its account in a folder.

        Without a folder an ideal count keeps none. A real one needs it.
        """
        session = AuditSession(self, owners, None if folder is None else folder / HELPER_LEDGER)
        opening = SumOpening(self.plan, owners, self.form, session.take)
        with ExitStack() as stack:
            if self.pair is None:
                count = IdealCount(opening)
                if folder is not None:
                    stack.enter_context(count.counting(folder))
                session.count = count
            elif folder is None:
                raise RunError("a real count needs a folder for the helper's account")
            else:
                session.count = self._heard(self.pair, opening, owners)
                self.pair.account = stack.enter_context(HelperAccount.open(folder, self.plan))
                self.pair.watch = session
            yield session

    def _heard(self, pair: AggregatorPair, opening: SumOpening, owners: Mixed) -> Aggregator:
        pair.registry = SimulatedKeys(owners.clients, self.federation.clients)
        pair.coding = self.coding(owners)
        count = HeardCount(opening, pair.terms, pair.registry, owners.clients)
        count.hear(pair)
        return count


@dataclass
class AuditSession:
    """Some rounds with one set of secrets."""

    ballot_federation: BallotFederation
    owners: Mixed
    ledger: Path | None
    count: Aggregator | None = None
    _opened: Votes | None = None
    _paid: bool = False
    _round: int = 0
    _unpaid: list[str] = field(default_factory=list)

    def play(
        self, round_: int, cohort: Sequence[int], voters: Voters | None = None, *, listen: bool = False
    ) -> CountSight:
        """Play one round with a cohort that is given; who is no canary trains on nothing and votes by its coins.

        With `listen` what travels in a real count is kept.
        """
        if self.count is None:
            raise RunError("the session has not begun")
        federation, pair = self.ballot_federation.federation, self.ballot_federation.pair
        self._opened, self._paid, self._round, self._unpaid = None, False, round_, []
        casting = Casting(self.ballot_federation.plan, self.owners, self.ballot_federation.form)
        messages: dict[int, bytes] = {}
        marked = frozenset() if voters is None else frozenset(voters.canaries).intersection(cohort)
        engine = AuditEngine(self._host(casting, voters), marked, frozenset(), messages.__setitem__)
        terms = Terms(0, self.ballot_federation.plan.request.clip_norm)
        if pair is not None:
            pair.asked.clear()
            pair.listens = listen
        try:
            down = federation.down(round_) + terms.pack()
            total = drive(engine, self.count.collect(round_, list(cohort), down, terms, self._spend))
        except SottovoceError as error:  # refused, as in a run that would end here
            total = Total(reason=str(error))
        cast = casting.cast
        if voters is not None:
            cast |= {
                client: voters.canaries[client].message(self.ballot_federation.plan, 0.0)
                for client in voters.present.intersection(marked)
            }
        sight = CountSight(total, cast, self._opened, self._unpaid)
        if pair is not None and listen:
            sight.wire = list(pair.asked)
            size = (self.ballot_federation.length + 7) // 8
            sight.masked = {client: np.frombuffer(message, np.uint8, size) for client, message in messages.items()}
        return sight

    def take(self, votes: Votes) -> None:
        """Take in the votes when they are opened."""
        self._opened = votes
        if self.ballot_federation.pair is None:  # of a real count the leader sees them as soon as the helper answers
            self.check_leader()
            self.check_helper()

    def check_leader(self) -> None:
        """Note whether the leader's account was charged by now."""
        if not self._paid:
            self._unpaid.append("leader")

    def check_helper(self) -> None:
        """Note whether the helper's account was charged by now, on disk."""
        if self.ledger is not None and self._round not in verify(self.ledger).charged:
            self._unpaid.append("helper")

    def _spend(self) -> None:
        self._paid = True

    def _host(self, casting: Casting, voters: Voters | None) -> Host:
        """Return fresh clients, with these secrets."""
        federation, plan = self.ballot_federation.federation, self.ballot_federation.plan
        keys = SimulatedKeys(self.owners.clients, federation.clients)
        still = Still(1.0 if plan.request.form == "signs" else 0.0)
        malice = None if voters is None else Malice(voters, records_of_nothing, lambda: still)
        knowledge = replace(federation.knowledge, coding=casting, keys=keys)
        return Host(knowledge, still, records_of_nothing, self.owners, {}, malice)
