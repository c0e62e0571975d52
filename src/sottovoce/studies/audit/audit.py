"""Audit a configuration: attack its own guarantee by canaries in the real pipeline."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.ready import Ready, measuring, voting, warming
from sottovoce.privacy import PrivacyPlan
from sottovoce.studies.audit.ballots.audit import audit_ballots
from sottovoce.studies.audit.one_run import Told, play_still, play_training
from sottovoce.studies.audit.options import CONDITIONAL, CONFIDENCE, Options, number, ready_to_play
from sottovoce.studies.audit.outsider import Outsider, canaries_of, coins
from sottovoce.studies.audit.presence import presence
from sottovoce.studies.audit.published import published
from sottovoce.studies.audit.records import check_folder, read_experiment
from sottovoce.studies.audit.rules import each_share, released_noise, sampler, survivors
from sottovoce.studies.audit.runs import play_runs, runs_of
from sottovoce.studies.audit.server_games import ServerGames
from sottovoce.studies.audit.server_play import play_server_games
from sottovoce.studies.audit.stage import House, furnish
from sottovoce.studies.audit.units import Units
from sottovoce.studies.audit.verdict import Audit, caution, threshold_of
from sottovoce.threats.audit.finding import Finding
from sottovoce.threats.audit.sample import NoiseSample

__all__ = ["CONFIDENCE", "Options", "audit", "audit_run"]


_USUAL = Options()


def audit_run(run: Path, options: Options = _USUAL) -> Audit:
    """Audit the configuration of a run folder, and check the folder's own records against it."""
    return audit(read_experiment(run), options, check=partial(check_folder, run))


def audit(
    experiment: Experiment,
    options: Options = _USUAL,
    *,
    check: Callable[[PrivacyPlan], list[Finding]] = lambda plan: [],
) -> Audit:
    """Play games against an experiment's guarantee and return what they show; `check` adds findings of its own.

    Everything follows from the experiment and `options.seed`: the same audit finds the same.
    """
    if experiment.privacy is None:
        raise InputError(
            "the experiment is not private, so there is no epsilon to audit; add a [privacy] table to it, for example "
            "with --set privacy.epsilon=8"
        )
    base = number("audit", experiment.experiment.seed, options.seed)
    ready, plan = ready_to_play(experiment, options)
    checks = check(plan)
    house = furnish(ready, plan)
    checks += published(experiment, plan, options, base)
    if experiment.counts_ballots:
        return audit_ballots(experiment, house, ready, options, base, checks)
    alpha = 1 - options.confidence
    games = _server_games(house, options, base)
    tests = [
        *sampler(ready.server, base),
        survivors(house, base),
        *games.findings(),
        *_releases(house, ready, options, base),
    ]
    tests += games.bounds(plan.epsilon_server, plan.request.delta, alpha / 2, min(alpha / 2, CONDITIONAL))
    outsider, found = _outsider(experiment, house, ready, options, base)
    # Everybody answers in these games, unless the file lets clients leave.
    claimed = plan.epsilon if experiment.make_dropout().possible else plan.epsilon_if_all_answer
    lower, guessed = outsider.finding("epsilon one run", claimed, plan.request.delta, alpha, base)
    tests += [*found, *presence(house, base), guessed, *checks]
    server_lower, told = _server_lower(games, tests, plan, alpha / 2)
    return Audit(
        epsilon=plan.epsilon,
        epsilon_lower=lower,
        epsilon_server=plan.epsilon_server,
        epsilon_server_lower=server_lower,
        confidence=options.confidence,
        tests=tuple(tests),
        canaries=outsider.canaries,
        games=games.games,
        note=f"epsilon_lower is exact, from {outsider.played}. {told} {caution()}",
    )


def _server_games(house: House, options: Options, base: int) -> ServerGames:
    plan = house.plan
    rounds = _affordable(house, 8.0 if options.quick else 20.0)
    games = options.games or int(np.clip(rounds // plan.max_participations, 2 if options.quick else 6, 2000))
    tell = partial(options.tell, "games against the server")
    return play_server_games(house, games=games + games % 2, seed=base, tell=tell)


def _releases(house: House, ready: Ready, options: Options, base: int) -> list[Finding]:
    """Test the noise of every kind of round: of training, of the vote or warm start before, of measurements."""
    rounds = 2 if options.secure else int(np.clip(_affordable(house, 2.0), 4, 200))
    size = house.plan.shares.cap
    found = released_noise(house, "cohort", rounds=rounds, seed=base)
    found += each_share(house, "training", messages=size * _affordable(house, 3.0), seed=base)
    if options.secure:  # a session of a vote has one round
        return found
    vote = ready.protection.vote_plan
    elected = None if vote is None else voting(ready, vote)
    for name, stage in {"vote": elected, "warm start": warming(ready), "measurement": measuring(ready)}.items():
        if stage is not None and stage.plan is not None:
            other = furnish(stage, stage.plan)
            found += released_noise(other, name, rounds=rounds, seed=base, silent=True)
            messages = stage.plan.shares.cap * _affordable(other, 1.0)
            found += each_share(other, name, messages=messages, seed=base, silent=True)
    return found


def _outsider(
    experiment: Experiment, house: House, ready: Ready, options: Options, base: int
) -> tuple[Outsider, list[Finding]]:
    """Play runs in which the others stand still and, if there is time, runs in which they train."""
    plan, units = house.plan, Units(house.plan)
    canaries = canaries_of(units, house.clients, options.canaries)
    rounds = min(plan.rounds, max(1, _affordable(house, 15.0 / runs_of(options, canaries))))
    outsider = Outsider(units, rounds)
    noise = NoiseSample(units.variance, discrete=units.discrete)

    def still(present: NDArray[np.bool_], seeds: Seeds, tell: Told) -> NDArray[np.float64]:
        return play_still(house, ready, canaries, present, seeds, rounds, noise, tell)

    play_runs(outsider, canaries, options, base, still, partial(_train, experiment, outsider, options))
    return outsider, noise.findings("drawn cohorts", "the noise of sums of cohorts that were drawn")


def _train(experiment: Experiment, outsider: Outsider, options: Options, seed: int) -> None:
    """Play a run in which the others train; half of the clients are canaries."""
    ready, plan = ready_to_play(experiment, options, seed)
    parts = ready.protection.parts
    canaries = canaries_of(Units(plan), parts.cohort.clients, options.canaries, half=True)
    present = coins(canaries, parts.seeds.adversary.get(Purpose.SETUP))
    tell = partial(options.tell, "a run with training")
    outsider.take(play_training(parts, ready, canaries, present, options.start, tell), present, "with training")


def _server_lower(games: ServerGames, tests: list[Finding], plan: PrivacyPlan, alpha: float) -> tuple[float, str]:
    """Return the larger valid lower bound of epsilon_server, and what it assumes."""
    delta, limit = plan.request.delta, threshold_of(tests)
    exact, conditional = games.exact(delta, alpha), games.conditional(delta, min(alpha, CONDITIONAL))
    doubtful = [test.name for test in tests if test.p_value < limit and ("shape" in test.name or "repeat" in test.name)]
    if doubtful or conditional <= exact:
        why = f"; no Gaussian bound, because of the test of {doubtful[0]}" if doubtful else ""
        return exact, f"epsilon_server_lower is exact, from {games.games} games{why}."
    return conditional, (
        f"epsilon_server_lower assumes Gaussian noise, independent in all values and rounds, which the tests of shape "
        f"and repetition did not refute; without that assumption {games.games} games show {exact:.4g}."
    )


def _affordable(house: House, seconds: float) -> int:
    """Return about how many rounds of games fit into so many seconds of one core."""
    plan = house.plan
    size = plan.shares.cap
    each = 1.2e-4 + 1e-8 * plan.word_length
    if house.knowledge.policy is not None:
        each += 2e-4 * size  # keys and masks with everybody else
    return int(seconds / (size * each + 1e-8 * house.scheme.dim + 1e-3))
