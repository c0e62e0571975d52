"""Play the one-run game of the outsider with ballots: each canary in or out by a coin, drawn by the real sampler.

The outsider sees every opened sum, with both noises, and not who was sampled. It scores canaries as `outsider` has it,
along ballots of random bits, which hardly disturb each other.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from sottovoce.assembly.stages import ServerSide
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.federation.aggregation.ballots.count import IdealCount, RealCount, counting
from sottovoce.federation.engine import drive
from sottovoce.federation.round import server_round
from sottovoce.studies.audit.ballots.federation import BallotFederation
from sottovoce.studies.audit.ballots.observation import Mixed, SumOpening, Voters
from sottovoce.studies.audit.ballots.views import released_variance
from sottovoce.studies.audit.canaries import Canary
from sottovoce.studies.audit.one_run import AuditAccount, Marked, Told
from sottovoce.studies.audit.options import Options, ready_to_play
from sottovoce.studies.audit.outsider import MOST_SIGNS, Outsider, coins
from sottovoce.studies.audit.runs import play_runs, runs_of
from sottovoce.studies.audit.units import UnitFormulas
from sottovoce.threats.audit.finding import AuditFinding
from sottovoce.threats.audit.noise import NoiseSample

_BLOCK = 1 << 20  # votes that are multiplied at once

Scores = NDArray[np.float64]


class _Trace:
    """The scores of canaries that vote, as sums come in."""

    def __init__(self, outsider: Outsider, canaries: dict[int, Canary], length: int) -> None:
        self._outsider = outsider
        self._length = length
        self._ballots = np.stack([canary.votes(length) for canary in canaries.values()])
        self.scores: Scores = np.zeros(len(canaries))

    def take(self, opened: NDArray[np.int64]) -> None:
        """Take in the opened votes of one round."""
        votes = opened.astype(np.float64)
        step = max(1, _BLOCK // self._length)
        blocks = [self._ballots[start : start + step] for start in range(0, len(self._ballots), step)]
        along = np.concatenate([block.astype(np.float64) @ votes for block in blocks])
        self.scores += self._outsider.likelihood(along / math.sqrt(self._length))


def play_outsiders(
    experiment: Experiment,
    ballot_federation: BallotFederation,
    ready: ServerSide,
    options: Options,
    base: int,
    most_rounds: int,
) -> tuple[Outsider, list[AuditFinding]]:
    """Play runs in which nobody but canaries votes and, if there is time, runs in which half of the clients train."""
    plan = ballot_federation.plan
    canaries = _canaries(ballot_federation.length, ballot_federation.federation.clients, options.canaries)
    outsider = Outsider(UnitFormulas(plan), min(plan.rounds, max(1, most_rounds // runs_of(options, canaries))))
    noise = NoiseSample(released_variance(plan))

    def still(present: NDArray[np.bool_], seeds: Seeds, tell: Told) -> Scores:
        return _still(ballot_federation, ready, canaries, present, seeds, outsider, noise, tell)

    play_runs(outsider, canaries, options, base, still, partial(_train, experiment, outsider, options))
    return outsider, noise.findings("drawn cohorts", "the noise of sums of cohorts that were drawn")


def _canaries(length: int, clients: int, wanted: int | None) -> dict[int, Canary]:
    """Return canaries with random ballots, spread over the clients."""
    most = min(clients, max(2, MOST_SIGNS // length))
    count = most if wanted is None else wanted
    if not 2 <= count <= most:
        raise InputError(f"canaries must be from 2 to {most} with {clients} clients and {length} values, got {count}")
    numbers = np.linspace(0, clients - 1, count).round().astype(int).tolist()
    return {client: Canary(index, "signs") for index, client in enumerate(numbers)}


def _voters(canaries: dict[int, Canary], present: NDArray[np.bool_]) -> Voters:
    return Voters(canaries, frozenset(client for client, coin in zip(canaries, present, strict=True) if coin))


def _still(
    ballot_federation: BallotFederation,
    ready: ServerSide,
    canaries: dict[int, Canary],
    present: NDArray[np.bool_],
    seeds: Seeds,
    outsider: Outsider,
    noise: NoiseSample,
    tell: Told,
) -> Scores:
    """Play the rounds of a run without training; cohorts are drawn by the server's own sampler."""
    trace, voters = _Trace(outsider, canaries, ballot_federation.length), _voters(canaries, present)
    server = replace(ready.server, streams=seeds.server)
    state = server.init(ready.protection.parts.start)
    with TemporaryDirectory() as folder:
        account = None if ballot_federation.pair is None else Path(folder)
        with ballot_federation.session(Mixed.of(seeds), account) as session:
            for round_ in range(1, outsider.rounds + 1):
                cohort, drawn = server.draw(state, round_)
                state = {**state, **drawn}
                sight = session.play(round_, cohort, voters)
                tell(round_, outsider.rounds)
                if sight.opened is not None:
                    trace.take(sight.opened)
                    noise.add(sight.noise(ballot_federation.length))
    return trace.scores


def _train(experiment: Experiment, outsider: Outsider, options: Options, seed: int) -> None:
    """Play a whole run in which everybody but the canaries trains; half of the clients are canaries."""
    ready, plan = ready_to_play(experiment, options, seed)
    parts, aggregator = ready.protection.parts, ready.server.aggregator
    if not isinstance(aggregator, IdealCount | RealCount):
        raise InputError("a run without ballots has no count to audit")
    clients = parts.cohort.clients
    wanted = max(2, min(clients // 2, options.canaries or clients, MOST_SIGNS // plan.request.length))
    canaries = _canaries(plan.request.length, clients, wanted)
    present = coins(canaries, parts.seeds.adversary.get(Purpose.SETUP))
    trace = _Trace(Outsider(UnitFormulas(plan), plan.rounds), canaries, plan.request.length)
    coding = aggregator.coding
    aggregator.coding = SumOpening(coding.plan, coding.seeds, coding.form, trace.take)
    with options.start(parts, _voters(canaries, present)) as (inner, _), TemporaryDirectory() as folder:
        engine = Marked(inner, frozenset(canaries))
        ready.enrol(engine)
        # Canaries are noise to the model: a round that breaks it is thrown away, and the run goes on.
        server = replace(ready.server.with_account(AuditAccount()), goes_on=True)
        state = server.init(parts.start)
        with counting(aggregator, Path(folder)):
            for round_ in range(1, plan.rounds + 1):
                state = drive(engine, server_round(server, state, round_)).state
                options.tell("a run with training", round_, plan.rounds)
    outsider.take(trace.scores, present, "with training")
