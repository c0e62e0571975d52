"""Say what a run will cost before it trains: bytes and time of a real round, whose model is thrown away."""

from __future__ import annotations

import time
from typing import Any

from sottovoce.experiment.build import Assembly, Ready, assemble
from sottovoce.experiment.config import Experiment
from sottovoce.federation.local import LocalEngine
from sottovoce.federation.round import RoundResult, server_round

__all__ = ["plan"]


def plan(experiment: Experiment) -> dict[str, Any]:
    """Return the costs of an experiment; raise what running it would raise."""
    assembly = assemble(experiment)
    rounds = experiment.experiment.rounds
    expected = assembly.cohort.expected
    with assembly.engine() as engine:
        ready = assembly.ready(engine)
        seconds, total = _measure(assembly, ready, engine)
    bound, privacy = ready.scheme, ready.plan
    up, down = (round(size / max(total.cohort, 1)) for size in (total.total.bytes_up, total.total.bytes_down))
    paper_up, paper_down = (4 * values * rounds * float(assembly.cohort.sample_rate) for values in bound.paper_values)
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
        "bytes_up_total": round(up * expected * rounds),
        "bytes_down_total": round(down * expected * rounds),
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
        "phases": {phase: {"up": up, "down": down} for phase, (up, down) in total.total.phases.items()},
        "joules_per_client": None,
        "seconds_per_round": seconds,
        "seconds_total": seconds * rounds,
    }


def _measure(assembly: Assembly, ready: Ready, engine: LocalEngine) -> tuple[float, RoundResult]:
    """Play two rounds with real clients, one to warm up; their model is thrown away and nothing is published."""
    ready.enrol(assembly, engine)
    state = ready.server.init(assembly.start)
    for round_ in (1, 2):
        began = time.perf_counter()
        result = engine.run(server_round(ready.server, state, round_))
        seconds, state = time.perf_counter() - began, result.state
    return round(seconds, 4), result
