"""Measure a count of ballots: CPU of a client, of leader and helper, bytes of each, and the epsilons.

A hundred clients at the 8,317 values that FL-TOP keeps and at the CNN's 1,663,370. Both aggregators play the whole
protocol in one process, base transfers included in the first round and left out of the second, which is reported: they
are made once a session. The helper's calls are timed one by one, and the rest of the round is the leader's.
"""

from __future__ import annotations

import hashlib
import math
import os
import resource
import sys
from time import process_time
from typing import NamedTuple

import numpy as np

from benchmarks.table import Row, missed, show
from sottovoce.privacy import PrivacyPlan, Randomness
from sottovoce.secagg import verifying_key
from sottovoce.secagg.ballots import BallotTerms, Helper, Leader, ballot_size, cast
from sottovoce.secagg.primitives import exchange_key

CLIENTS = 100
FULL = 1_663_370
KEPT = 8_317
DOWNLINK = bytes(32)


class Costs(NamedTuple):
    """Hold what one round took: milliseconds of CPU, bytes of a client, kilobytes between the aggregators."""

    client: float
    leader: float
    helper: float
    up: int
    between: float
    session: float  # base transfers, both sides


class Free:
    """An account that admits everybody and writes nothing."""

    def check_round(self, round_: int) -> None:
        """Allow every round."""

    def admits(self, client: int, round_: int) -> bool:
        """Admit every client."""
        return True

    def reserve(self, round_: int, clients: list[int], *, counter: int, session: str) -> None:
        """Write nothing."""

    def compare(self, round_: int, own: bytes, expected: bytes) -> None:
        """Write nothing."""

    def differ(self, round_: int) -> None:
        """Write nothing."""

    def charge(self, round_: int) -> None:
        """Charge nothing."""


def rows() -> list[Row]:
    """Return every measurement that was asked for, and a few beside."""
    small = min((_round(KEPT) for _ in range(3)), key=lambda costs: costs.leader + costs.helper)
    full = _round(FULL)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Row("bytes up of a client, n = 8,317", small.up, "B", 1_250),
        Row("bytes up of a client, n = 1,663,370", full.up, "B", 208_200),
        Row("client, n = 8,317", small.client, "ms", 1),
        Row("client, n = 1,663,370", full.client, "ms", 5),
        Row("leader, n = 8,317, 100 ballots", small.leader, "ms", 400),
        Row("helper, n = 8,317, 100 ballots", small.helper, "ms", 400),
        Row("leader, n = 1,663,370, 100 ballots", full.leader, "ms", 40_000),
        Row("helper, n = 1,663,370, 100 ballots", full.helper, "ms", 40_000),
        Row("between them, n = 8,317", small.between, "kB", 30_400),
        Row("between them, n = 1,663,370", full.between, "kB", 6_000_000),
        Row("memory of both, and of 100 ballots, at the most", peak, "MB", 500),
        Row("base transfers, once a session, both sides", small.session, "ms"),
    ]


def _round(length: int) -> Costs:
    keys = {name: hashlib.sha256(name.encode()).digest() for name in ("leader", "helper", "exchange")}
    signing = [hashlib.sha256(f"client {client}".encode()).digest() for client in range(CLIENTS)]
    registered = {client: verifying_key(key) for client, key in enumerate(signing)}
    terms = BallotTerms(
        config_digest=bytes(32),
        session=os.urandom(16),
        length=length,
        bits=16,
        floor=2,
        cap=183,
        last_round=2,
        participations=2,
        leader_key=verifying_key(keys["leader"]),
        helper_key=verifying_key(keys["helper"]),
        helper_exchange=exchange_key(keys["exchange"]),
    )
    plan = PrivacyPlan.solve(**_papers(length), noise_multiplier=1.2244 * math.sqrt(2))

    def noise(round_: int) -> np.ndarray:
        return plan.aggregator_noise(Randomness.system())

    helper = Helper(
        terms, keys["helper"], keys["exchange"], registered, account=Free(), noise=noise, entropy=os.urandom
    )
    spent, sent = {"helper": 0.0, "hello": 0.0}, [0]

    def answer(kind: str, payload: bytes) -> bytes:
        began = process_time()
        reply = helper.answer(kind, payload)
        spent["hello" if kind == "hello" else "helper"] += process_time() - began
        sent[0] += len(payload) + len(reply)
        return reply

    leader = Leader(terms, keys["leader"], registered, answer, os.urandom)
    rng = np.random.default_rng(1)
    leader.begin(1, [], DOWNLINK)
    began = process_time()
    leader.agree()  # base transfers, and a round without ballots
    session = process_time() - began
    leader.multiply()
    leader.compare()
    leader.open(noise(1))
    spent["helper"], sent[0] = 0.0, 0
    ballots = []
    for _ in range(CLIENTS):
        packed = rng.integers(0, 256, (length + 7) // 8, np.uint8)
        packed[-1] &= 0xFF >> -length % 8
        ballots.append(packed)
    leader.begin(2, range(CLIENTS), DOWNLINK)
    client, own = math.inf, 0.0
    for number, packed in enumerate(ballots):
        began = process_time()
        message = cast(
            terms, 2, number, packed.tobytes(), downlink=DOWNLINK, signing_key=signing[number], entropy=os.urandom
        )
        client = min(client, process_time() - began)
        began = process_time()
        leader.accept(number, message)
        own += process_time() - began
    began = process_time()
    leader.agree()
    leader.multiply()
    leader.compare()
    leader.open(noise(2))
    own += process_time() - began - spent["helper"]
    return Costs(1e3 * client, 1e3 * own, 1e3 * spent["helper"], ballot_size(length), sent[0] / 1e3, 1e3 * session)


def _papers(length: int) -> dict[str, object]:
    return {
        "clients": 6000,
        "sample_rate": 1 / 60,
        "rounds": 200,
        "delta": 1e-5,
        "clip_norm": 1.0,
        "length": length,
        "noise_by": "aggregators",
    }


def epsilons() -> bool:
    """Print what each adversary's epsilon is beside what it should be; return whether all are within 0.003."""
    right = True
    for each, most, outsiders, aggregator in (
        (1.2244, 1, 0.573, 3.468),
        (1.2244, 3, 0.573, 6.575),
        (0.8658, 1, 1.000, 5.177),
        (0.8658, 3, 1.000, 10.00),
    ):
        plan = PrivacyPlan.solve(**_papers(KEPT), noise_multiplier=each * math.sqrt(2), max_participations=most)
        found = f"outsiders {plan.epsilon:.3f} ({outsiders:.3f}), each {plan.epsilon_server:.3f} ({aggregator:.3f})"
        print(f"z_a {each}, {most} participations: epsilon of {found}")
        right &= max(abs(plan.epsilon - outsiders), abs(plan.epsilon_server - aggregator)) <= 0.003
    return right


if __name__ == "__main__":
    measured = rows()
    show(measured)
    sys.exit(0 if epsilons() and not missed(measured) else 1)
