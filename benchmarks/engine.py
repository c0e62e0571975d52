"""Measure the engine on the reference workload W, interleaved with the plain PyTorch loop."""

from __future__ import annotations

from benchmarks.measure import quiet_threads

quiet_threads()

import argparse  # noqa: E402
import json  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import NamedTuple  # noqa: E402

import numpy as np  # noqa: E402

from benchmarks.measure import Cost, children, cost_of, load, memory  # noqa: E402
from benchmarks.memory import peak  # noqa: E402
from benchmarks.overhead import overheads  # noqa: E402
from benchmarks.plain_loop import PlainLoop  # noqa: E402
from benchmarks.workload import W, source_of_w, workload  # noqa: E402
from sottovoce.assembly.engines import start_engine  # noqa: E402
from sottovoce.assembly.parts import Parts, gather  # noqa: E402
from sottovoce.assembly.protection import protect  # noqa: E402
from sottovoce.assembly.stages import TRAINING, stages  # noqa: E402
from sottovoce.config.experiment import parse  # noqa: E402
from sottovoce.federation.engine import drive  # noqa: E402
from sottovoce.federation.round import server_round  # noqa: E402
from sottovoce.models import Shard, Trainer, make_trainer  # noqa: E402

PLAIN, EVALUATION = "plain loop", "evaluation, plain torch"  # what others are measured against
LIMITS = {  # of the CPU time, against PLAIN or EVALUATION
    "auto trainer": 0.40,
    "auto trainer, fl-top 0.5 %": 0.33,
    "evaluation, auto trainer": 1.0,
}


class Figure(NamedTuple):
    """Hold one measured number and what was asked of it."""

    value: float
    unit: str = ""
    most: float | None = None
    least: float | None = None

    @property
    def missed(self) -> bool:
        """Tell whether it is not what was asked."""
        return (self.most is not None and self.value > self.most) or (
            self.least is not None and self.value < self.least
        )

    def __str__(self) -> str:
        asked = "" if self.most is None else f"at most {self.most:g}"
        asked = asked if self.least is None else f"at least {self.least:g}"
        return f"{self.value:10.2f} {self.unit:4}{asked:>16}{'  MISSED' if self.missed else ''}"


@contextmanager
def rounds(parts: Parts) -> Iterator[tuple[Callable[[], None], Callable[[], None], list[int]]]:
    """Yield a function that plays the next round, one that evaluates, and the workers' process ids."""
    before = set(children())
    with start_engine(parts) as (engine, evaluator):
        ready = stages(protect(parts))[TRAINING].server_side(evaluator)
        ready.enrol(engine)
        server, state, count = ready.server, ready.server.init(parts.start), 0

        def play() -> None:
            nonlocal state, count
            count += 1
            state = drive(engine, server_round(server, state, count)).state

        def evaluate() -> None:
            evaluator.scores(state["params"], "test")

        play()  # compile kernels, fault pages in
        yield play, evaluate, sorted(set(children()) - before)


def sgemm_seconds() -> float:
    """Return the seconds that W's dense arithmetic takes at the rate of a large matrix product on one core."""
    a = np.random.default_rng(0).standard_normal((1500, 1500), np.float32)
    a @ a
    best = min(cost_of(lambda: a @ a).cpu for _ in range(5))
    return W.flop / (2 * 1500**3 / best)


def compare(source: str, repeats: int) -> tuple[dict[str, dict[str, float]], dict[str, Figure]]:
    """Measure one round of each contender in turn, `repeats` times."""
    torch_ = workload(source, client={"trainer": "torch"})
    fast = workload(source)
    top = workload(source, scheme={"name": "fl-top", "ratio": 0.005})
    one = workload(source, engine={"workers": 1})
    plain = PlainLoop(fast.dataset.x_train, fast.dataset.y_train)
    shards = [fast.partition.records(client) for client in range(W.cohort)]
    test = fast.dataset.x_test
    times: dict[str, list[Cost]] = {}
    bounds = [sgemm_seconds()]

    def note(name: str, work: Callable[[], None], pids: list[int]) -> None:
        times.setdefault(name, []).append(cost_of(work, pids))

    plain.round(shards[:5])
    with (
        rounds(torch_) as (torch_play, torch_evaluate, torch_pids),
        rounds(fast) as (play, evaluate, pids),
        rounds(top) as (top_play, _, top_pids),
        rounds(one) as (one_play, _, one_pids),
    ):
        for _ in range(repeats):
            note(PLAIN, lambda: plain.round(shards), [])
            note("torch trainer", torch_play, torch_pids)
            note("auto trainer", play, pids)
            note("auto trainer, fl-top 0.5 %", top_play, top_pids)
            note("auto trainer, one worker", one_play, one_pids)
            note(EVALUATION, lambda: plain.evaluate(test), [])
            note("evaluation, torch trainer", torch_evaluate, torch_pids)
            note("evaluation, auto trainer", evaluate, pids)
            bounds.append(sgemm_seconds())
    bound = statistics.median(bounds)
    table: dict[str, dict[str, float]] = {}
    for name, costs in times.items():
        base = times[EVALUATION if name.startswith("evaluation") else PLAIN]
        cpu, wall = (statistics.median(getattr(cost, kind) for cost in costs) for kind in ("cpu", "wall"))
        base_cpu, base_wall = (statistics.median(getattr(cost, kind) for cost in base) for kind in ("cpu", "wall"))
        table[name] = {"cpu": cpu, "wall": wall, "cpu_ratio": cpu / base_cpu, "wall_ratio": wall / base_wall}
        if not name.startswith("evaluation"):
            table[name]["of_sgemm_bound"] = bound / cpu
    one_wall, two_wall = (table[name]["wall"] for name in ("auto trainer, one worker", "auto trainer"))
    figures = {f"{name}, CPU": Figure(table[name]["cpu_ratio"], "x", most=most) for name, most in LIMITS.items()}
    figures["two workers against one, wall"] = Figure(one_wall / two_wall, "x", least=1.8)
    figures["sgemm bound of W"] = Figure(bound, "s")
    return table, figures


def scale(source: str, repeats: int) -> dict[str, Figure]:
    """Compare a thousand and a million registered clients, same cohort."""
    times: dict[int, list[float]] = {1000: [], 1_000_000: []}
    setups = {
        clients: workload(
            source, data={"clients": clients, "partition": "virtual"}, cohort={"sample_rate": f"{W.cohort}/{clients}"}
        )
        for clients in times
    }
    with rounds(setups[1000]) as (few, _, few_pids), rounds(setups[1_000_000]) as (many, _, many_pids):
        for _ in range(repeats):
            times[1000].append(cost_of(few, few_pids).cpu)
            times[1_000_000].append(cost_of(many, many_pids).cpu)
        ratio = memory(many_pids) / memory(few_pids)
    few_cpu, many_cpu = (statistics.median(times[clients]) for clients in (1000, 1_000_000))
    return {
        "workers' memory, 10^6 against 10^3 clients": Figure(ratio, "x"),
        "CPU a round, 10^6 against 10^3 clients": Figure(many_cpu / few_cpu, "x"),
    }


def held(source: str) -> dict[str, Figure]:
    """Return what W holds at its peak."""
    figures = {}
    for kept, most in (("sums", 700), ("passing", None), ("updates", 1000)):
        seen = peak(kept, source)
        figures[f"memory, {kept} kept: parent"] = Figure(seen.parent, "MB")
        figures[f"memory, {kept} kept: workers"] = Figure(seen.workers, "MB")
        figures[f"memory, {kept} kept: together"] = Figure(seen.together, "MB", most=most)
    return figures


def added(source: str, repeats: int) -> dict[str, Figure]:
    """Return what each scheme adds to a round."""
    training, found = overheads(workload(source), repeats)
    figures = {"training of one client, fl-std": Figure(1e3 * training, "ms")}
    for name, overhead in found.items():
        cost = f"{1e3 * overhead.client:.2f} ms a client + {1e3 * overhead.round:.0f} a round"
        figures[f"{name:10} adds {cost}"] = Figure(100 * overhead.share, "%", most=10)
    return figures


def small(repeats: int) -> dict[str, Figure]:
    """Compare both trainers where a client is a matter of microseconds."""
    return {
        f"digits, {name}: updates a second, fast against torch": Figure(_against_torch(name, repeats), "x", least=3)
        for name in ("mlp", "logistic")
    }


def _against_torch(name: str, repeats: int) -> float:
    parts = gather(parse({"data": {"source": "digits", "clients": 100}, "model": {"name": name}}))
    data = parts.dataset
    shards = [Shard(data.x_train[r], data.y_train[r]) for r in map(parts.partition.records, range(100))]
    torch_, fast = (make_trainer(parts.network, parts.training(), kind) for kind in ("torch", "fast"))

    def seconds(trainer: Trainer) -> float:
        rngs = [np.random.default_rng(client) for client in range(len(shards))]
        return cost_of(lambda: list(trainer.updates(parts.start, shards, rngs))).cpu

    seconds(torch_), seconds(fast)
    ratios = [seconds(torch_) / seconds(fast) for _ in range(repeats)]
    return statistics.median(ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=("compare", "scale", "memory", "overhead", "small"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    began, repeats, table = time.perf_counter(), arguments.repeats, {}
    figures: dict[str, Figure] = {}
    wanted = [arguments.only] if arguments.only else ["compare", "scale", "memory", "overhead", "small"]
    busy = load()
    with tempfile.TemporaryDirectory() as folder:
        source = source_of_w(Path(folder))
        if "compare" in wanted:
            table, figures = compare(source, repeats)
        for name, measure in (
            ("scale", lambda: scale(source, repeats)),
            ("memory", lambda: held(source)),
            ("overhead", lambda: added(source, repeats)),
            ("small", lambda: small(repeats)),
        ):
            if name in wanted:
                figures |= measure()
    if arguments.json:
        print(json.dumps({"rounds": table, "figures": {name: f._asdict() for name, f in figures.items()}}, indent=2))
    else:
        print(f"W on {source}, medians of {repeats} interleaved; {busy}; {time.perf_counter() - began:.0f} s in all")
        show(table, figures)
    return 1 if any(figure.missed for figure in figures.values()) else 0


def show(table: dict[str, dict[str, float]], figures: dict[str, Figure]) -> None:
    """Print what was found."""
    if table:
        print(f"{'':34}{'CPU s':>8}{'wall s':>8}{'CPU x':>8}{'wall x':>8}{'sgemm':>8}")
    for name, row in table.items():
        bound = f"{row['of_sgemm_bound']:8.2f}" if "of_sgemm_bound" in row else ""
        print(f"{name:34}{row['cpu']:8.2f}{row['wall']:8.2f}{row['cpu_ratio']:8.2f}{row['wall_ratio']:8.2f}{bound}")
    for name, figure in figures.items():
        print(f"{name:56}{figure}")


if __name__ == "__main__":
    sys.exit(main())
