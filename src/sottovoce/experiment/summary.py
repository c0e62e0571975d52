"""Sum a run up: what came out, and what it cost."""

from __future__ import annotations

from typing import Final

from sottovoce.core.provenance import Owned, Public
from sottovoce.data import LEAVES, describe_leaves
from sottovoce.experiment.costs import enrolment_cost, privacy_cost, secure_cost, share, vote_cost, warm_cost
from sottovoce.experiment.fronts import describe_front
from sottovoce.experiment.measure import public_records
from sottovoce.experiment.papers import paper_cost
from sottovoce.experiment.parts import Parts
from sottovoce.experiment.public import is_clients
from sottovoce.experiment.ready import Ready
from sottovoce.experiment.records import Record, best_of
from sottovoce.experiment.thesis_bounds import thesis_bounds
from sottovoce.federation.ballots.coding import Ballots
from sottovoce.federation.coding import FloatGrid
from sottovoce.federation.costs import Costs
from sottovoce.federation.evaluation import evaluations
from sottovoce.federation.guard import influence
from sottovoce.privacy.budget import cost_of

__all__ = ["SPENT_NOTE", "describe_test", "patient_metric", "selecting_metric", "summarise"]

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
    """Name the metric that chooses the best round: two classes are seldom balanced."""
    federated = parts.experiment.evaluation == "federated"  # clients tell no more than accuracy and loss
    return "balanced_accuracy" if parts.network.binary and not federated else "accuracy"


def patient_metric(parts: Parts) -> str:
    """Name the metric that decides about patience: of held-out records, or what clients measured."""
    metric = selecting_metric(parts)
    return metric if parts.experiment.evaluation == "federated" else f"held_out_{metric}"


def summarise(parts: Parts, ready: Ready, records: list[Record], costs: Costs, *, spent: int) -> Record:
    """Return the fields of summary.json; what does not apply is null. Epsilon is the plan's, whatever was played.

    Guarantee: in a private run nothing depends on the cohorts that were drawn but through the released sums, and
    through which rounds were aborted, which everybody sees.
    """
    experiment, scheme, plan = parts.experiment, ready.scheme, ready.plan
    metric = selecting_metric(parts)
    evaluated = [record for record in records if record.get(metric) is not None]
    best = best_of(records, metric)
    final = evaluated[-1] if evaluated else None
    paper_up, paper_down = paper_cost(scheme, parts.cohort, plan, best["round"] if best else len(records))
    summary: Record = {
        "name": experiment.experiment.name,
        "scheme": scheme.name,
        "private": plan is not None,
        "secure": experiment.secure,
        "chosen_on": experiment.experiment.chosen_on,
        "rounds": len(records),
        "rounds_planned": experiment.experiment.rounds,
        "accuracy_final": final and final["accuracy"],
        "accuracy_best": best and best["accuracy"],
        "best_round": best and best["round"],
        "selected_by": metric,
        "epsilon": None if plan is None else plan.describe()["epsilon"],
        "epsilon_spent": None if plan is None else plan.epsilon_after(min(spent, plan.rounds)),
        # Choosing the round looked at all of them.
        "epsilon_best_round": None if plan is None else plan.describe()["epsilon"],
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
    if plan is None:
        summary["failures"] = sum(len(record.get("failures", ())) for record in records)
    else:
        described = plan.describe()
        summary["privacy"] = {**described, "cost": cost_of(plan).told()}
        summary["note"] = described["note"]
        summary["epsilon_spent_note"] = SPENT_NOTE
        summary["votes"] = influence(plan)["votes"]
        summary["budget_spent"] = len(records) == plan.rounds < experiment.experiment.rounds
    if isinstance(ready.coding, FloatGrid):
        summary["quantisation_step"] = ready.coding.step
        summary["quantisation_error_at_most"] = ready.coding.step / 2 * parts.cohort.most / parts.cohort.expected
    if isinstance(ready.coding, Ballots):
        summary["ballot"] = ready.coding.form
    if experiment.secure in ("real", "ballot"):
        up, senders = _measured(records)[0] if plan is None else (costs.client.up, 1)
        summary |= secure_cost(ready, up, senders)
    vote = ready.protection.vote_plan
    if ready.election is not None and vote is not None:
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
    summary |= thesis_bounds(parts, ready, len(records))
    if parts.threat is not None:
        summary |= _attack(parts, records, best, final)
        summary |= {} if plan is None else parts.threat.epsilons(plan)
    switches = experiment.switches
    if switches is not None and switches.leave_within:
        summary["left_for_good"] = max((record.get("left_for_good", 0) for record in records), default=0)
    if switches is not None and switches.servers > 1:
        between = sum(record.get("bytes_between_servers", 0) for record in records)
        summary["bytes_between_servers_total"] = between
    if ready.server.guard is not None:
        summary["rejected_rounds"] = sum("rejected" in record for record in records)
    if experiment.evaluation == "federated":
        summary["measurements"] = _measurements(ready)
    elif parts.network.binary:
        for name in ("balanced_accuracy", "auroc"):
            summary[f"{name}_final"] = final and final[name]
            summary[f"{name}_best"] = best and best[name]
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


def _measurements(ready: Ready) -> Record:
    """Return how often clients measured the model at most, and with which noise; null where there is none."""
    parts, plan = ready.protection.parts, ready.protection.evaluation_plan
    general = parts.experiment.experiment
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


def _bytes(ready: Ready, records: list[Record], costs: Costs) -> Record:
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
        **vote_cost(ready.election and ready.election.costs),
        **warm_cost(ready),
    }


def _measured(records: list[Record]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the bytes up and their senders, and the bytes down and their receivers; not of a private run."""
    up, down, senders, asked = (
        sum(record[key] for record in records) for key in ("bytes_up", "bytes_down", "senders", "cohort")
    )
    return (up, senders), (down, asked)
