"""Measure what malicious clients add to a round of the reference workload W: CPU of all processes, rounds in turn.

python -m benchmarks.attacks
python -m benchmarks.attacks --only gradient-ascent --repeats 5
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.measure import children, cost_of, load
from benchmarks.workload import source_of_w, workload
from sottovoce.assembly.engines import start_engine
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.federation.engine import drive
from sottovoce.federation.round import server_round
from sottovoce.threats.attacks import ATTACKS

ASKED = 1.10
LINEAR = [name for name in ATTACKS if name not in ("quarter-modulus", "energy-aware")]  # those need a secure sum


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=LINEAR, default=LINEAR)
    asked = parser.parse_args()
    with ExitStack() as stack:
        source = source_of_w(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        plays = {}
        for name in ("nobody", *asked.only):
            threat = {} if name == "nobody" else {"threat": {"attack": name, "fraction": 0.1}}
            parts = workload(source, **threat)
            before = set(children())
            engine, evaluator = stack.enter_context(start_engine(parts))
            pids = sorted(set(children()) - before)
            ready = stages(protect(parts))[TRAINING].server_side(evaluator)
            ready.enrol(engine)
            start = ready.server.init(parts.start)

            def play(engine=engine, server=ready.server, state=start):
                drive(engine, server_round(server, state, 1))

            play()  # compiles
            plays[name] = (play, pids)
        seconds: dict[str, list[float]] = {name: [] for name in plays}
        for _ in range(asked.repeats):
            for name, (play, pids) in plays.items():
                seconds[name].append(cost_of(play, pids).cpu)
    print(f"{load()}; W with 10 of 100 clients malicious; median CPU seconds a round of {asked.repeats}")
    honest = median(seconds["nobody"])
    missed = 0
    for name, each in seconds.items():
        ratio = median(each) / honest
        missed += ratio > ASKED
        print(f"{name:20} {median(each):6.2f}  x {ratio:.2f}" + ("  MISSED: asked 1.10" if ratio > ASKED else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
