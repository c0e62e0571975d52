"""Runs for the game of the outsider: with the real training of everybody else, or with others that stand still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sottovoce.assembly.parts import Parts
from sottovoce.assembly.stages import VOTE, ServerSide, stages
from sottovoce.core.errors import InputError
from sottovoce.core.streams import Seeds
from sottovoce.federation.engine import Engine, Evaluator, Reply, Request, drive
from sottovoce.federation.engines.kinds import ENGINES
from sottovoce.federation.round import server_round
from sottovoce.federation.stages.vote import hold_vote
from sottovoce.federation.wrappers.base import Around
from sottovoce.federation.wrappers.behaviour import Behaviour
from sottovoce.federation.wrappers.leaving import Leaving
from sottovoce.studies.audit.canaries import Canaries, Canary
from sottovoce.studies.audit.federation import AuditFederation
from sottovoce.studies.audit.outsider import Outsider, Trace
from sottovoce.studies.audit.units import UnitFormulas

Start = Callable[[Parts, Behaviour | None], AbstractContextManager[tuple[Engine, Evaluator]]]
Told = Callable[[int, int], None]


@dataclass
class Marked(Around):
    """An engine some of whose clients are canaries."""

    canaries: frozenset[int]

    def send(self, request: Request) -> Reply:
        """Deliver a request; the canaries of it behave as such, but not in a vote before round 1."""
        marked = self.canaries.intersection(request.payloads) if request.round else frozenset()
        return self.engine.send(request._replace(malicious=marked))


class AuditAccount:
    """An account that pays for everything: what an audit releases stays in it."""

    def drawn(self, round_: int, commitment: str) -> None:
        """Do nothing."""

    def charge(self, round_: int) -> None:
        """Do nothing."""


@contextmanager
def start_local(parts: Parts, canaries: Behaviour | None) -> Iterator[tuple[Engine, Evaluator]]:
    """Start the engine of the experiment, with canaries among its clients, and what computes on the data."""
    experiment = parts.experiment
    blueprint = replace(parts.blueprint(), behaviour=canaries)
    with ENGINES[experiment.engine.name].start(experiment.engine, blueprint, parts.arrays()) as workers:
        yield Leaving(workers, experiment.make_dropout(), parts.seeds.world), workers


def play_training(
    parts: Parts, ready: ServerSide, canaries: dict[int, Canary], present: NDArray[np.bool_], start: Start, tell: Told
) -> NDArray[np.float64]:
    """Play a whole run in which everybody but the canaries trains; return the canaries' scores."""
    plan = ready.plan
    if plan is None:
        raise InputError("a run that is not private has no epsilon to audit")
    units = UnitFormulas(plan)
    outsider = Outsider(units, plan.rounds)
    scores = np.zeros(len(canaries))
    behaviour = _behaviour(canaries, present)
    with start(parts, behaviour) as (inner, _):
        engine = Marked(inner, frozenset(canaries))
        account = AuditAccount()
        ready = _elected(ready, engine, account)
        ready.enrol(engine)
        # Canaries are noise to the model: a round that breaks it is thrown away, and the run goes on.
        server = replace(ready.server.with_account(account), goes_on=True)
        state = server.init(parts.start)
        for round_ in range(1, plan.rounds + 1):
            clip_norm = float(state["clip_norm"])
            result = drive(engine, server_round(server, state, round_))
            state = result.state
            if result.total.values is not None:
                scores += outsider.increment(canaries, units.of_release(result.total.values, clip_norm))
            tell(round_, plan.rounds)
    return scores


def _elected(ready: ServerSide, engine: Engine, account: AuditAccount) -> ServerSide:
    """Let the clients vote for the coordinates, if these are theirs to choose."""
    vote = stages(ready.protection).get(VOTE)
    if vote is None:
        return ready
    side = vote.server_side()
    side.enrol(engine)
    result = drive(engine, hold_vote(side.server.with_account(account), vote.parts.start))
    return ready.with_importance(result.state["importance"])


def play_still(
    federation: AuditFederation,
    ready: ServerSide,
    canaries: dict[int, Canary],
    present: NDArray[np.bool_],
    seeds: Seeds,
    rounds: int,
    trace: Trace,
    tell: Told,
) -> NDArray[np.float64]:
    """Play the rounds of a run in which nobody but the canaries says anything; return the canaries' scores.

    Cohorts are drawn by the server's own sampler. `trace` takes in what was
    released along the canaries and beside them.
    """
    units = UnitFormulas(federation.plan)
    outsider = Outsider(units, rounds)
    scores = np.zeros(len(canaries))
    behaviour = _behaviour(canaries, present)
    server = replace(ready.server, streams=seeds.server)
    state = server.init(ready.protection.parts.start)
    for round_ in range(1, rounds + 1):
        cohort, drawn = server.draw(state, round_)
        clip_norm = float(state["clip_norm"])
        sight = federation.play(seeds, round_, cohort, canaries=behaviour, clip_norm=clip_norm)
        state = {**state, **drawn}
        tell(round_, rounds)
        if sight.total.values is None:
            continue
        state["clip_norm"] = np.array(sight.total.clip_norm, np.float32)
        released = units.of_release(sight.total.values, clip_norm)
        scores += outsider.increment(canaries, released)
        trace.take(canaries, behaviour.present, released)
        if units.form == "floats":
            asked = set(cohort)  # a canary unit is where its number says (`sites.site_records`)
            sites = federation.clients if federation.plan.request.of_sites else federation.clients + max(canaries)
            loud = [canaries[number].place for number in behaviour.present if number % sites in asked]
            trace.noise.add(np.delete(released, loud))
    return scores


def _behaviour(canaries: dict[int, Canary], present: NDArray[np.bool_]) -> Canaries:
    there = [client for client, coin in zip(canaries, present, strict=True) if coin]
    return Canaries(canaries, frozenset(there))
