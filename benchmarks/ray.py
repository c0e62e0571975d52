"""Measure the engine on a Ray cluster of this machine, interleaved with the local engine.

make test-engines                     # makes the environment
.venv-ray/bin/python -m benchmarks.ray
"""

from __future__ import annotations

from benchmarks.measure import quiet_threads

quiet_threads()

import argparse  # noqa: E402
import os  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

from benchmarks.engine import Figure, rounds, show  # noqa: E402
from benchmarks.measure import Cost, cost_of, cpu_of, family, load, memory  # noqa: E402
from benchmarks.workload import W, source_of_w, workload  # noqa: E402

RAY = {"name": "ray", "workers": 2}
LOCAL = {"workers": 2}


def compare(source: str, repeats: int) -> dict[str, Figure]:
    """Measure a round of W on both engines in turn, from the second on; what Ray's own processes take, beside it."""
    costs: dict[str, list[Cost]] = {"local": [], "ray": []}
    driver: list[float] = []
    around: list[float] = []
    began = time.perf_counter()
    with (
        rounds(workload(source, engine=LOCAL)) as (play, _, workers),
        rounds(workload(source, engine=RAY)) as (play_there, _, _),
    ):
        started = time.perf_counter() - began
        theirs = sorted(set(family(os.getpid())) - {os.getpid(), *workers})
        actors = [pid for pid in theirs if _name(pid).startswith("ray::SottovoceWorker")]
        beside = sorted(set(theirs) - set(actors))
        for _ in range(repeats):
            costs["local"].append(cost_of(play, workers))
            mine, idle = time.process_time(), cpu_of(beside)
            costs["ray"].append(cost_of(play_there, actors))
            driver.append(time.process_time() - mine)
            around.append(cpu_of(beside) - idle)
        held = {"local": memory(workers) / len(workers), "ray": memory(actors) / len(actors)}
        own = memory(beside)
    taken = {name: statistics.median(cost.cpu for cost in some) for name, some in costs.items()}
    wall = {name: statistics.median(cost.wall for cost in some) for name, some in costs.items()}
    return {
        "both engines started, first round": Figure(started, "s"),
        "W, local: CPU a round": Figure(taken["local"], "s"),
        "W, ray: CPU a round": Figure(taken["ray"], "s"),
        "W, ray against local, CPU": Figure(taken["ray"] / taken["local"], "x", most=1.1),
        "W, ray: CPU of Ray's own processes a round": Figure(statistics.median(around), "s"),
        "W, ray against local, wall": Figure(wall["ray"] / wall["local"], "x"),
        "W, ray: CPU of the driver a round": Figure(statistics.median(driver), "s", most=0.15),
        "W, local: memory of a worker": Figure(held["local"], "MB"),
        "W, ray: memory of a worker": Figure(held["ray"], "MB"),
        "W, ray: memory of Ray's own processes": Figure(own, "MB"),
    }


def scale(source: str, repeats: int) -> dict[str, Figure]:
    """Watch the driver's own memory with a thousand and with a million virtual clients, same cohort."""
    figures = {}
    held: dict[int, float] = {}
    for clients in (1000, 1_000_000):
        parts = workload(
            source,
            data={"clients": clients, "partition": "virtual"},
            model={"name": "logistic"},
            cohort={"sample_rate": f"{W.cohort}/{clients}"},
            engine=RAY,
        )
        with rounds(parts) as (play, _, _):
            for _ in range(50):  # until the allocator has what it wants
                play()
            before = _own_memory()
            for _ in range(10 * repeats):
                play()
            held[clients] = _own_memory()
        figures[f"{clients:,} virtual clients: growth of the driver in {10 * repeats} rounds"] = Figure(
            held[clients] - before, "MB", most=5
        )
    figures["driver, 10^6 against 10^3 virtual clients"] = Figure(held[1_000_000] - held[1000], "MB", most=20)
    return figures


def _own_memory() -> float:
    """Return the megabytes that this process alone has; pages of the store are everybody's."""
    words = Path("/proc/self/status").read_text().split("RssAnon:")[1].split()
    return int(words[0]) / 1024


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=("compare", "scale"))
    arguments = parser.parse_args()
    busy, figures = load(), {}
    with tempfile.TemporaryDirectory() as folder:
        source = source_of_w(Path(folder))
        for name, measure in (("compare", compare), ("scale", scale)):
            if arguments.only in (None, name):
                figures |= measure(source, arguments.repeats)
    print(f"W on {source}, medians of {arguments.repeats} interleaved; {busy}")
    show({}, figures)
    return 1 if any(figure.missed for figure in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
