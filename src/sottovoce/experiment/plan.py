"""Say what a run will cost before it trains: bytes and time of a real round, whose model is thrown away."""

from __future__ import annotations

import time
from typing import Any

from sottovoce.experiment.assemble import assemble
from sottovoce.experiment.build import Assembly, Ready
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.papers import paper_cost
from sottovoce.experiment.summary import secure_cost
from sottovoce.federation.local import LocalEngine
from sottovoce.federation.round import RoundResult, server_round
from sottovoce.federation.secure import ENROLMENT

__all__ = ["plan"]


def plan(experiment: Experiment) -> dict[str, Any]:
    """Return the costs of an experiment; raise what running it would raise."""
    assembly = assemble(experiment)
    rounds = experiment.experiment.rounds
    expected = assembly.cohort.expected
    with assembly.engine() as engine:
        ready = assembly.elect(assembly.ready(engine), engine, _ThrownAway())
        seconds, first, total = _measure(assembly, ready, engine)
    bound, privacy = ready.scheme, ready.plan
    cohort = max(total.cohort, 1)
    up, down = (round(size / cohort) for size in (total.total.bytes_up, total.total.bytes_down))
    once_up, once_down = _enrolment(first)
    paper_up, paper_down = paper_cost(bound, assembly.cohort, privacy, rounds)
    return {
        "scheme": bound.name,
        "model": assembly.network.name,
        "dim": bound.dim,
        "message_length": bound.length,
        "clients": assembly.cohort.clients,
        "expected_cohort": expected,
        "rounds": rounds,
        "records_per_client": assembly.partition.sizes._asdict(),
        "bytes_up_per_client_round": up,
        "bytes_down_per_client_round": down,
        "bytes_setup_per_client": len(ready.setup),
        "bytes_up_per_round": round(up * expected),
        "bytes_down_per_round": round(down * expected),
        "bytes_up_total": round((up * rounds + once_up) * expected),
        "bytes_down_total": round((down * rounds + once_down) * expected),
        "bytes_per_client_phase": {
            phase: {"up": round(up / cohort), "down": round(down / cohort)}
            for phase, (up, down) in total.total.phases.items()
        },
        "bytes_enrolment_per_client": {"up": once_up, "down": once_down} if once_down else None,
        "bytes_vote_up_total": ready.election and ready.election.total.bytes_up,
        "bytes_vote_down_total": ready.election and ready.election.total.bytes_down,
        "secure_overhead_up_bytes_per_client_round": None,
        "secure_expansion": None,
        **(secure_cost(ready, total.total.bytes_up, total.total.senders) if experiment.secure == "real" else {}),
        "paper_cost_up_bytes_all_rounds": paper_up,
        "paper_cost_down_bytes_all_rounds": paper_down,
        "secure": experiment.secure,
        "private": privacy is not None,
        "epsilon": None if privacy is None else privacy.epsilon,
        "epsilon_server": None if privacy is None else privacy.epsilon_server,
        "delta": None if privacy is None else privacy.request.delta,
        "noise_multiplier": None if privacy is None else privacy.noise_multiplier,
        "bits_per_coordinate": 32 if privacy is not None and privacy.bits is None else ready.coding.bits,
        "privacy": None if privacy is None else privacy.describe(),
        "joules_per_client": None,
        "seconds_per_round": seconds,
        "seconds_total": seconds * rounds,
    }


class _ThrownAway:
    """The account of rounds whose outcome nobody sees."""

    def drawn(self, round_: int, commitment: str) -> None:
        """Record nothing."""

    def charge(self, round_: int) -> None:
        """Charge nothing."""


def _measure(assembly: Assembly, ready: Ready, engine: LocalEngine) -> tuple[float, RoundResult, RoundResult]:
    """Play two rounds with real clients, one to warm up; their model is thrown away and nothing is published."""
    ready.enrol(assembly, engine)
    server = ready.server.with_account(_ThrownAway())
    first = engine.run(server_round(server, server.init(assembly.start), 1))
    began = time.perf_counter()
    second = engine.run(server_round(server, first.state, 2))
    return round(time.perf_counter() - began, 4), first, second


def _enrolment(first: RoundResult) -> tuple[int, int]:
    """Return what a client sends and receives once, to enrol for a session of rounds; nothing if keys live a round."""
    phases = [first.total.phases.get(phase, (0, 0)) for phase in ENROLMENT]
    up, down = (sum(sizes) for sizes in zip(*phases, strict=True))
    return round(up / max(first.cohort, 1)), round(down / max(first.cohort, 1))
