"""Measure the engine on the reference workload W, interleaved with the plain PyTorch loop.

W: Fashion-MNIST, the 1,663,370-parameter CNN, 6000 clients with 10 images, 100 a round, 5 SGD steps of batch 10.
Without Fashion-MNIST at hand, random images of the same size stand in; the work is the same but for the zeros.
"""

from __future__ import annotations

from benchmarks.measure import quiet_threads

quiet_threads()

import argparse  # noqa: E402
import json  # noqa: E402
import statistics  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

from benchmarks.measure import Cost, children, cost_of, memory  # noqa: E402
from benchmarks.plain_loop import PlainLoop  # noqa: E402
from sottovoce.core.errors import DataError  # noqa: E402
from sottovoce.data import load  # noqa: E402
from sottovoce.experiment.build import Assembly, assemble  # noqa: E402
from sottovoce.experiment.config import parse  # noqa: E402
from sottovoce.federation.round import server_round  # noqa: E402

FLOP = 361.9e9  # of one round of W, dense


def workload(source: str, **changes: dict[str, Any]) -> Assembly:
    """Return W with changed tables."""
    tables: dict[str, dict[str, Any]] = {
        "data": {"source": source, "clients": 6000},
        "model": {"name": "cnn"},
        "client": {"local_steps": 5, "batch_size": 10, "client_lr": 0.215},
        "cohort": {"sampling": "fixed", "sample_rate": "1/60"},
        "scheme": {"name": "fl-std"},
    }
    for name, table in changes.items():
        tables[name] = {**tables.get(name, {}), **table}
    return assemble(parse(tables))


@contextmanager
def rounds(assembly: Assembly) -> Iterator[tuple[Callable[[], None], Callable[[], None], list[int]]]:
    """Yield a function that plays the next round, one that evaluates, and the workers' process ids."""
    before = set(children())
    with assembly.engine() as engine:
        ready = assembly.ready(engine)
        ready.enrol(assembly, engine)
        server, state, count = ready.server, ready.server.init(assembly.start), 0

        def play() -> None:
            nonlocal state, count
            count += 1
            state = engine.run(server_round(server, state, count)).state

        def evaluate() -> None:
            engine.scores(state["params"], "test")

        play()  # compile kernels, fault pages in
        yield play, evaluate, sorted(set(children()) - before)


def sgemm_seconds() -> float:
    """Return the seconds that W's dense arithmetic takes at the rate of a large matrix product on one core."""
    a = np.random.default_rng(0).standard_normal((1500, 1500), np.float32)
    a @ a
    best = min(cost_of(lambda: a @ a).cpu for _ in range(5))
    return FLOP / (2 * 1500**3 / best)


def compare(source: str, repeats: int) -> dict[str, Any]:
    """Measure one round of each contender in turn, `repeats` times."""
    torch_ = workload(source, client={"trainer": "torch"})
    fast = workload(source)
    top = workload(source, scheme={"name": "fl-top", "ratio": 0.005})
    one = workload(source, engine={"workers": 1})
    plain = PlainLoop(fast.dataset.x_train, fast.dataset.y_train)
    shards = [fast.partition.records(client) for client in range(100)]
    test = fast.dataset.x_test
    times: dict[str, list[Cost]] = {}

    def note(name: str, work: Callable[[], None], pids: list[int]) -> None:
        times.setdefault(name, []).append(cost_of(work, pids))

    plain.round(shards[:5])
    peak = 0.0
    with (
        rounds(torch_) as (torch_play, torch_evaluate, torch_pids),
        rounds(fast) as (play, evaluate, pids),
        rounds(top) as (top_play, _, top_pids),
        rounds(one) as (one_play, _, one_pids),
    ):
        for _ in range(repeats):
            note("plain loop", lambda: plain.round(shards), [])
            note("torch trainer", torch_play, torch_pids)
            note("auto trainer", play, pids)
            note("auto trainer, fl-top 0.5 %", top_play, top_pids)
            note("auto trainer, one worker", one_play, one_pids)
            note("evaluation, plain torch", lambda: plain.evaluate(test), [])
            note("evaluation, torch trainer", torch_evaluate, torch_pids)
            note("evaluation, auto trainer", evaluate, pids)
            peak = max(peak, memory(pids))
    bound = sgemm_seconds()
    result: dict[str, Any] = {}
    for name, costs in times.items():
        base = times["evaluation, plain torch" if name.startswith("evaluation") else "plain loop"]
        cpu, wall = (statistics.median(getattr(cost, kind) for cost in costs) for kind in ("cpu", "wall"))
        base_cpu, base_wall = (statistics.median(getattr(cost, kind) for cost in base) for kind in ("cpu", "wall"))
        result[name] = {"cpu": cpu, "wall": wall, "cpu_ratio": cpu / base_cpu, "wall_ratio": wall / base_wall}
        if not name.startswith("evaluation"):
            result[name]["of_sgemm_bound"] = bound / cpu
    result["two workers against one, wall"] = (
        result["auto trainer, one worker"]["wall"] / result["auto trainer"]["wall"]
    )
    result["workers' memory, MB"] = peak
    return result


def scale(source: str, repeats: int) -> dict[str, Any]:
    """Compare a thousand and a million registered clients, same cohort."""
    result: dict[str, Any] = {}
    times: dict[int, list[float]] = {1000: [], 1_000_000: []}
    setups = {
        clients: workload(
            source, data={"clients": clients, "partition": "virtual"}, cohort={"sample_rate": f"100/{clients}"}
        )
        for clients in times
    }
    with rounds(setups[1000]) as (few, _, few_pids), rounds(setups[1_000_000]) as (many, _, many_pids):
        for _ in range(repeats):
            times[1000].append(cost_of(few, few_pids).cpu)
            times[1_000_000].append(cost_of(many, many_pids).cpu)
        result["memory, 10^6 against 10^3 clients"] = memory(many_pids) / memory(few_pids)
    result["CPU a round, 10^6 against 10^3 clients"] = statistics.median(times[1_000_000]) / statistics.median(
        times[1000]
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = _source(Path(folder))
        began = time.perf_counter()
        result = {**compare(source, arguments.repeats), **scale(source, arguments.repeats)}
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"W, one round, median of {arguments.repeats} interleaved ({time.perf_counter() - began:.0f} s in all)")
    print(f"{'':34}{'CPU s':>8}{'wall s':>8}{'CPU x':>8}{'wall x':>8}{'sgemm':>8}")
    for name, value in result.items():
        if isinstance(value, dict):
            bound = f"{value['of_sgemm_bound']:8.2f}" if "of_sgemm_bound" in value else ""
            print(f"{name:34}{value['cpu']:8.2f}{value['wall']:8.2f}{value['cpu_ratio']:8.2f}", end="")
            print(f"{value['wall_ratio']:8.2f}{bound}")
        else:
            print(f"{name:50}{value:8.2f}")


def _source(folder: Path) -> str:
    try:
        load("fashion-mnist")
    except DataError:
        rng = np.random.default_rng(0)
        path = folder / "random.npz"
        x = rng.integers(0, 256, (60000, 28, 28, 1), np.uint8)
        y = rng.integers(0, 10, 60000)
        np.savez(path, x_train=x, y_train=y, x_test=x[:10000], y_test=y[:10000])
        return str(path)
    return "fashion-mnist"


if __name__ == "__main__":
    main()
