"""Sum a run up: what came out, and what it cost."""

from __future__ import annotations

from sottovoce.experiment.build import Assembly, Ready
from sottovoce.experiment.measure import public_records
from sottovoce.experiment.papers import paper_cost
from sottovoce.experiment.records import Record, best_of
from sottovoce.federation.coding import FloatGrid
from sottovoce.federation.costs import Costs

__all__ = ["enrolment_cost", "secure_cost", "selecting_metric", "summarise"]


def selecting_metric(assembly: Assembly) -> str:
    """Name the metric that chooses the best round and decides about patience: two classes are seldom balanced."""
    return "balanced_accuracy" if assembly.network.binary else "accuracy"


def summarise(assembly: Assembly, ready: Ready, records: list[Record], costs: Costs, *, spent: int) -> Record:
    """Return the fields of summary.json; what does not apply is null. Epsilon is for all rounds that were charged.

    Guarantee: in a private run nothing depends on the cohorts that were drawn but through the released sums, and
    through which rounds were aborted, which everybody sees.
    """
    experiment, scheme, plan = assembly.experiment, ready.scheme, ready.plan
    metric = selecting_metric(assembly)
    evaluated = [record for record in records if record.get(metric) is not None]
    best = best_of(records, metric)
    final = evaluated[-1] if evaluated else None
    paper_up, paper_down = paper_cost(scheme, assembly.cohort, plan, best["round"] if best else len(records))
    summary: Record = {
        "name": experiment.experiment.name,
        "scheme": scheme.name,
        "private": plan is not None,
        "secure": experiment.secure,
        "rounds": len(records),
        "rounds_planned": experiment.experiment.rounds,
        "accuracy_final": final and final["accuracy"],
        "accuracy_best": best and best["accuracy"],
        "best_round": best and best["round"],
        "selected_by": metric,
        "epsilon": None if plan is None else plan.epsilon_after(min(spent, plan.rounds)),
        "epsilon_best_round": best and best["epsilon"],
        "epsilon_server": None if plan is None else plan.describe()["epsilon_server"],
        "delta": None if plan is None else plan.request.delta,
        "noise_multiplier": None if plan is None else plan.noise_multiplier,
        **_bytes(ready, records, costs),
        "bytes_setup_per_client": len(ready.setup),
        "secure_overhead_up_bytes_per_client_round": None,
        "secure_expansion": None,
        "paper_cost_up_bytes": paper_up,
        "paper_cost_down_bytes": paper_down,
        "joules_per_client": None,
        "seconds": None if plan is not None else round(sum(record["seconds"] for record in records), 3),
        "bits_per_coordinate": 32 if plan is not None and plan.bits is None else ready.coding.bits,
        "dim": scheme.dim,
        "message_length": scheme.length,
        "clients": assembly.cohort.clients,
        "expected_cohort": assembly.cohort.expected,
        "weighting": "records" if assembly.weighted else "equal",
        "aborted_rounds": sum("aborted" in record for record in records),
        "stopped_early": len(records) < experiment.experiment.rounds,
    }
    if plan is None:
        summary["failures"] = sum(len(record.get("failures", ())) for record in records)
    else:
        described = plan.describe()
        summary["privacy"] = described
        summary["note"] = described["note"]
        summary["budget_spent"] = len(records) == plan.rounds < experiment.experiment.rounds
    if isinstance(ready.coding, FloatGrid):
        summary["quantisation_step"] = ready.coding.step
        summary["quantisation_error_at_most"] = ready.coding.step / 2 * assembly.cohort.most / assembly.cohort.expected
    if experiment.secure == "real":
        up, parts = _measured(records)[0] if plan is None else (costs.client.up, 1)
        summary |= secure_cost(ready, up, parts)
    if ready.election is not None and assembly.vote_plan is not None:
        summary["vote"] = {
            "note": "the coordinates came from a private vote before round 1",
            "noise_multiplier": assembly.vote_plan.noise_multiplier,
            "epsilon": assembly.vote_plan.epsilon,
            "bits_per_coordinate": assembly.vote_plan.bits,
        }
    if "public" in assembly.splits:
        table = experiment.scheme
        summary["public"] = table.public or f"{table.public_samples} records set aside from {experiment.data.source}"
        summary["public_records"] = len(public_records(assembly))  # those that were used, after balancing
    if assembly.network.binary:
        for name in ("balanced_accuracy", "auroc"):
            summary[f"{name}_final"] = final and final[name]
            summary[f"{name}_best"] = best and best[name]
    return summary


def enrolment_cost(costs: Costs) -> Record | None:
    """Return what a client sends and receives once, to enrol for a session of rounds; None if keys live a round."""
    return costs.once._asdict() if costs.enrolment else None


def _bytes(ready: Ready, records: list[Record], costs: Costs) -> Record:
    """Return what travelled: measured, or in a private run what was to be expected."""
    vote = ready.election and ready.election.costs.round
    if ready.plan is not None:
        each, (up, down) = costs.client, costs.total(len(records))
        shares: tuple[int | float | None, ...] = each
    else:
        (up, senders), (down, asked) = _measured(records)
        shares = _share(up, senders), _share(down, asked)
    return {
        "bytes_up_per_client_round": shares[0],
        "bytes_down_per_client_round": shares[1],
        "bytes_up_total": up,
        "bytes_down_total": down,
        "bytes_enrolment_per_client": enrolment_cost(costs),
        "bytes_vote_up_total": vote and vote.up,
        "bytes_vote_down_total": vote and vote.down,
    }


def _measured(records: list[Record]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the bytes up and their senders, and the bytes down and their receivers; not of a private run."""
    up, down, senders, asked = (
        sum(record[key] for record in records) for key in ("bytes_up", "bytes_down", "senders", "cohort")
    )
    return (up, senders), (down, asked)


def secure_cost(ready: Ready, up: int, senders: int) -> Record:
    """Return what a secure sum cost: bytes up beside the packed vectors, and times them, all phases counted."""
    length = ready.scheme.length if ready.plan is None else ready.plan.word_length
    packed = -(-length * ready.coding.bits // 8)
    return {
        "secure_overhead_up_bytes_per_client_round": _share(up - senders * packed, senders),
        "secure_expansion": up / (senders * packed) if senders else None,
    }


def _share(total: int, parts: int) -> int | float | None:
    if not parts:
        return None
    return total // parts if total % parts == 0 else total / parts
