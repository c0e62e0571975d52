"""Measure what the simulated clock adds to a round, in CPU time of the server's process beside that of the whole round.

The clock is measured inside the rounds themselves: the CPU time of its calls, over the CPU time that the process and
its workers spend in the same rounds. Run by `python -m benchmarks.devices`.
"""

from __future__ import annotations

import argparse
import os
import resource
from pathlib import Path
from time import process_time
from typing import Any

from sottovoce.assembly.engines import start_engine
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.config.experiment import load
from sottovoce.devices import RoundClock
from sottovoce.federation.engine import drive
from sottovoce.federation.round import costs_of, server_round
from sottovoce.runs.devices import make_timing

ROOT = Path(__file__).parents[1]
CASES = {
    "W (fashion, cnn, 100 a round)": ("fashion-std.toml", ()),
    "digits, mlp, 10 a round": ("devices-digits.toml", ()),
    "digits, mlp, 10 a round, real secure sums": ("devices-digits.toml", ("aggregation.secure=real",)),
}


class Stopwatch:
    """The CPU time of all calls of the clock."""

    def __init__(self) -> None:
        self.spent = 0.0

    def around(self, method: Any) -> Any:
        """Return a method whose CPU time is counted."""

        def timed(*args: Any) -> Any:
            began = process_time()
            try:
                return method(*args)
            finally:
                self.spent += process_time() - began

        return timed


def share(file: str, changes: tuple[str, ...], rounds: int) -> tuple[float, float]:
    """Return the clock's CPU seconds in a round, and those of the round."""
    experiment = load(
        ROOT / "experiments" / file,
        ("devices.profile=phone-lte", "engine.workers=1", "experiment.rounds=1000", *changes),
    )
    parts = gather(experiment)
    watch = Stopwatch()
    plain = {name: getattr(RoundClock, name) for name in ("__init__", "lost", "passed", "end")}
    with start_engine(parts) as (engine, evaluator):
        ready = stages(protect(parts))[TRAINING].server_side(evaluator)
        state = ready.server.init(parts.start)
        ready.enrol(engine)
        timing = make_timing(parts, costs_of(ready.server, state))
        if timing is None:
            raise RuntimeError("the case has no profile")
        timed = timing.around(engine)
        for number in range(1, 3):  # workers compile and warm up
            state = drive(timed, server_round(ready.server, state, number)).state
        for name, method in plain.items():
            setattr(RoundClock, name, watch.around(method))
        try:
            before = _cpu(engine)
            for number in range(3, 3 + rounds):
                state = drive(timed, server_round(ready.server, state, number)).state
                timing.tell(timed.told(number))
            whole = _cpu(engine) - before
        finally:
            for name, method in plain.items():
                setattr(RoundClock, name, method)
    return watch.spent / rounds, whole / rounds


def _cpu(engine: Any) -> float:
    """Return the CPU seconds of this process and of the engine's workers."""
    workers = engine.engine._processes
    ticks = os.sysconf("SC_CLK_TCK")
    total = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    for worker in workers:
        fields = Path(f"/proc/{worker.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def main() -> int:
    """Print the clock's share of each case; the wish is 2 % at most."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--case", type=int, choices=range(len(CASES)), action="append")
    asked = parser.parse_args()
    print("| case | clock, ms of CPU a round | round, ms of CPU | share |\n|---|---|---|---|")
    for number, (name, (file, changes)) in enumerate(CASES.items()):
        if asked.case is None or number in asked.case:
            clock, whole = share(file, changes, max(2, asked.rounds if number else asked.rounds // 5))
            print(f"| {name} | {1000 * clock:.2f} | {1000 * whole:.1f} | {clock / whole:.2%} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
