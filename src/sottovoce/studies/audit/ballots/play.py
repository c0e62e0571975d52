"""Play the games of leader and helper: a canary is counted in all rounds that a client may be in, or in none.

Everybody else in a game is a canary too. Their ballots are random and known to both aggregators, and half of them stay
out: each is one more measurement of what a client adds. The size of a cohort does not matter, because the noise does
not depend on it; `rules` tests that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.streams import Seeds
from sottovoce.federation.aggregation.ballots.coding import Ballots
from sottovoce.studies.audit.ballots.federation import AuditSession, BallotFederation
from sottovoce.studies.audit.ballots.observation import Mixed, Voters
from sottovoce.studies.audit.ballots.transcripts import Transcripts
from sottovoce.studies.audit.ballots.views import AggregatorView, hidden_variance, released_variance
from sottovoce.studies.audit.canaries import Canary
from sottovoce.studies.audit.options import number
from sottovoce.studies.audit.server_play import threshold_of_games
from sottovoce.threats.audit.finding import AuditFinding, checked
from sottovoce.threats.audit.noise import NoiseSample, echo, repetition

SEATS = 16  # clients of a game
_ON_DISK = 2  # games in which an ideal count keeps the helper's account on disk
_KEPT_GAMES, _KEPT_ROUNDS = 2, 2  # whose noise is compared with each other
_LONGEST = 20_000  # values of a kept vector
_FORMS: Final[tuple[Literal["plus", "minus", "signs"], ...]] = ("plus", "minus", "signs")

Progress = Callable[[int, int], None]


@dataclass
class CountGames:
    """What both aggregators saw of all games, and what was to be seen by anybody."""

    leader: AggregatorView
    helper: AggregatorView
    released: NoiseSample
    transcripts: Transcripts
    vectors: list[tuple[str, NDArray[np.float64]]] = field(default_factory=list)
    whole: NDArray[np.float64] | None = None  # the noise of both aggregators in one round, one after the other
    failures: list[str] = field(default_factory=list)
    unpaid: list[str] = field(default_factory=list)

    @property
    def views(self) -> tuple[AggregatorView, AggregatorView]:
        """Return the view of either aggregator."""
        return self.leader, self.helper

    @property
    def games(self) -> int:
        """Count the games."""
        return self.leader.games

    def findings(self) -> list[AuditFinding]:
        """Test the noise, the votes, what each side sees of the protocol, and the order of charges and opening."""
        found = [*self.leader.findings(), *self.helper.findings()]
        found += self.released.findings("released sum", "the noise of both aggregators in a released sum")
        stddev = self.leader.stddev
        if len(self.vectors) > 1:
            labels, vectors = zip(*self.vectors, strict=True)
            found.append(
                repetition("repeated noise", np.stack(vectors), [stddev] * len(labels), labels, what="the noise")
            )
        if self.whole is not None:
            what = "a stretch of the noise of one aggregator, or of one and then the other,"
            found.append(echo("repeated stretch", self.whole, stddev, what=what))
        found += self.transcripts.findings()
        for name in ("leader", "helper"):
            late = self.unpaid.count(name)
            found.append(
                checked(
                    f"charged before opened, {name}",
                    not late,
                    f"the votes of {late} rounds were opened before the account of the {name} was charged",
                )
            )
        reason = self.failures[0] if self.failures else ""
        found.append(
            checked("games played", not self.failures, f"{len(self.failures)} games could not be played: {reason}")
        )
        return found


@dataclass(frozen=True)
class _BallotSeating:
    """Who plays what in a game: `own` is the canary that it is about."""

    own: int
    canaries: dict[int, Canary]
    present: frozenset[int]

    @property
    def cohort(self) -> list[int]:
        """Return everybody, in order."""
        return sorted(self.canaries)

    def ballots(self, length: int) -> NDArray[np.float64]:
        """Return the votes of all of them, in order."""
        return np.stack([self.canaries[client].votes(length) for client in self.cohort]).astype(np.float64)


def play_count_games(
    ballot_federation: BallotFederation, *, games: int, seed: int, tell: Progress = lambda done, total: None
) -> CountGames:
    """Play an even number of games, half of them with the canary; `seed` decides everything."""
    plan = ballot_federation.plan
    variance, rounds = hidden_variance(plan), plan.max_participations
    mu = math.sqrt(ballot_federation.length / variance * rounds)
    threshold = threshold_of_games(mu, max(1, games // 2))
    leader, helper = (
        AggregatorView(name, other, ballot_federation.length, rounds, threshold, NoiseSample(variance))
        for name, other in (("leader", "helper"), ("helper", "leader"))
    )
    evidence = CountGames(
        leader,
        helper,
        NoiseSample(released_variance(plan)),
        Transcripts(ballot_federation.length, ballot_federation.coins),
    )
    for game in range(games):
        seeds = Seeds(seed + 1 + game)
        keeps = ballot_federation.pair is not None or game < _ON_DISK
        with _folder(keeps) as folder, ballot_federation.session(Mixed.of(seeds), folder) as session:
            _play(evidence, session, game)
        tell(game + 1, games)
    _swap(ballot_federation, evidence, Seeds(seed + 1))
    return evidence


@contextmanager
def _folder(wanted: bool) -> Iterator[Path | None]:
    """Make a folder that is gone afterwards, if one is wanted."""
    if not wanted:
        yield None
        return
    with TemporaryDirectory() as folder:
        yield Path(folder)


def _seat(ballot_federation: BallotFederation, game: int) -> _BallotSeating:
    """Return who plays what; the cohorts of successive games go round all clients."""
    clients = ballot_federation.federation.clients
    size = min(clients, SEATS)
    ring = [(game * size + index) % clients for index in range(size)]
    others = ring[1:]
    there = others[::2] if len(others) >= 4 else others  # two ballots are needed for a sum
    own = Canary(ring[0], _FORMS[game // 2 % len(_FORMS)])
    canaries = {client: Canary(1 + game * size + client, "signs") for client in others}
    return _BallotSeating(
        ring[0], {ring[0]: own, **canaries}, frozenset(there) | ({ring[0]} if game % 2 == 0 else set())
    )


def _play(evidence: CountGames, session: AuditSession, game: int) -> None:
    ballot_federation, seating = session.ballot_federation, _seat(session.ballot_federation, game)
    coding, cohort = ballot_federation.coding(session.owners), seating.cohort
    ballots = seating.ballots(ballot_federation.length)
    there = np.array([client in seating.present for client in cohort])
    names = [seating.canaries[client].name for client in cohort]
    voters = Voters(seating.canaries, seating.present)
    scores = {view.name: 0.0 for view in evidence.views}
    for round_ in range(1, ballot_federation.plan.max_participations + 1):
        sight = session.play(round_, cohort, voters, listen=evidence.transcripts.wanting)
        evidence.unpaid += sight.unpaid
        if sight.opened is None:
            evidence.failures.append(sight.total.reason or "nothing was released")
            return
        both = sight.noise(ballot_federation.length).astype(np.float64)
        drawn = _drawn(coding, round_)
        evidence.released.add(both)
        for view in evidence.views:
            unknown = both - drawn[view.name]
            hidden = coding.joint_noise(round_) if coding.coins else drawn[view.other]
            found = view.take(ballots, there, names, unknown, hidden)
            scores[view.name] += float(found[cohort.index(seating.own)])
            twice = bool(coding.coins) and view is evidence.helper  # coins are the noise of both
            if game < _KEPT_GAMES and round_ <= _KEPT_ROUNDS and not twice:
                label = f"that of the {view.other} in game {game + 1}, round {round_}"
                evidence.vectors.append((label, unknown[:_LONGEST]))
        if evidence.whole is None:  # what the leader faces is the helper's noise, and the other way round
            faced = [both] if coding.coins else [both - drawn[name] for name in ("helper", "leader")]
            evidence.whole = np.concatenate([each[:_LONGEST] for each in faced])
        evidence.transcripts.take(sight)
    for view in evidence.views:
        view.end_game(scores[view.name], present=game % 2 == 0)


def _drawn(coding: Ballots, round_: int) -> dict[str, NDArray[np.int64]]:
    """Return the noise that each aggregator knows because it is its own; of coins that both toss neither knows any."""
    if coding.coins:
        return dict.fromkeys(("leader", "helper"), np.zeros(coding.length, np.int64))
    return {"leader": coding.leader_noise(round_), "helper": coding.helper_noise(round_)}


def _swap(ballot_federation: BallotFederation, evidence: CountGames, seeds: Seeds) -> None:
    """Play the first round once more with other secrets of one aggregator, and then of the other.

    Noise that stays as it was does not come from the aggregator's own secrets: whoever else knows what it comes from
    can take it off.
    """
    seating = _seat(ballot_federation, 0)
    voters = Voters(seating.canaries, seating.present)
    strangers = Seeds(number("strangers", seeds.seed)), Seeds(number("more strangers", seeds.seed))
    changed = {
        "helper": Mixed(seeds, strangers[0], leader=seeds, other=strangers[0]),  # a real helper knows seeds that it saw
        "leader": Mixed(seeds, strangers[1], leader=strangers[1], other=seeds),
    }
    for name, owners in changed.items():
        with (
            _folder(ballot_federation.pair is not None) as folder,
            ballot_federation.session(owners, folder) as session,
        ):
            sight = session.play(1, seating.cohort, voters)
        if sight.opened is None:
            evidence.failures.append(sight.total.reason or "nothing was released")
            continue
        coding = ballot_federation.coding(owners)
        known = 0 if coding.coins else coding.leader_noise(1) if name == "helper" else coding.helper_noise(1)
        noise = (sight.noise(ballot_federation.length) - known).astype(np.float64)
        evidence.vectors.append((f"that of the {name} with other secrets", noise[:_LONGEST]))
