"""Audit a count of ballots: outsiders, who face both noises, and either aggregator, who faces the other's."""

from __future__ import annotations

import hashlib
from functools import partial

import numpy as np

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Seeds
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.ready import Ready
from sottovoce.federation.ballots.coding import Ballots
from sottovoce.studies.audit.ballots.booth import Booth
from sottovoce.studies.audit.ballots.hall import Hall
from sottovoce.studies.audit.ballots.outsiders import play_outsiders
from sottovoce.studies.audit.ballots.play import SEATS, CountGames, play_count_games
from sottovoce.studies.audit.ballots.rules import counted_enough, noise_of_cohorts, one_ballot
from sottovoce.studies.audit.options import CONDITIONAL, Options
from sottovoce.studies.audit.rules import sampler
from sottovoce.studies.audit.stage import House
from sottovoce.studies.audit.verdict import Aggregator, Audit, caution, threshold_of
from sottovoce.threats.audit.finding import Finding

__all__ = ["audit_ballots"]


def audit_ballots(
    experiment: Experiment, house: House, ready: Ready, options: Options, base: int, checks: list[Finding]
) -> Audit:
    """Play games against a count of ballots and return what they show; `checks` are findings that there are already.

    Each aggregator gets half of what may go wrong, so that the larger of their bounds holds with the confidence asked.
    """
    plan, hall = house.plan, _hall(house, ready, base)
    alpha, delta = 1 - options.confidence, plan.request.delta
    games = _games(hall, options, base)
    tests = [*sampler(ready.server, base), one_ballot(hall, base), counted_enough(hall, base), *games.findings()]
    tests += noise_of_cohorts(hall, rounds=_affordable(hall, plan.shares.cap, 2.0), seed=base)
    rates = alpha / 4, min(alpha / 4, CONDITIONAL / 2)
    for view in games.views:
        tests += view.bounds(plan.epsilon_server, delta, *rates)
    rounds = _affordable(hall, round(plan.expected_cohort), 15.0)
    outsider, found = play_outsiders(experiment, hall, ready, options, base, rounds)
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


def _hall(house: House, ready: Ready, base: int) -> Hall:
    coding = ready.coding
    if not isinstance(coding, Ballots):
        raise InputError("a run without ballots has no count to audit")
    terms = house.knowledge.ballot
    if terms is None:
        return Hall(house, coding.form, None)
    secret = hashlib.sha256(str(base).encode()).digest()
    return Hall(house, coding.form, Booth(terms, Seeds(ready.protection.parts.seeds.seed), secret))


def _games(hall: Hall, options: Options, base: int) -> CountGames:
    rounds = _affordable(hall, SEATS, 8.0 if options.quick else 20.0)
    most = hall.plan.max_participations
    games = options.games or int(np.clip(rounds // most, 2 if options.quick else 6, 2000))
    tell = partial(options.tell, "games against leader and helper")
    return play_count_games(hall, games=games + games % 2, seed=base, tell=tell)


def _bounds(
    games: CountGames, tests: list[Finding], delta: float, alpha: float, conditional_alpha: float
) -> tuple[tuple[Aggregator, ...], str]:
    """Return the larger valid lower bound of either aggregator, and what they assume."""
    limit = threshold_of(tests)
    doubtful = [test.name for test in tests if test.p_value < limit and ("shape" in test.name or "repeat" in test.name)]
    found = []
    for view in games.views:
        exact = view.exact(delta, alpha)
        conditional = 0.0 if doubtful else view.conditional(delta, conditional_alpha)
        found.append(Aggregator(view.name, max(exact, conditional), exact))
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


def _affordable(hall: Hall, size: int, seconds: float) -> int:
    """Return about how many rounds of so many clients fit into so many seconds of one core."""
    each = 1.2e-4 + 2e-9 * hall.length
    if hall.booth is not None:
        each += 5e-4 + 3e-7 * hall.length  # signatures, seals and transfers
    return int(seconds / (size * each + 3e-7 * hall.length + 1e-8 * hall.house.scheme.dim + 1e-3))
