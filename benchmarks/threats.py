"""Measure the defences on 100 updates of the CNN (1,663,370 parameters each), beside plain numpy and beside byzfl.

    python -m benchmarks.threats                   ours beside numpy
    python -m benchmarks.threats --peer            and beside byzfl, in an environment of its own
    python -m benchmarks.threats --only krum median

What was asked is wall time on two cores. On a machine that others keep busy wall time says nothing: there half of the
CPU time, which is that of all threads, is compared with what was asked. Best of some runs in turn.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Cost, cost_of, load, watch
from sottovoce.threats.defences import known, make

Array = NDArray[Any]

ROWS, COLUMNS, MALICIOUS = 100, 1_663_370, 20
ASKED = {"krum": 2.0, "median": 3.0, "trimmed-mean": 3.0}  # seconds on two cores
BYZFL = ("median", "trimmed-mean", "krum", "multi-krum", "geometric-median")


def ranked(x: Array, neighbours: int) -> Array:
    """Return rows by Krum's score; float32 products, as numpy users do."""
    products = x @ x.T
    norms = np.diag(products)
    distances = np.maximum(norms[:, None] + norms - 2 * products, 0)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(np.sort(distances, axis=1)[:, :neighbours].sum(axis=1))


def bulyan(x: Array, f: int, g: Array) -> Array:
    left, chosen = list(range(len(x))), []
    while len(chosen) < len(x) - 2 * f:  # its distances are made once, as ours are
        if not chosen:
            products = x @ x.T
            norms = np.diag(products)
            distances = np.maximum(norms[:, None] + norms - 2 * products, 0)
            np.fill_diagonal(distances, np.inf)
        some = np.sort(distances[np.ix_(left, left)], axis=1)[:, : max(1, len(left) - f - 2)].sum(axis=1)
        chosen.append(left.pop(int(np.argmin(some))))
    kept = x[chosen]
    nearest = np.argsort(np.abs(kept - np.median(kept, axis=0)), axis=0)[: len(chosen) - 2 * f]
    return np.asarray(np.take_along_axis(kept, nearest, axis=0).mean(axis=0))


def geometric_median(x: Array, f: int, g: Array) -> Array:
    point = x.mean(axis=0)
    for _ in range(10):
        weights = 1 / np.maximum(1e-6, np.linalg.norm(x - point, axis=1))
        point = (weights / weights.sum()) @ x
    return point


def norm_bound(x: Array, f: int, g: Array) -> Array:
    norms = np.linalg.norm(x, axis=1)
    return np.asarray(np.minimum(1, np.median(norms) / norms) @ x / len(x))


def fltrust(x: Array, f: int, g: Array) -> Array:
    norms, length = np.linalg.norm(x, axis=1), np.linalg.norm(g)
    trust = np.maximum(0, x @ g / (norms * length))
    return np.asarray((trust * length / norms) @ x / trust.sum())


PLAIN: dict[str, Callable[[Array, int, Array], Array]] = {
    "median": lambda x, f, g: np.median(x, axis=0),
    "trimmed-mean": lambda x, f, g: np.partition(x, (f, len(x) - f - 1), axis=0)[f : len(x) - f].mean(axis=0),
    "krum": lambda x, f, g: x[ranked(x, len(x) - f - 2)[0]],
    "multi-krum": lambda x, f, g: x[ranked(x, len(x) - f - 2)[: len(x) - f]].mean(axis=0),
    "bulyan": bulyan,
    "geometric-median": geometric_median,
    "norm-bound": norm_bound,
    "fltrust": fltrust,
}


class Byzfl:
    """Ask the peer's process for one measurement at a time."""

    def __init__(self, python: Path, array: str) -> None:
        quiet = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.peer_byzfl", str(ROWS), str(COLUMNS), str(MALICIOUS), array],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parent.parent,
            env={name: value for name, value in os.environ.items() if name not in quiet},
        )
        self._read()

    def __call__(self, name: str) -> Cost:
        """Let the peer run one defence."""
        stdin: IO[str] | None = self._process.stdin
        if stdin is not None:
            stdin.write(f"{name}\n")
            stdin.flush()
        wall, cpu = map(float, self._read().split())
        return Cost(wall, cpu)

    def close(self) -> None:
        """End the peer."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def _read(self) -> str:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise RuntimeError("byzfl's process ended")
        return line


@contextmanager
def byzfl(array: str, wanted: bool) -> Iterator[Callable[[str], Cost] | None]:
    """Start the peer, or say why it is not there."""
    if not wanted:
        yield None
        return
    from benchmarks.peers import TORCH, PeerError, environment  # keeps threads to one, which we do not want before

    try:
        peer = Byzfl(environment("byzfl", [TORCH, "byzfl>=0.0.11,<1"]), array)
    except (PeerError, OSError, RuntimeError) as error:
        print(f"byzfl is not measured: {error}", file=sys.stderr)
        yield None
        return
    try:
        yield peer
    finally:
        peer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", action="store_true", help="measure byzfl too")
    parser.add_argument("--only", nargs="+", choices=known(), default=known())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-numpy", action="store_true", help="leave plain numpy out: it takes long")
    arguments = parser.parse_args()
    missed = False
    with tempfile.NamedTemporaryFile() as file:
        updates, reference = matrix(file.name)
        with byzfl(file.name, arguments.peer) as peer:
            by = "half of the CPU time, as the machine is busy" if busy() else "wall time"
            print(f"{ROWS} x {COLUMNS:,}, {MALICIOUS} malicious, best of {arguments.repeats}; {load()}; judged by {by}")
            print(
                f"{'':18}{'wall s':>8}{'CPU s':>8}{'asked':>7}{'+ MB':>7} |{'numpy':>8}{'CPU s':>8}{'x CPU':>7} |"
                f"{'byzfl':>8}{'CPU s':>8}{'x CPU':>7}"
            )
            for name in arguments.only:
                missed |= row(name, updates, reference, arguments, peer)
    return int(missed)


def matrix(path: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Write updates that have something in common to a file, where the peer finds them too; read them all once."""
    rng = np.random.default_rng(0)
    updates = np.memmap(path, np.float32, "w+", shape=(ROWS, COLUMNS))
    common = rng.standard_normal(COLUMNS, dtype=np.float32)
    for client in range(ROWS):
        updates[client] = common + rng.standard_normal(COLUMNS, dtype=np.float32)
    updates[:MALICIOUS] *= -20
    return np.array(updates), common


def row(
    name: str,
    updates: NDArray[np.float32],
    reference: NDArray[np.float32],
    arguments: argparse.Namespace,
    peer: Callable[[str], Cost] | None,
) -> bool:
    """Measure one defence and print its line; tell whether it took longer than was asked."""
    defence, pid = make(name), os.getpid()
    few = np.ascontiguousarray(updates[:, :2000])
    defence.estimate(few, MALICIOUS, reference[:2000])  # compiled
    ours, plain, theirs, more = [], [], [], 0.0
    for _ in range(arguments.repeats):
        with watch(pid) as peak:
            peak.see(pid)
            before = peak.parent
            ours.append(cost_of(lambda: defence.estimate(updates, MALICIOUS, reference)))
        more = max(more, peak.parent - before)
        if not arguments.no_numpy:
            plain.append(cost_of(lambda: PLAIN[name](updates, MALICIOUS, reference)))
        if peer is not None and name in BYZFL:
            theirs.append(peer(name))
    best = _best(ours)
    asked = ASKED.get(name)
    late = asked is not None and (best.cpu / 2 if busy() else best.wall) > asked
    print(
        f"{name:18}{best.wall:8.2f}{best.cpu:8.2f}{'' if asked is None else f'{asked:.0f}':>7}{more:7.0f} |"
        f"{_beside(plain, best)} |{_beside(theirs, best)}{'  MISSED' if late else ''}",
        flush=True,
    )
    return late


def busy() -> bool:
    """Tell whether others use the cores: our own two threads make a load of two."""
    return os.getloadavg()[0] > 3


def _best(costs: list[Cost]) -> Cost:
    return Cost(min(cost.wall for cost in costs), min(cost.cpu for cost in costs))


def _beside(costs: list[Cost], ours: Cost) -> str:
    if not costs:
        return " " * 23
    best = _best(costs)
    return f"{best.wall:8.2f}{best.cpu:8.2f}{best.cpu / ours.cpu:7.1f}"


if __name__ == "__main__":
    sys.exit(main())
