"""One client in a process without torch and numba: it plays what another recorded, and tells what it would send.

Run as a script, with a file of pickled `Case`s; it prints one line of JSON.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
from pathlib import Path
from typing import Any, NamedTuple

HEAVY = ("torch", "numba", "scipy.stats", "sklearn", "plotly", "matplotlib", "dp_accounting", "pandas")


class Case(NamedTuple):
    """What a client is told, and what it sent: (round, phase, request, digest of the answer)."""

    name: str
    tables: dict[str, Any] | None  # the experiment, from which the client itself makes the rest; or
    told: tuple[Any, Any, Any] | None  # blueprint, arrays, enrolment
    client: int
    heard: list[tuple[int, str, bytes, str]]


def digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def memory() -> int:
    """Return the most MB that this process has had in memory; 0 where nobody counts."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), 0)


def play(case: Case) -> list[str]:
    from sottovoce.federation.client import ClientState
    from sottovoce.federation.engines.worker import Worker

    told = case.told
    if told is None:
        from sottovoce.assembly.parts import gather
        from sottovoce.assembly.protection import protect
        from sottovoce.assembly.stages import TRAINING, stages
        from sottovoce.config.experiment import parse
        from sottovoce.privacy.plan.process import solving_apart

        parts = gather(parse(case.tables))
        with solving_apart():
            enrolment = stages(protect(parts))[TRAINING].server_side().enrolment
        told = parts.blueprint(), parts.arrays(["train"]), enrolment
    worker = Worker(*told[:2])
    worker.enrol(told[2])
    client, state, sent = worker.host.client(case.client), ClientState(memory=told[2].memory), []
    for round_, phase, request, _ in case.heard:
        answer, state = client.answer(round_, phase, request, state)
        sent.append(digest(answer))
    return sent


if __name__ == "__main__":
    sys.modules["torch"] = sys.modules["numba"] = None  # type: ignore[assignment]
    from sottovoce.deployment.node.join import give_back_large_pieces
    from tests.federation.lean_client import Case  # the one that was pickled

    give_back_large_pieces()
    cases: list[Case] = pickle.loads(Path(sys.argv[1]).read_bytes())
    sent = {case.name: play(case) for case in cases}
    loaded = [name for name in HEAVY if sys.modules.get(name) is not None]
    print(json.dumps({"sent": sent, "loaded": loaded, "memory": memory()}))
