"""Say what a run will cost before it trains: sizes follow from the configuration, and no client is asked anything.

Time can only be measured. That is done on request, and without opening a private sum: it would be a release that nobody
charged.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import numpy as np

from sottovoce.assembly.elsewhere import gather_without_records
from sottovoce.assembly.engines import start_engine
from sottovoce.assembly.measure import MEASURED
from sottovoce.assembly.model import describe_front
from sottovoce.assembly.overrides import Given
from sottovoce.assembly.parts import Parts, gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.public import is_clients
from sottovoce.assembly.stages import TRAINING, ServerSide, made_up_importance, stages
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import DataError
from sottovoce.data import Dataset, Sizes, is_table, outline
from sottovoce.devices import profile
from sottovoce.federation.aggregation.aggregator import Costs
from sottovoce.federation.aggregation.ballots.coding import Ballots
from sottovoce.federation.aggregation.ballots.count import counting
from sottovoce.federation.coding import Terms
from sottovoce.federation.engine import Engine, drive
from sottovoce.federation.guard import INFLUENCE, influence
from sottovoce.federation.link_costs import BALLOTS_ADVICE, carried_in_round, on_link
from sottovoce.federation.round import costs_of
from sottovoce.federation.sums import mean
from sottovoce.models.fronts import is_function
from sottovoce.planning.compare import real_cost, three_ways
from sottovoce.planning.signal_to_noise import expected_accuracy, predicted_signal
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.plan.charges import against
from sottovoce.runs.devices import device_costs, judged_costs, judged_devices, limits_of, load_of
from sottovoce.runs.population import check_budget
from sottovoce.runs.summary import (
    describe_measurements,
    enrolment_cost,
    opening_costs,
    paper_cost,
    privacy_cost,
    secure_cost,
    vote_cost,
    vote_costs,
)
from sottovoce.schemes import State

PROJECTION_SAMPLE: Final = 500  # public records that a projection's size is estimated with; up to 3 % off in bytes
_DEALT: Final = ("iid", "virtual")  # partitions whose sizes do not depend on anybody's label or owner


def gather_shapes(experiment: Experiment) -> tuple[Parts, list[str]]:
    """Return the parts of an experiment with records that only have a shape, and what is only estimated then.

    Where the sizes of the clients depend on labels or owners, or an attack reads the records, the data set is read as a
    run would; if it is not on the machine, an image or text set is taken with as many records of each class.
    """
    if experiment.data.shape is not None or _of_sites(experiment):  # nobody but nodes has records
        return gather_without_records(experiment), []
    if experiment.engine.data is not None:  # what is in common has all that matters
        return gather(experiment), []
    estimated: list[str] = []
    known = outline(experiment.data.source, experiment.data.folder)
    matters = experiment.data.partition not in _DEALT or experiment.client.balanced or experiment.threat is not None
    small = _small_projection(experiment)
    if small is not experiment:
        estimated += ["bytes_setup_per_client", "projection.bytes"]
    given = Given(dataset=known, public=None if known is None else _public(experiment, known))
    if known is None or matters:
        try:
            parts = gather(small, Given(public=given.public))
        except DataError:
            if known is None or experiment.data.partition in ("by-id", "hospitals"):
                raise
            parts = gather(small, given)
            estimated.append("records_per_client")
    else:
        parts = gather(small, given)
    return replace(parts, experiment=experiment), estimated


def plan_of(experiment: Experiment) -> PrivacyPlan | None:
    """Return the privacy plan that a run of an experiment would have; None if it is not private."""
    return stages(protect(gather_shapes(experiment)[0]))[TRAINING].plan


def _of_sites(experiment: Experiment) -> bool:
    """Tell whether a run is between machines, on tables whose schema fixes the shape."""
    table = experiment.data
    return (
        experiment.engine.name in ("mqtt", "flower")
        and table.schema is not None
        and is_table(table.source, table.folder)
    )


def _public(experiment: Experiment, dataset: Dataset) -> Dataset | None:
    """Return a stand-in for public records of another set; None: there are none, or a run's checks must see them."""
    name = experiment.scheme.public
    if name is None or is_clients(name, experiment):
        return None
    known = outline(name, experiment.data.folder)
    fits = known is not None and known.shape == dataset.shape and known.classes <= dataset.classes
    return known if fits else None


def _small_projection(experiment: Experiment) -> Experiment:
    """Return the experiment with a projection that fewer public records fit, where there is one to fit."""
    model = experiment.model
    fitted = model.front in ("scattering", "gabor") or (is_function(model.front) and model.projection.dims is not None)
    if not fitted or model.projection.samples <= PROJECTION_SAMPLE:
        return experiment
    projection = model.projection.model_copy(update={"samples": PROJECTION_SAMPLE})
    return experiment.model_copy(update={"model": model.model_copy(update={"projection": projection})})


def leaving_chance(experiment: Experiment) -> float:
    """Return the chance that a client leaves before its uplink: the file's, or that of the devices it names."""
    before = ("advertise", "share", "mask")
    staying = math.prod(1 - experiment.make_dropout().chances.get(phase, 0.0) for phase in before)
    if staying < 1:
        return 1 - staying
    return max(profile(name).availability.dropout for name in judged_devices(experiment))


def dropout_cost(ready: ServerSide, chance: float) -> dict[str, Any]:
    """Return what leaving costs if each client of a cohort leaves before its uplink with this chance.

    lost_rounds is the share of rounds in which fewer are left than a sum may be opened with; the noise is what the
    server may know because so many may leave: it would be as private with `noise_factor` times less if none could.
    """
    from scipy.special import bdtr  # scipy.stats takes a second to import

    cohort = max(1, round(ready.protection.parts.cohort.expected))
    needed = ready.protection.fewest(ready.plan)(cohort)
    told: dict[str, Any] = {
        "chance": chance,
        "cohort": cohort,
        "needed": needed,
        "may_leave": cohort - needed,
        "lost_rounds": float(bdtr(needed - 1, cohort, 1 - chance)) if needed else 0.0,
        "wasted_downlinks": chance,
        "epsilon_server_if_nobody_left": None,
        "noise_factor": None,
    }
    plan = ready.plan
    if plan is not None and plan.shares.server_part > 0:
        told["epsilon_server_if_nobody_left"] = _if_nobody_left(plan)
        told["noise_factor"] = 1.0 if plan.shares.by_aggregators else plan.shares.server_part**-0.5
    return told


def _if_nobody_left(plan: PrivacyPlan) -> float | None:
    if plan.shares.by_aggregators:
        return plan.epsilon_server
    part = min((size - plan.shares.colluders) / size for size in (plan.shares.floor, plan.shares.cap))
    value = against(plan.request, plan.events(), most=plan.max_participations, part=part)
    return value if value < float("inf") else None


def plan(experiment: Experiment, *, measure: bool = False, plain: float | None = None) -> dict[str, Any]:
    """Return the costs of an experiment; raise what running it would raise. `measure` also times a round.

    With `plain`, the accuracy of the same run without privacy, also the accuracy to expect.
    """
    if measure:
        known = _timed(experiment)
    else:
        parts, estimated = gather_shapes(experiment)
        known = _Known(stages(protect(parts))[TRAINING].server_side(), None, estimated)
    told = _told(experiment, known)
    if plain is not None:
        told["expected_accuracy"] = expected_accuracy(known.ready.plan, plain)
    return told


def plan_parts(parts: Parts, estimated: list[str]) -> dict[str, Any]:
    """Return the costs of an experiment whose parts are gathered; nothing is computed on anybody's records."""
    ready = stages(protect(parts))[TRAINING].server_side()
    return _told(parts.experiment, _Known(ready, None, estimated))


def _told(experiment: Experiment, known: _Known) -> dict[str, Any]:
    ready, seconds, estimated = known
    vote = vote_costs(ready)
    check_budget(experiment, ready.plan)
    parts, rounds = ready.protection.parts, experiment.experiment.rounds
    costs = costs_of(ready.server, ready.server.init(parts.start))
    bound, privacy = ready.scheme, ready.plan
    paper_up, paper_down = paper_cost(bound, parts.cohort, privacy, rounds)
    opening = opening_costs(ready)
    load = load_of(ready, costs, [vote, *opening.values()])
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
        **link_cost(experiment, costs),
        **vote_cost(vote),
        **opening,
        "secure_overhead_up_bytes_per_client_round": None,
        "secure_expansion": None,
        **(secure_cost(ready, costs.client.up, 1) if experiment.protocol.is_real() else {}),
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
        "expected_accuracy": None,
        "measurements": describe_measurements(ready) if experiment.evaluation == "federated" else None,
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


def link_cost(experiment: Experiment, costs: Costs) -> dict[str, Any]:
    """Return what a link carries for a round between machines, and how the slowest one that is declared copes."""
    table, carried = experiment.engine, carried_in_round(costs.phases)
    told: dict[str, Any] = {
        "wire_bytes_per_client_round": carried,
        "wire_factor": round(carried / max(1, costs.client.up + costs.client.down), 3),
        "slowest_link": None,
    }
    if table.slowest is None:
        return told
    found = on_link(costs.phases, table.slowest, phase_timeout=table.phase_timeout, train_timeout=table.train_timeout)
    advice = BALLOTS_ADVICE if table.slowest.outage and len(costs.phases) > 1 else None
    link = {"link": table.slowest_link, "seconds_per_round": round(found.seconds, 1)}
    return told | {"slowest_link": link | {"misfits": list(found.misfits), "advice": advice}}


def _records(parts: Parts) -> dict[str, Any]:
    """Return the smallest, median and largest number of records of a client; null where only clients know them."""
    if parts.boundary.passes(parts.counts):
        return {**parts.partition.sizes._asdict(), "reason": None}
    private = "" if parts.units is not None else "how many records clients have is private; "  # of units it is public
    reason = f"{private}work is estimated for {parts.public_size:g} ([data] mean_records)"
    return {**dict.fromkeys(Sizes._fields), "reason": reason}


class _Known(NamedTuple):
    """What a plan is read off: the federation, seconds of a round, and which numbers are estimates."""

    ready: ServerSide
    seconds: float | None
    estimated: list[str]


def _timed(experiment: Experiment) -> _Known:
    """Put the federation together as a run does, and time a round of it."""
    parts = gather(experiment)
    with start_engine(parts) as (engine, evaluator):
        ready = stages(protect(parts))[TRAINING].server_side(evaluator)
        if ready.protection.vote_plan is not None:  # the coordinates are not elected yet
            ready = ready.with_importance(made_up_importance(parts))
        return _Known(ready, _measure(parts, ready, engine), [])


def _promises(experiment: Experiment, plan: PrivacyPlan, *, measured: bool) -> dict[str, Any]:
    """Return what a privacy plan promises; a clip norm that only a run measures is null, and so is what it scales."""
    told = plan.describe()
    if not measured and experiment.privacy is not None and experiment.privacy.clipping in MEASURED:
        told |= {"clip_norm": None, "noise_stddev": None}
    return told


def _measure(parts: Parts, ready: ServerSide, engine: Engine) -> float:
    """Time a round of as many clients as are expected, after one to warm up; the model is thrown away."""
    ready.enrol(engine)
    with TemporaryDirectory() as folder, counting(ready.server.aggregator, Path(folder)):
        state = _practise(ready, engine, ready.server.init(parts.start), 1)
        began = time.perf_counter()
        _practise(ready, engine, state, 2)
    return round(time.perf_counter() - began, 4)


class _UnopenedError(Exception):
    """Ends a private round at the moment at which it would be charged."""


def _practise(ready: ServerSide, engine: Engine, state: State, round_: int) -> State:
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
