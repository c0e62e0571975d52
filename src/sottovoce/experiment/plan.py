"""Say what a run will cost before it trains: bytes from real payloads, time from a few real clients."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from sottovoce.core import wire
from sottovoce.core.streams import Purpose
from sottovoce.experiment.build import Assembly, assemble
from sottovoce.experiment.config import Experiment
from sottovoce.federation.round import server_round
from sottovoce.schemes import Scheme

__all__ = ["plan"]


def plan(experiment: Experiment) -> dict[str, Any]:
    """Return the costs of an experiment; raise what running it would raise."""
    assembly = assemble(experiment)
    rounds = experiment.experiment.rounds
    expected = assembly.cohort.expected
    bound = assembly.scheme.bind(assembly.network.dim, seed=assembly.streams.seed, start=assembly.start())
    up, down = _payloads(assembly, bound)
    seconds = _seconds_per_round(assembly)
    paper_up, paper_down = (4 * values * rounds * float(assembly.cohort.sample_rate) for values in bound.paper_values)
    return {
        "scheme": bound.name,
        "model": assembly.network.name,
        "dim": bound.dim,
        "message_length": bound.length,
        "clients": assembly.cohort.clients,
        "expected_cohort": expected,
        "rounds": rounds,
        "records_per_client": assembly.partition.sizes,
        "bytes_up_per_client_round": up,
        "bytes_down_per_client_round": down,
        "bytes_setup_per_client": len(assembly.setup(bound)),
        "bytes_up_per_round": round(up * expected),
        "bytes_down_per_round": round(down * expected),
        "bytes_up_total": round(up * expected * rounds),
        "bytes_down_total": round(down * expected * rounds),
        "paper_cost_up_bytes": paper_up,
        "paper_cost_down_bytes": paper_down,
        "private": False,
        "epsilon": None,
        "epsilon_server": None,
        "joules_per_client": None,
        "seconds_per_round": seconds,
        "seconds_total": seconds * rounds,
    }


def _payloads(assembly: Assembly, bound: Scheme) -> tuple[int, int]:
    """Return the sizes of an uplink and a downlink payload, from payloads that were really made."""
    seed = bound.round_seed(2)
    state = bound.init(assembly.start())
    rng = assembly.streams.get(Purpose.ENCODE, 0, 0)
    message = bound.encode(np.zeros(bound.dim, np.float32), seed, rng)
    if bound.form == "ballots":
        up = len(wire.frame(message, length=bound.length, bits=1))
    else:
        up = len(wire.pack(message))
    state = bound.decode(np.zeros(bound.length, np.float32), state, seed, assembly.streams.get(Purpose.DECODE, 0))
    return up, len(bound.downlink(state, seed))


def _seconds_per_round(assembly: Assembly) -> float:
    """Time real clients: one round to warm up, one to measure; its model is thrown away."""
    with assembly.engine() as engine:
        bound = assembly.bind(engine)
        engine.enrol(assembly.scheme, assembly.setup(bound), {})
        server, state = assembly.server(bound), bound.init(assembly.start())
        seconds = 0.0
        for round_ in (1, 2):
            began = time.perf_counter()
            state = engine.run(server_round(server, state, round_)).state
            seconds = time.perf_counter() - began
    return round(seconds, 4)
