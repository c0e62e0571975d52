"""Sum a run up: what came out, and what it cost."""

from __future__ import annotations

import math
from typing import Final

from sottovoce.assembly.measure import public_records
from sottovoce.assembly.model import describe_front
from sottovoce.assembly.parts import Parts
from sottovoce.assembly.public import is_clients
from sottovoce.assembly.stages import VOTE, WARM_START, WHITEN, ServerSide, Stage, stages
from sottovoce.core.errors import InputError
from sottovoce.core.provenance import Owned, Public
from sottovoce.data import LEAVES, describe_leaves
from sottovoce.federation.aggregation.aggregator import Costs
from sottovoce.federation.aggregation.ballots.coding import Ballots
from sottovoce.federation.coding import FloatGrid
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.guard import influence
from sottovoce.federation.round import costs_of
from sottovoce.federation.stages.evaluation import evaluations
from sottovoce.models import METRICS
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.budget import cost_of
from sottovoce.privacy.plan.request import request_record
from sottovoce.runs.records import Record, best_of
from sottovoce.schemes import Scheme
from sottovoce.schemes.sign_bounds import convergence, slack


def paper_cost(scheme: Scheme, cohort: Cohort, plan: PrivacyPlan | None, rounds: int) -> tuple[float, float]:
    """Return ratio * n * bits * rounds * C in bytes per client, (up, down).

    A float has 32 bits and a sign 1; a sign with noise, FL-SIGN-DP's, has as many as its noise asks for. The tables
    print it for the best round.
    """
    up, down = scheme.paper_values
    if plan is not None and scheme.form == "signs":
        up = scheme.length * paper_sign_bits(scheme.length, plan.noise_multiplier, cohort.expected) / 32
    factor = 4 * rounds * float(cohort.sample_rate)
    return up * factor, down * factor


def paper_sign_bits(length: int, noise_multiplier: float, cohort: float) -> int:
    """Return ceil(log2((12 sqrt(n) sigma + 1) |K|)), thesis 5.2.4: 22 bits at epsilon 1 in the papers, 21 at 2 and 4.

    The formula lacks a bit for the sign of the sum (docs/privacy.md, erratum 6) and is for comparison only.

    >>> paper_sign_bits(1_663_370, 1.54, 100)
    22
    """
    return max(1, math.ceil(math.log2((12 * math.sqrt(length) * noise_multiplier + 1) * cohort)))


def thesis_bounds(parts: Parts, ready: ServerSide, rounds: int) -> Record:
    """Return `thesis` for the summary of an FL-SIGN run, and nothing for other schemes; a bound that fails is null."""
    if ready.scheme.name != "fl-sign" or rounds < 1:
        return {}
    return {"thesis": {"theorem_3": _theorem_3(parts, ready, rounds), "theorem_6": _theorem_6(parts, ready, rounds)}}


def _theorem_3(parts: Parts, ready: ServerSide, rounds: int) -> Record | None:
    if ready.plan is None or ready.plan.grid is None:
        return None
    try:
        found = slack(math.sqrt(ready.plan.grid.variance), parts.cohort.expected)
    except InputError:  # so coarse that the lemma says nothing
        return None
    return {
        "epsilon_slack": found.epsilon(ready.plan.rounds),  # as epsilon, for all rounds that are planned,
        "log10_kappa": found.log10_kappa,
        "log10_nu": found.log10_nu,
    }


def _theorem_6(parts: Parts, ready: ServerSide, rounds: int) -> Record | None:
    threat, plan = parts.threat, ready.plan
    if threat is not None and (plan is not None or threat.table.attack != "random-update"):
        return None  # the thesis bounds random updates only, and only without noise
    found = convergence(
        rounds=rounds,
        cohort=parts.cohort.expected,
        server_lr=float(getattr(ready.scheme, "server_lr")),  # noqa: B009
        gap=1.0,
        fraction=0.0 if threat is None else float(threat.table.fraction),
        noise_multiplier=0.0 if plan is None else plan.noise_multiplier,
        length=ready.scheme.length,
    )
    return {
        "tau_factor_sampling": found.sampling,
        "tau_factor_privacy": found.privacy,
        "descent_per_unit_of_loss": found.descent,
    }


def enrolment_cost(costs: Costs) -> Record | None:
    """Return what a client sends and receives once, to enrol for a session of rounds; None if keys live a round."""
    return costs.once._asdict() if costs.enrolment else None


def vote_costs(ready: ServerSide) -> Costs | None:
    """Return what the vote for the coordinates costs; None if there is none."""
    vote = stages(ready.protection).get(VOTE)
    if vote is None:
        return None
    server = vote.server_side().server
    return costs_of(server, server.init(vote.parts.start))


def vote_cost(vote: Costs | None) -> Record:
    """Return what all clients together send and receive in the vote for the coordinates, if there is one."""
    return {
        "bytes_vote_up_total": None if vote is None else vote.round.up,
        "bytes_vote_down_total": None if vote is None else vote.round.down,
    }


def opening_costs(ready: ServerSide) -> Record:
    """Return what a warm start and the whitening cost: bytes of each client and of all, and of the budget."""
    found = stages(ready.protection)
    return {
        "warm_start": _opening_cost(found.get(WARM_START)),
        "whitening": _opening_cost(found.get(WHITEN)),
    }


def _opening_cost(stage: Stage | None) -> Record | None:
    if stage is None:
        return None
    side, plan = stage.server_side(), stage.plan
    costs = costs_of(side.server, side.server.init(stage.parts.start))
    told = None if plan is None else plan.describe()
    return {
        "scheme": side.scheme.name,
        "message_length": side.scheme.length,
        "bytes_up_per_client": costs.client.up,
        "bytes_down_per_client": costs.client.down,
        "bytes_up_total": costs.round.up,
        "bytes_down_total": costs.round.down,
        "noise_multiplier": told and told["noise_multiplier"],
        "epsilon": told and told["epsilon"],
        "epsilon_server": told and told["epsilon_server"],
        "bits_per_coordinate": told and told["bits_per_coordinate"],
    }


def privacy_cost(ready: ServerSide) -> Record:
    """Return what the plan promises against the server, and at which noise; null if the run is not private."""
    plan = ready.plan
    return {
        "epsilon_server": None if plan is None else plan.describe()["epsilon_server"],
        "delta": None if plan is None else plan.request.delta,
        "noise_multiplier": None if plan is None else plan.noise_multiplier,
        "bits_per_coordinate": 32 if plan is not None and plan.bits is None else ready.coding.bits,
        "unit": None if plan is None else plan.request.unit,
        "units": None if plan is None else plan.request.units,
        "unit_rate": None if plan is None or not plan.request.of_sites else plan.request.unit_rate,
        "epsilon_site": None if plan is None or not plan.request.of_sites else plan.describe()["epsilon_site"],
    }


def secure_cost(ready: ServerSide, up: int, senders: int) -> Record:
    """Return what a secure sum cost: bytes up beside the packed vectors, and times them, all phases counted."""
    length = ready.scheme.length if ready.plan is None else ready.plan.word_length
    packed = -(-length * ready.coding.bits // 8)
    return {
        "secure_overhead_up_bytes_per_client_round": share(up - senders * packed, senders),
        "secure_expansion": up / (senders * packed) if senders else None,
    }


def share(total: int, parts: int) -> int | float | None:
    """Divide a total; whole numbers stay whole, and the share of nobody is null."""
    if not parts:
        return None
    return total // parts if total % parts == 0 else total / parts


SPENT_NOTE: Final = (
    "epsilon_spent is an odometer reading of the rounds that were charged, and no guarantee: when a run ends may "
    "depend on what it released, so the guarantee is epsilon, the plan's"
)
_UNMEASURED: Final = (
    ", as all records are the clients'; name a file of others' records in [data] test, or let clients measure "
    '([experiment] evaluation = "federated")'
)
_UNCOVERED: Final = "they are the clients' own, which epsilon does not cover (unsafe_test)"


def selecting_metric(parts: Parts) -> str:
    """Name the metric that chooses the best round."""
    task = parts.network.task
    # Clients tell no more than two metrics; sites tell of their records and persons what the server would.
    federated = parts.experiment.evaluation == "federated" and parts.units is None
    return task.measured[0].name if federated else task.leading


def patient_metric(parts: Parts) -> str:
    """Name the metric that decides about patience: of held-out records, or what clients measured."""
    metric = selecting_metric(parts)
    return metric if parts.experiment.evaluation == "federated" else f"held_out_{metric}"


def summarise(parts: Parts, ready: ServerSide, records: list[Record], costs: Costs, *, spent: int) -> Record:
    """Return the fields of summary.json; what does not apply is null. Epsilon is the plan's, whatever was played.

    Guarantee: in a private run nothing depends on the cohorts that were drawn but through the released sums, and
    through which rounds were aborted, which everybody sees.
    """
    experiment, scheme, plan = parts.experiment, ready.scheme, ready.plan
    metric = selecting_metric(parts)
    best = best_of(records, metric)
    final = next(filter(_measured_any, reversed(records)), None)  # noise may hide one metric of several
    paper_up, paper_down = paper_cost(scheme, parts.cohort, plan, best["round"] if best else len(records))
    summary: Record = {
        **_headline(parts, ready, records, best, final, spent),
        **privacy_cost(ready),
        **_bytes(ready, records, costs),
        "bytes_setup_per_client": len(ready.setup),
        "secure_overhead_up_bytes_per_client_round": None,
        "secure_expansion": None,
        "paper_cost_up_bytes": paper_up,
        "paper_cost_down_bytes": paper_down,
        "joules_per_client": None,
        "seconds": None if plan is not None else round(sum(record["seconds"] for record in records), 3),
        **describe_front(experiment, parts.network),
        "dim": scheme.dim,
        "message_length": scheme.length,
        "clients": parts.cohort.clients,
        "expected_cohort": parts.cohort.expected,
        "cohort_floor": ready.protection.cohort_floor,
        "cohort_floor_note": ready.protection.floor_note,
        "weighting": "records" if parts.weighted else "equal",
        "defence": None if experiment.aggregation.defence == "none" else experiment.aggregation.defence,
        "aborted_rounds": sum("aborted" in record for record in records),
        "stopped_early": len(records) < experiment.experiment.rounds,
    }
    summary["test_data"] = describe_test(parts)
    summary |= _protection(parts, ready, records, costs)
    summary |= thesis_bounds(parts, ready, len(records))
    if parts.threat is not None:
        summary |= _attack(parts, records, best, final)
        summary |= {} if plan is None else parts.threat.epsilons(plan)
    summary |= _counts(parts, ready, records)
    if experiment.evaluation == "federated":
        summary["measurements"] = describe_measurements(ready, final)
    for name, each in METRICS.items():
        if each.summarised:
            summary[f"{name}_final"] = final and final.get(name)
            summary[f"{name}_best"] = best and best.get(name)
    if parts.metrics:
        summary["own_metrics"] = [metric.name for metric in parts.metrics]
        for name in summary["own_metrics"]:
            summary[f"{name}_final"] = final and final.get(name)
            summary[f"{name}_best"] = best and best.get(name)
    return summary


def _measured_any(record: Record) -> bool:
    return any(record.get(name) is not None for name, metric in METRICS.items() if metric.summarised)


def _headline(
    parts: Parts, ready: ServerSide, records: list[Record], best: Record | None, final: Record | None, spent: int
) -> Record:
    """Return what a reader looks for first: how good the model is, and what it cost in privacy."""
    experiment, plan = parts.experiment, ready.plan
    return {
        "name": experiment.experiment.name,
        "scheme": ready.scheme.name,
        "private": plan is not None,
        "secure": experiment.secure,
        "chosen_on": experiment.experiment.chosen_on,
        "rounds": len(records),
        "rounds_planned": experiment.experiment.rounds,
        "accuracy_final": final and final.get("accuracy"),
        "accuracy_best": best and best.get("accuracy"),
        "best_round": best and best["round"],
        "selected_by": selecting_metric(parts),
        "epsilon": None if plan is None else plan.describe()["epsilon"],
        "epsilon_spent": None if plan is None else plan.epsilon_after(min(spent, plan.rounds)),
        # Choosing the round looked at all of them.
        "epsilon_best_round": None if plan is None else plan.describe()["epsilon"],
    }


def _protection(parts: Parts, ready: ServerSide, records: list[Record], costs: Costs) -> Record:
    """Return what protected the run: its plan, how messages travelled, and what came before round 1."""
    experiment, plan = parts.experiment, ready.plan
    summary: Record = {}
    if plan is None:
        summary["failures"] = sum(len(record.get("failures", ())) for record in records)
    else:
        described = plan.describe()
        recorded = {"cost": cost_of(plan).told(), "request": request_record(plan.request), "digest": plan.digest()}
        summary["privacy"] = described | recorded
        summary["note"] = described["note"]
        summary["epsilon_spent_note"] = SPENT_NOTE
        summary["votes"] = influence(plan)["votes"]
        summary["budget_spent"] = len(records) == plan.rounds < experiment.experiment.rounds
    if isinstance(ready.coding, FloatGrid):
        summary["quantisation_step"] = ready.coding.step
        summary["quantisation_error_at_most"] = ready.coding.step / 2 * parts.cohort.most / parts.cohort.expected
    if isinstance(ready.coding, Ballots):
        summary["ballot"] = ready.coding.form
    if experiment.protocol.is_real():
        up, senders = _measured(records)[0] if plan is None else (costs.client.up, 1)
        summary |= secure_cost(ready, up, senders)
    return summary | _before_rounds(parts, ready)


def _before_rounds(parts: Parts, ready: ServerSide) -> Record:
    """Return what is told of a vote for coordinates, and of public records."""
    experiment = parts.experiment
    summary: Record = {}
    vote = ready.protection.vote_plan
    if vote is not None:
        summary["vote"] = {
            "note": "the coordinates came from a private vote before round 1",
            "noise_multiplier": vote.noise_multiplier,
            "epsilon": vote.describe()["epsilon"],
            "bits_per_coordinate": vote.bits,
        }
    if "public" in parts.splits:
        table = experiment.scheme
        summary["public"] = table.public
        if table.public is None or is_clients(table.public, experiment):
            summary["public"] = f"{table.public_samples} records set aside from {experiment.data.source}"
        elif table.public == LEAVES:
            summary["public"] = describe_leaves(table.public_samples)
        summary["public_records"] = len(public_records(parts))  # those that were used, after balancing
    return summary


def _counts(parts: Parts, ready: ServerSide, records: list[Record]) -> Record:
    """Return what is counted over the rounds where the file asks for it."""
    summary: Record = {}
    switches = parts.experiment.switches
    if switches is not None and switches.leave_within:
        summary["left_for_good"] = max((record.get("left_for_good", 0) for record in records), default=0)
    if switches is not None and switches.servers > 1:
        between = sum(record.get("bytes_between_servers", 0) for record in records)
        summary["bytes_between_servers_total"] = between
    if ready.server.guard is not None:
        summary["rejected_rounds"] = sum("rejected" in record for record in records)
    return summary


def describe_test(parts: Parts) -> str:
    """Say on which records the model was measured, and whose they are; a count only of records that are nobody's."""
    experiment, records, private = parts.experiment, parts.dataset.test_from, parts.boundary.private
    if experiment.evaluation == "federated":
        how = "with noise that the budget pays for" if private else "without noise"
        return f"a share of {experiment.client.held_out:g} of each client's own records, by a secure sum {how}"
    if experiment.evaluation == "none":
        return f"none: nothing was measured{_UNMEASURED if isinstance(records, Owned) and private else ''}"
    count = len(parts.dataset.y_test)
    how = parts.dataset.test_data or f"{count} records"
    if isinstance(records, Public):
        how = f"{records.source} ({count})" if parts.dataset.test_data is None else f"{how}; {records.source}"
    if not private:
        return how
    nobody = isinstance(records, Public)
    return f"{how}; {'no client owns them, and epsilon does not cover them' if nobody else _UNCOVERED}"


def describe_measurements(ready: ServerSide, final: Record | None = None) -> Record:
    """Return how often clients measured the model at most, and with which noise; null where there is none."""
    parts, plan = ready.protection.parts, ready.protection.evaluation_plan
    general = parts.experiment.experiment
    if parts.units is not None and plan is not None:
        promised = plan.describe()
        return {
            "most": plan.rounds,
            "units": plan.request.units,
            "noise_multiplier": plan.noise_multiplier,
            **{name: promised[name] for name in ("epsilon", "epsilon_server", "epsilon_site")},
            "account": "their own: no unit is both trained and measured on, so the larger epsilon is the run's",
            "accuracy_stddev": plan.stddev() / (math.sqrt(2) * plan.expected_cohort),
            "intervals": final and final.get("intervals"),
        }
    return {
        "most": evaluations(general.rounds, general.evaluate_every),
        "noise_multiplier": plan and plan.noise_multiplier,
        "epsilon": plan and plan.describe()["epsilon"],
        "epsilon_server": plan and plan.describe()["epsilon_server"],
        "accuracy_stddev": plan and plan.stddev() / (2 * parts.cohort.expected),
    }


def _attack(parts: Parts, records: list[Record], best: Record | None, final: Record | None) -> Record:
    """Return what an attack did; as in the papers, *best* is taken at the round of the best accuracy."""
    threat = parts.threat
    if threat is None:
        return {}
    told: Record = {
        "attack": threat.table.attack,
        "attack_fraction": float(threat.table.fraction),
        "attack_of": threat.table.of,
        "attack_boost": threat.behaviour.boost,  # null: it depends on how many are malicious in a round
        "attack_source": threat.source,
        "attack_target": threat.target,
        "diverged": final is not None and "diverged" in final,
    }
    for name in ("attack_success", "class_accuracy"):
        told |= {f"{name}_final": final and final[name], f"{name}_best": best and best[name]}
    told["accuracy_by_class_final"] = final and final["accuracy_by_class"]
    return told


def _bytes(ready: ServerSide, records: list[Record], costs: Costs) -> Record:
    """Return what travelled: measured, or in a private run what was to be expected."""
    if ready.plan is not None:
        each, (up, down) = costs.client, costs.total(len(records))
        shares: tuple[int | float | None, ...] = each
    else:
        (up, senders), (down, asked) = _measured(records)
        shares = share(up, senders), share(down, asked)
    return {
        "bytes_up_per_client_round": shares[0],
        "bytes_down_per_client_round": shares[1],
        "bytes_up_total": up,
        "bytes_down_total": down,
        "bytes_per_client_phase": {phase: sizes._asdict() for phase, sizes in costs.phases.items()},
        "bytes_enrolment_per_client": enrolment_cost(costs),
        **vote_cost(vote_costs(ready)),
        **opening_costs(ready),
    }


def _measured(records: list[Record]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the bytes up and their senders, and the bytes down and their receivers; not of a private run."""
    up, down, senders, asked = (
        sum(record[key] for record in records) for key in ("bytes_up", "bytes_down", "senders", "cohort")
    )
    return (up, senders), (down, asked)
