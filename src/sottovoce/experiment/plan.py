"""Say what a run will cost before it trains: sizes follow from the configuration, and no client is asked anything.

Time can only be measured. That is done on request, and without opening a private sum: it would be a release that nobody
charged.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from sottovoce.data import Sizes
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.costs import enrolment_cost, privacy_cost, secure_cost, vote_cost, warm_cost
from sottovoce.experiment.dropout_costs import dropout_cost, leaving_chance
from sottovoce.experiment.fronts import describe_front
from sottovoce.experiment.loads import device_costs, judged_costs, limits_of, load_of
from sottovoce.experiment.measure import MEASURED
from sottovoce.experiment.papers import paper_cost
from sottovoce.experiment.parts import Parts, gather
from sottovoce.experiment.population import check_budget
from sottovoce.experiment.protection import protect
from sottovoce.experiment.ready import Ready, make_ready, make_unmeasured, start_engine, voting, with_importance
from sottovoce.experiment.real_costs import real_cost
from sottovoce.experiment.shapes import gather_shapes
from sottovoce.experiment.signal import predicted_signal
from sottovoce.experiment.ways import three_ways
from sottovoce.federation.ballots.coding import Ballots
from sottovoce.federation.ballots.counting import counting
from sottovoce.federation.coding import Terms
from sottovoce.federation.costs import Costs, costs_of
from sottovoce.federation.engine import Engine, drive
from sottovoce.federation.guard import INFLUENCE, influence
from sottovoce.federation.sums import mean
from sottovoce.privacy import PrivacyPlan
from sottovoce.schemes import State

__all__ = ["plan", "plan_parts"]


def plan(experiment: Experiment, *, measure: bool = False) -> dict[str, Any]:
    """Return the costs of an experiment; raise what running it would raise. `measure` also times a round."""
    if measure:
        return _told(experiment, _timed(experiment))
    parts, estimated = gather_shapes(experiment)
    return plan_parts(parts, estimated)


def plan_parts(parts: Parts, estimated: list[str]) -> dict[str, Any]:
    """Return the costs of an experiment whose parts are gathered; nothing is computed on anybody's records."""
    protection = protect(parts)
    ready, vote = make_unmeasured(protection), None
    if protection.vote_plan is not None:
        ready, vote = _unvoted(parts, ready, protection.vote_plan)
    return _told(parts.experiment, _Known(ready, vote, None, estimated))


def _told(experiment: Experiment, known: _Known) -> dict[str, Any]:
    ready, vote, seconds, estimated = known
    check_budget(experiment, ready.plan)
    parts, rounds = ready.protection.parts, experiment.experiment.rounds
    costs = costs_of(ready.server, ready.server.init(parts.start))
    bound, privacy = ready.scheme, ready.plan
    paper_up, paper_down = paper_cost(bound, parts.cohort, privacy, rounds)
    warm = warm_cost(ready)
    load = load_of(ready, costs, [vote, warm["warm_start"]])
    devices = device_costs(experiment, load)
    judged = judged_costs(parts, costs, load)
    return {
        "scheme": bound.name,
        "model": parts.network.name,
        **describe_front(experiment, parts.network),
        "dim": bound.dim,
        "message_length": bound.length,
        "clients": parts.cohort.clients,
        "expected_cohort": parts.cohort.expected,
        "cohort_floor": ready.protection.cohort_floor,
        "cohort_floor_note": ready.protection.floor_note,
        "rounds": rounds,
        "records_per_client": _records(parts),
        "bytes_up_per_client_round": costs.client.up,
        "bytes_down_per_client_round": costs.client.down,
        "bytes_setup_per_client": len(ready.setup),
        "bytes_up_per_round": costs.round.up,
        "bytes_down_per_round": costs.round.down,
        "bytes_up_total": costs.total(rounds).up,
        "bytes_down_total": costs.total(rounds).down,
        "bytes_per_client_total": load.bytes_total,
        "bytes_per_client_phase": {phase: sizes._asdict() for phase, sizes in costs.phases.items()},
        "bytes_enrolment_per_client": enrolment_cost(costs),
        **vote_cost(vote),
        **warm,
        "secure_overhead_up_bytes_per_client_round": None,
        "secure_expansion": None,
        **(secure_cost(ready, costs.client.up, 1) if experiment.secure in ("real", "ballot") else {}),
        "paper_cost_up_bytes_all_rounds": paper_up,
        "paper_cost_down_bytes_all_rounds": paper_down,
        **real_cost(ready),
        "ways": three_ways(ready, load),
        "secure": experiment.secure,
        "ballot": ready.coding.form if isinstance(ready.coding, Ballots) else None,
        "private": privacy is not None,
        "epsilon": None if privacy is None else privacy.describe()["epsilon"],
        **privacy_cost(ready),
        "epsilon_member": None if privacy is None else privacy.describe()["epsilon_member"],
        "privacy": None if privacy is None else _promises(experiment, privacy, measured=seconds is not None),
        **({} if privacy is None or parts.threat is None else parts.threat.epsilons(privacy)),
        "signal_to_noise": predicted_signal(privacy),
        **(dict.fromkeys(INFLUENCE) if privacy is None else influence(privacy, experiment.server.guard_width)),
        "dropouts": dropout_cost(ready, leaving_chance(experiment)),
        "participations_per_client": load.participations,
        "gflop_per_client_round": load.gflop,
        "memory_mb": load.memory_mb,
        "devices": [cost.describe() for cost in devices],
        **judged.told,
        "estimated": estimated,
        "limits": limits_of(ready, load, judged),
        "seconds_per_round": seconds,
        "seconds_total": seconds and seconds * rounds,
    }


def _records(parts: Parts) -> dict[str, Any]:
    """Return the smallest, median and largest number of records of a client; null where only clients know them."""
    if parts.boundary.passes(parts.counts):
        return {**parts.partition.sizes._asdict(), "reason": None}
    reason = (
        f"how many records clients have is private; work is estimated for {parts.public_size:g} ([data] mean_records)"
    )
    return {**dict.fromkeys(Sizes._fields), "reason": reason}


class _Known(NamedTuple):
    """What a plan is read off: the federation, its vote, seconds of a round, and which numbers are estimates."""

    ready: Ready
    vote: Costs | None
    seconds: float | None
    estimated: list[str]


def _timed(experiment: Experiment) -> _Known:
    """Put the federation together as a run does, and time a round of it."""
    parts = gather(experiment)
    protection = protect(parts)
    with start_engine(parts) as (engine, evaluator):
        ready, vote = make_ready(protection, evaluator), None
        if protection.vote_plan is not None:
            ready, vote = _unvoted(parts, ready, protection.vote_plan)
        return _Known(ready, vote, _measure(parts, ready, engine), [])


def _unvoted(parts: Parts, ready: Ready, privacy: PrivacyPlan) -> tuple[Ready, Costs]:
    """Return a federation with made-up coordinates in place of elected ones, and what the vote will cost."""
    server = voting(ready, privacy).server
    made_up = np.arange(parts.network.dim, 0, -1, dtype=np.float32)
    return with_importance(ready, made_up), costs_of(server, server.init(parts.start))


def _promises(experiment: Experiment, plan: PrivacyPlan, *, measured: bool) -> dict[str, Any]:
    """Return what a privacy plan promises; a clip norm that only a run measures is null, and so is what it scales."""
    told = plan.describe()
    if not measured and experiment.privacy is not None and experiment.privacy.clipping in MEASURED:
        told |= {"clip_norm": None, "noise_stddev": None}
    return told


def _measure(parts: Parts, ready: Ready, engine: Engine) -> float:
    """Time a round of as many clients as are expected, after one to warm up; the model is thrown away."""
    ready.enrol(engine)
    with TemporaryDirectory() as folder, counting(ready.server.aggregator, Path(folder)):
        state = _practise(ready, engine, ready.server.init(parts.start), 1)
        began = time.perf_counter()
        _practise(ready, engine, state, 2)
    return round(time.perf_counter() - began, 4)


class _UnopenedError(Exception):
    """Ends a private round at the moment at which it would be charged."""


def _practise(ready: Ready, engine: Engine, state: State, round_: int) -> State:
    """Play a round and return the next state. A private sum stays closed: noise of its size is decoded instead."""
    server, scheme, privacy = ready.server, ready.scheme, ready.plan
    cohort = list(range(max(1, round(server.cohort.expected))))
    terms = Terms(len(cohort), float(state.get("clip_norm", 0.0)))
    seed = scheme.round_seed(round_)
    down = scheme.downlink(state, seed) + (b"" if privacy is None else terms.pack())
    rng = np.random.default_rng(round_)

    def charge() -> None:
        if privacy is not None:
            raise _UnopenedError

    values = None
    try:
        values = drive(engine, server.aggregator.collect(round_, cohort, down, terms, charge)).values
    except _UnopenedError:
        stddev = 1.0 if privacy is None else privacy.stddev()
        values = rng.normal(0.0, stddev, scheme.length)
    if values is None:  # too few answered: there is nothing to decode
        return state
    return {**state, **scheme.decode(mean(values, server.cohort.expected), state, seed, rng)}
