"""Audit a count of ballots: outsiders, who face both noises, and either aggregator, who faces the other's."""

from __future__ import annotations

import hashlib
from functools import partial

import numpy as np

from sottovoce.assembly.stages import ServerSide
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError
from sottovoce.core.streams import Seeds
from sottovoce.federation.aggregation.ballots.coding import Ballots
from sottovoce.studies.audit.ballots.aggregators import AggregatorPair
from sottovoce.studies.audit.ballots.federation import BallotFederation
from sottovoce.studies.audit.ballots.outsiders import play_outsiders
from sottovoce.studies.audit.ballots.play import SEATS, CountGames, play_count_games
from sottovoce.studies.audit.ballots.rules import counted_enough, noise_of_cohorts, one_ballot
from sottovoce.studies.audit.federation import AuditFederation
from sottovoce.studies.audit.options import CONDITIONAL, Options
from sottovoce.studies.audit.rules import sampler
from sottovoce.studies.audit.verdict import AggregatorVerdict, Audit, caution, threshold_of
from sottovoce.threats.audit.finding import AuditFinding


def audit_ballots(
    experiment: Experiment,
    federation: AuditFederation,
    ready: ServerSide,
    options: Options,
    base: int,
    checks: list[AuditFinding],
) -> Audit:
    """Play games against a count of ballots and return what they show; `checks` are findings that there are already.

    Each aggregator gets half of what may go wrong, so that the larger of their bounds holds with the confidence asked.
    """
    plan, ballot_federation = federation.plan, _hall(federation, ready, base)
    alpha, delta = 1 - options.confidence, plan.request.delta
    games = _games(ballot_federation, options, base)
    tests = [
        *sampler(ready.server, base),
        one_ballot(ballot_federation, base),
        counted_enough(ballot_federation, base),
        *games.findings(),
    ]
    tests += noise_of_cohorts(ballot_federation, rounds=_affordable(ballot_federation, plan.shares.cap, 2.0), seed=base)
    rates = alpha / 4, min(alpha / 4, CONDITIONAL / 2)
    for view in games.views:
        tests += view.bounds(plan.epsilon_server, delta, *rates)
    rounds = _affordable(ballot_federation, round(plan.expected_cohort), 15.0)
    outsider, found = play_outsiders(experiment, ballot_federation, ready, options, base, rounds)
    lower, guessed = outsider.finding("epsilon one run", plan.epsilon, delta, alpha, base)
    tests += [*found, guessed, *checks]
    aggregators, told = _bounds(games, tests, delta, *rates)
    return Audit(
        epsilon=plan.epsilon,
        epsilon_lower=lower,
        epsilon_server=plan.epsilon_server,
        epsilon_server_lower=max(each.lower for each in aggregators),
        confidence=options.confidence,
        tests=tuple(tests),
        canaries=outsider.canaries,
        games=games.games,
        note=f"epsilon_lower is exact, from {outsider.played}. {told} {caution()}",
        aggregators=aggregators,
    )


def _hall(federation: AuditFederation, ready: ServerSide, base: int) -> BallotFederation:
    coding = ready.coding
    if not isinstance(coding, Ballots):
        raise InputError("a run without ballots has no count to audit")
    terms = federation.knowledge.ballot
    if terms is None:
        return BallotFederation(federation, coding.form, None)
    secret = hashlib.sha256(str(base).encode()).digest()
    return BallotFederation(
        federation, coding.form, AggregatorPair(terms, Seeds(ready.protection.parts.seeds.seed), secret)
    )


def _games(ballot_federation: BallotFederation, options: Options, base: int) -> CountGames:
    rounds = _affordable(ballot_federation, SEATS, 8.0 if options.quick else 20.0)
    most = ballot_federation.plan.max_participations
    games = options.games or int(np.clip(rounds // most, 2 if options.quick else 6, 2000))
    tell = partial(options.tell, "games against leader and helper")
    return play_count_games(ballot_federation, games=games + games % 2, seed=base, tell=tell)


def _bounds(
    games: CountGames, tests: list[AuditFinding], delta: float, alpha: float, conditional_alpha: float
) -> tuple[tuple[AggregatorVerdict, ...], str]:
    """Return the larger valid lower bound of either aggregator, and what they assume."""
    limit = threshold_of(tests)
    doubtful = [test.name for test in tests if test.p_value < limit and ("shape" in test.name or "repeat" in test.name)]
    found = []
    for view in games.views:
        exact = view.exact(delta, alpha)
        conditional = 0.0 if doubtful else view.conditional(delta, conditional_alpha)
        found.append(AggregatorVerdict(view.name, max(exact, conditional), exact))
    shown = " and ".join(f"{each.exact:.4g} of the {each.name}" for each in found)
    if doubtful:
        told = f"epsilon_server_lower is exact; no Gaussian bound, because of the test of {doubtful[0]}."
    else:
        told = (
            "epsilon_server_lower is the larger one of leader and helper. It assumes Gaussian noise, independent in "
            "all values and rounds, which the tests of shape and repetition did not refute; without that assumption "
            f"{games.games} games show {shown}."
        )
    return tuple(found), told


def _affordable(ballot_federation: BallotFederation, size: int, seconds: float) -> int:
    """Return about how many rounds of so many clients fit into so many seconds of one core."""
    each = 1.2e-4 + 2e-9 * ballot_federation.length
    if ballot_federation.pair is not None:
        each += 5e-4 + 3e-7 * ballot_federation.length  # signatures, seals and transfers
    return int(
        seconds
        / (size * each + 3e-7 * ballot_federation.length + 1e-8 * ballot_federation.federation.scheme.dim + 1e-3)
    )
