"""Watch the memory of W from outside: a process that plays it, and its workers.

Run as a program this file is the process that is watched. It keeps

    sums       as a run does: each worker adds up what its clients send;
    passing    nothing, but every update reaches the parent, which adds it up at once;
    updates    all updates of a round in the parent, 665 MB, until the last has come.
"""

from __future__ import annotations

from benchmarks.measure import quiet_threads

quiet_threads()

import subprocess  # noqa: E402
import sys  # noqa: E402

from benchmarks.measure import Peak, watch  # noqa: E402

__all__ = ["peak"]


def peak(kept: str, source: str, rounds: int = 2) -> Peak:
    """Return the most that W held while it played some rounds and evaluated after each."""
    command = [sys.executable, "-m", "benchmarks.memory", kept, source, str(rounds)]
    process = subprocess.Popen(command)
    with watch(process.pid) as seen:
        code = process.wait()
    if code:
        raise SystemExit(f"{' '.join(command)} ended with exit code {code}")
    return seen


def play(kept: str, source: str, count: int) -> None:
    """Play rounds of W, keeping sums or single updates."""
    # Not above: whoever watches needs none of it, and it must not be torch's memory that is seen here.
    from benchmarks.workload import workload
    from sottovoce.assembly.engines import start_engine
    from sottovoce.assembly.protection import protect
    from sottovoce.assembly.stages import TRAINING, stages
    from sottovoce.federation.engine import drive
    from sottovoce.federation.round import server_round

    parts = workload(source)
    with start_engine(parts) as (engine, evaluator):
        ready = stages(protect(parts))[TRAINING].server_side(evaluator)
        ready.enrol(engine)
        state = ready.server.init(parts.start)
        for round_ in range(1, count + 1):
            conversation = server_round(ready.server, state, round_)
            if kept == "sums":
                state = drive(engine, conversation).state
            else:
                request = next(conversation)
                updates: dict[int, bytes] = {}
                take = updates.__setitem__ if kept == "updates" else request.take
                reply = engine.send(request._replace(sum=None, take=take))
                for client, update in updates.items():
                    request.take(client, update)
                try:
                    conversation.send(reply)
                except StopIteration as stop:
                    state = stop.value.state
            evaluator.scores(state["params"], "test")


if __name__ == "__main__":
    play(sys.argv[1], sys.argv[2], int(sys.argv[3]))
