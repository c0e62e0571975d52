"""What a run costs, told in the same words by `plan` beforehand and by the summary afterwards."""

from __future__ import annotations

from sottovoce.experiment.ready import Ready, warming
from sottovoce.experiment.records import Record
from sottovoce.federation.costs import Costs, costs_of

__all__ = ["enrolment_cost", "privacy_cost", "secure_cost", "share", "vote_cost", "warm_cost"]


def enrolment_cost(costs: Costs) -> Record | None:
    """Return what a client sends and receives once, to enrol for a session of rounds; None if keys live a round."""
    return costs.once._asdict() if costs.enrolment else None


def vote_cost(vote: Costs | None) -> Record:
    """Return what all clients together send and receive in the vote for the coordinates, if there is one."""
    return {
        "bytes_vote_up_total": None if vote is None else vote.round.up,
        "bytes_vote_down_total": None if vote is None else vote.round.down,
    }


def warm_cost(ready: Ready) -> Record:
    """Return what a warm start costs: bytes of each client and of all, and what it takes from the budget."""
    warm = warming(ready)
    if warm is None:
        return {"warm_start": None}
    costs, plan = costs_of(warm.server, warm.server.init(ready.protection.parts.start)), warm.plan
    told = None if plan is None else plan.describe()
    return {
        "warm_start": {
            "scheme": warm.scheme.name,
            "message_length": warm.scheme.length,
            "bytes_up_per_client": costs.client.up,
            "bytes_down_per_client": costs.client.down,
            "bytes_up_total": costs.round.up,
            "bytes_down_total": costs.round.down,
            "noise_multiplier": told and told["noise_multiplier"],
            "epsilon": told and told["epsilon"],
            "epsilon_server": told and told["epsilon_server"],
            "bits_per_coordinate": told and told["bits_per_coordinate"],
        }
    }


def privacy_cost(ready: Ready) -> Record:
    """Return what the plan promises against the server, and at which noise; null if the run is not private."""
    plan = ready.plan
    return {
        "epsilon_server": None if plan is None else plan.describe()["epsilon_server"],
        "delta": None if plan is None else plan.request.delta,
        "noise_multiplier": None if plan is None else plan.noise_multiplier,
        "bits_per_coordinate": 32 if plan is not None and plan.bits is None else ready.coding.bits,
    }


def secure_cost(ready: Ready, up: int, senders: int) -> Record:
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
