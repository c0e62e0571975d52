"""Audit a configuration: attack its own guarantee by canaries in the real pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sottovoce.assembly.stages import TRAINING, ServerSide, stages
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.privacy import PrivacyPlan
from sottovoce.studies.audit.ballots.audit import audit_ballots
from sottovoce.studies.audit.federation import AuditFederation, make_federation
from sottovoce.studies.audit.one_run import Told, play_still, play_training
from sottovoce.studies.audit.options import CONDITIONAL, CONFIDENCE, Options, number, ready_to_play
from sottovoce.studies.audit.outsider import Outsider, Trace, canaries_of, coins
from sottovoce.studies.audit.presence import presence
from sottovoce.studies.audit.published import published
from sottovoce.studies.audit.records import check_folder, read_experiment
from sottovoce.studies.audit.rules import each_share, released_noise, sampler, survivors
from sottovoce.studies.audit.runs import play_runs, runs_of
from sottovoce.studies.audit.server_games import ServerGames, claim
from sottovoce.studies.audit.server_play import Player, play_server_games
from sottovoce.studies.audit.sites import real_training, secret_coins
from sottovoce.studies.audit.units import UnitFormulas
from sottovoce.studies.audit.verdict import Audit, caution, threshold_of
from sottovoce.threats.audit.finding import AuditFinding, checked
from sottovoce.threats.audit.noise import NoiseSample

__all__ = ["CONFIDENCE", "Options", "audit", "audit_run"]


_USUAL = Options()


def audit_run(run: Path, options: Options = _USUAL) -> Audit:
    """Audit the configuration of a run folder, and check the folder's own records against it."""
    return audit(read_experiment(run), options, check=partial(check_folder, run))


def audit(
    experiment: Experiment,
    options: Options = _USUAL,
    *,
    check: Callable[[PrivacyPlan], list[AuditFinding]] = lambda plan: [],
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
    federation = make_federation(ready, plan)
    checks += published(experiment, plan, options, base)
    if experiment.protocol.counts_votes:
        return audit_ballots(experiment, federation, ready, options, base, checks)
    alpha = 1 - options.confidence
    games = _server_games(federation, options, base)
    tests = [
        *sampler(ready.server, base),
        survivors(federation, base),
        *games.findings(),
        *_releases(federation, ready, options, base),
    ]
    rates = alpha / 2, min(alpha / 2, CONDITIONAL)
    tests += games.bounds(plan.epsilon_server, plan.request.delta, *rates)
    site = _site_games(federation, ready, options, base, tests) if plan.request.of_sites else None
    outsider, trace = _outsider(experiment, federation, ready, options, base)
    # Everybody answers in these games, unless the file lets clients leave.
    claimed = plan.epsilon if experiment.make_dropout().possible else plan.epsilon_if_all_answer
    tests += [
        *trace.noise.findings("drawn cohorts", "the noise of sums of cohorts that were drawn"),
        *presence(federation, base),
        *checks,
    ]
    lower, guessed = _outsider_lower(outsider, trace, tests, claimed, alpha, base)
    server_lower, told = _lower(games, tests, plan, alpha / 2)
    return Audit(
        epsilon=plan.epsilon,
        epsilon_lower=lower,
        epsilon_server=plan.epsilon_server,
        epsilon_server_lower=server_lower,
        confidence=options.confidence,
        tests=tuple(tests),
        canaries=outsider.canaries,
        games=games.games,
        note=f"{guessed} {told} {caution()}",
        epsilon_site=plan.epsilon_site,
        epsilon_site_lower=None if site is None else _lower(site, tests, plan, alpha / 2)[0],
    )


def _site_games(
    federation: AuditFederation, ready: ServerSide, options: Options, base: int, tests: list[AuditFinding]
) -> ServerGames:
    """Play what is about records and persons alone: real training, coins, and games of another site."""
    plan, alpha = federation.plan, 1 - options.confidence
    tests += real_training(ready.protection.parts, federation.knowledge.scheme, plan, base)
    tests += secret_coins(federation, base)
    site = _server_games(federation, options, base + 1, "site")
    tests += site.bounds(plan.epsilon_member, plan.request.delta, alpha / 2, min(alpha / 2, CONDITIONAL))
    tests.append(checked("site games played", not site.failures, f"{len(site.failures)} games could not be played"))
    return site


def _server_games(federation: AuditFederation, options: Options, base: int, by: Player = "server") -> ServerGames:
    plan = federation.plan
    rounds = _affordable(federation, 8.0 if options.quick else 20.0)
    games = options.games or int(np.clip(rounds // plan.max_participations, 2 if options.quick else 6, 2000))
    tell = partial(options.tell, f"games of the {by}")
    return play_server_games(federation, games=games + games % 2, seed=base, by=by, tell=tell)


def _releases(federation: AuditFederation, ready: ServerSide, options: Options, base: int) -> list[AuditFinding]:
    """Test the noise of every kind of round: of training, of the vote or warm start before, of measurements."""
    rounds = 2 if options.secure else int(np.clip(_affordable(federation, 2.0), 4, 200))
    size = federation.plan.shares.cap
    found = released_noise(federation, "cohort", rounds=rounds, seed=base)
    found += each_share(federation, "training", messages=size * _affordable(federation, 3.0), seed=base)
    if options.secure:  # a session of a vote has one round
        return found
    for name, stage in stages(ready.protection).items():
        if name != TRAINING and stage.plan is not None:
            other = make_federation(stage.server_side(), stage.plan)
            found += released_noise(other, name, rounds=rounds, seed=base, silent=True)
            messages = stage.plan.shares.cap * _affordable(other, 1.0)
            found += each_share(other, name, messages=messages, seed=base, silent=True)
    return found


def _outsider(
    experiment: Experiment, federation: AuditFederation, ready: ServerSide, options: Options, base: int
) -> tuple[Outsider, Trace]:
    """Play runs in which the others stand still and, if there is time, runs in which they train."""
    plan, units = federation.plan, UnitFormulas(federation.plan)
    canaries = canaries_of(units, federation.clients, options.canaries)
    rounds = min(plan.rounds, max(1, _affordable(federation, 15.0 / runs_of(options, canaries))))
    outsider = Outsider(units, rounds)
    trace = Trace(units, NoiseSample(units.variance, discrete=units.discrete), rounds)

    def still(present: NDArray[np.bool_], seeds: Seeds, tell: Told) -> NDArray[np.float64]:
        return play_still(federation, ready, canaries, present, seeds, rounds, trace, tell)

    quiet = replace(options, quick=True) if plan.request.of_sites else options  # real records are checked exactly
    play_runs(outsider, canaries, quiet, base, still, partial(_train, experiment, outsider, options))
    return outsider, trace


def _outsider_lower(
    outsider: Outsider, trace: Trace, tests: list[AuditFinding], claimed: float, alpha: float, seed: int
) -> tuple[float, str]:
    """Test the claim against outsiders; return the larger valid lower bound, and what it assumes."""
    delta = outsider.units.plan.request.delta
    if not trace.present:
        lower, guessed = outsider.finding("epsilon one run", claimed, delta, alpha, seed)
        tests.append(guessed)
        return lower, f"epsilon_lower is exact, from {outsider.played}."
    rate = min(alpha / 2, CONDITIONAL)
    exact, guessed = outsider.finding("epsilon one run", claimed, delta, alpha / 2, seed)
    doubtful = _doubtful(tests)
    tests += [guessed, claim("epsilon canaries", "Gaussian", partial(trace.conditional, delta), claimed, rate)]
    conditional = trace.conditional(delta, rate)
    if doubtful or conditional <= exact:
        why = f"; no Gaussian bound, because of the test of {doubtful[0]}" if doubtful else ""
        return exact, f"epsilon_lower is exact, from {outsider.played}{why}."
    return conditional, (
        "epsilon_lower assumes Gaussian noise, independent in all values and rounds, which the tests of shape and "
        f"repetition did not refute; without that assumption {outsider.played} show {exact:.4g}."
    )


def _train(experiment: Experiment, outsider: Outsider, options: Options, seed: int) -> None:
    """Play a run in which the others train; half of the clients are canaries."""
    ready, plan = ready_to_play(experiment, options, seed)
    parts = ready.protection.parts
    canaries = canaries_of(UnitFormulas(plan), parts.cohort.clients, options.canaries, half=True)
    present = coins(canaries, parts.seeds.adversary.get(Purpose.SETUP))
    tell = partial(options.tell, "a run with training")
    outsider.take(play_training(parts, ready, canaries, present, options.start, tell), present, "with training")


def _lower(games: ServerGames, tests: list[AuditFinding], plan: PrivacyPlan, alpha: float) -> tuple[float, str]:
    """Return the larger valid lower bound of what the games are about, and what it assumes."""
    delta, doubtful = plan.request.delta, _doubtful(tests)
    exact, conditional = games.exact(delta, alpha), games.conditional(delta, min(alpha, CONDITIONAL))
    if doubtful or conditional <= exact:
        why = f"; no Gaussian bound, because of the test of {doubtful[0]}" if doubtful else ""
        return exact, f"{games.against}_lower is exact, from {games.games} games{why}."
    return conditional, (
        f"{games.against}_lower assumes Gaussian noise, independent in all values and rounds, which the tests of shape "
        f"and repetition did not refute; without that assumption {games.games} games show {exact:.4g}."
    )


def _doubtful(tests: list[AuditFinding]) -> list[str]:
    """Return the tests that refute independent Gaussian noise."""
    limit = threshold_of(tests)
    return [test.name for test in tests if test.p_value < limit and ("shape" in test.name or "repeat" in test.name)]


def _affordable(federation: AuditFederation, seconds: float) -> int:
    """Return about how many rounds of games fit into so many seconds of one core."""
    plan = federation.plan
    size = plan.shares.cap
    each = 1.2e-4 + 1e-8 * plan.word_length
    if federation.knowledge.policy is not None:
        each += 2e-4 * size  # keys and masks with everybody else
    return int(seconds / (size * each + 1e-8 * federation.scheme.dim + 1e-3))
