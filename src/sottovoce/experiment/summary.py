"""Sum a run up: what came out, and what it cost."""

from __future__ import annotations

from typing import Any

from sottovoce.experiment.build import Assembly, Ready
from sottovoce.experiment.measure import public_records
from sottovoce.experiment.papers import paper_cost
from sottovoce.federation.coding import Grid

__all__ = ["secure_cost", "summarise"]

Record = dict[str, Any]


def summarise(assembly: Assembly, ready: Ready, records: list[Record], *, spent: int) -> Record:
    """Return the fields of summary.json; what does not apply is null. Epsilon is for all rounds that were charged."""
    experiment, scheme, plan = assembly.experiment, ready.scheme, ready.plan
    evaluated = [record for record in records if record.get("accuracy") is not None]
    lead = "balanced_accuracy" if assembly.network.binary else "accuracy"
    best = max(evaluated, key=lambda record: record[lead], default=None)
    final = evaluated[-1] if evaluated else None
    up, down = (sum(record[key] for record in records) for key in ("bytes_up", "bytes_down"))
    senders = sum(record["senders"] for record in records)
    asked = sum(record["cohort"] for record in records)
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
        "epsilon": None if plan is None else plan.epsilon_after(min(spent, plan.rounds)),
        "epsilon_server": None if plan is None else plan.epsilon_server,
        "delta": None if plan is None else plan.request.delta,
        "noise_multiplier": None if plan is None else plan.noise_multiplier,
        "bytes_up_per_client_round": _share(up, senders),
        "bytes_down_per_client_round": _share(down, asked),
        "bytes_up_total": up,
        "bytes_down_total": down,
        "bytes_setup_per_client": len(ready.setup),
        "bytes_vote_up_total": ready.election and ready.election.total.bytes_up,
        "bytes_vote_down_total": ready.election and ready.election.total.bytes_down,
        "secure_overhead_up_bytes_per_client_round": None,
        "secure_expansion": None,
        "paper_cost_up_bytes": paper_up,
        "paper_cost_down_bytes": paper_down,
        "joules_per_client": None,
        "seconds": round(sum(record["seconds"] for record in records), 3),
        "bits_per_coordinate": 32 if plan is not None and plan.bits is None else ready.coding.bits,
        "dim": scheme.dim,
        "message_length": scheme.length,
        "clients": assembly.cohort.clients,
        "expected_cohort": assembly.cohort.expected,
        "weighting": "records" if assembly.weighted else "equal",
        "failures": sum(len(record.get("failures", ())) for record in records),
        "aborted_rounds": sum("reason" in record for record in records),
        "stopped_early": len(records) < experiment.experiment.rounds,
    }
    if plan is not None:
        described = plan.describe()
        summary["privacy"] = described
        summary["note"] = described["note"]
        summary["budget_spent"] = len(records) == plan.rounds < experiment.experiment.rounds
    if isinstance(ready.coding, Grid):
        summary["quantisation_step"] = ready.coding.step
        summary["quantisation_error_at_most"] = ready.coding.step / 2 * assembly.cohort.most / assembly.cohort.expected
    if experiment.secure == "real":
        summary |= secure_cost(ready, up, senders)
    if ready.election is not None and assembly.vote_plan is not None:
        summary["vote"] = {
            "note": "the coordinates came from a private vote before round 1",
            "cohort": ready.election.cohort,
            "senders": ready.election.total.senders,
            "noise_multiplier": assembly.vote_plan.noise_multiplier,
            "epsilon": assembly.vote_plan.epsilon,
            "bits_per_coordinate": assembly.vote_plan.bits,
            "failures": len(ready.election.total.failures),
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
