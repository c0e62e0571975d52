"""Measure W beside pfl-research and Flower: `make bench-peers`.

Each peer lives in an environment of its own under `.venv-peers`, made here with pip, and runs W as its documentation
says (`peer_pfl.py`, `peer_flower.py`). All contenders stay up and play a round in turn, so that they meet the same
machine; starting up is not counted for anybody. What cannot be installed or fails says so in its row.
"""

from __future__ import annotations

from benchmarks.measure import quiet_threads

quiet_threads()

import argparse  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import ExitStack, contextmanager, suppress  # noqa: E402
from pathlib import Path  # noqa: E402
from time import perf_counter  # noqa: E402
from typing import IO  # noqa: E402

import numpy as np  # noqa: E402

from benchmarks.engine import rounds  # noqa: E402
from benchmarks.measure import Cost, cost_of, family, family_cpu, load, memory  # noqa: E402
from benchmarks.plain_loop import PlainLoop  # noqa: E402
from benchmarks.workload import W, source_of_w, workload  # noqa: E402
from sottovoce.assembly.parts import Parts  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.0"  # as constraints.txt
PEERS = {
    "pfl": ("pfl-research", "benchmarks.peer_pfl", [TORCH, "pfl[pytorch]>=0.4,<1"]),
    "flower": ("Flower simulation", "benchmarks.peer_flower", [TORCH, "flwr[simulation]>=1.41,<2"]),
}
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # else its workers step back behind whatever else the machine does
}
Round = Callable[[], Cost]


class PeerError(Exception):
    """Say why a peer cannot be measured."""


def environment(name: str, requirements: list[str]) -> Path:
    """Return the python of a peer's environment, which is made when it is not there or asks for other packages."""
    folder = ROOT / ".venv-peers" / name
    stamp, python = folder / "requirements.txt", folder / "bin" / "python"
    wanted = "\n".join(requirements)
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {', '.join(requirements)}", file=sys.stderr)
        for command in ([sys.executable, "-m", "venv", str(folder)], [python, "-m", "pip", "install", *requirements]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise PeerError(f"not installed: {_last(done.stderr)}")
        stamp.write_text(wanted)
    return python


class Peer:
    """Drive a peer's process: a line asks for a round, "done" says that it is over."""

    def __init__(self, python: Path, module: str, arrays: Path) -> None:
        folder = arrays.parent
        self._log = folder / f"{module}.log"
        given = {"PYTHONPATH": str(ROOT), "PEER_ARRAYS": str(arrays), "FLWR_HOME": str(folder / "flwr")}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [python, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env={**os.environ, **QUIET, **given},
            )
        self._members: set[int] = set()
        self._wait()

    def round(self) -> Cost:
        """Play a round; the CPU time is that of all of the peer's processes."""
        pid = self._process.pid
        wall, cpu = perf_counter(), family_cpu(pid)
        self._ask()
        self._wait()
        return Cost(perf_counter() - wall, family_cpu(pid) - cpu)

    def memory(self) -> float:
        """Return the megabytes that the peer holds now."""
        return memory(family(self._process.pid))

    def close(self) -> None:
        """End the peer's own processes, also those that outlive their parent."""
        with suppress(OSError):
            self._members.update(family(self._process.pid)[1:])
            self._pipe().close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=20)
        for member in self._members | {self._process.pid}:
            if self._process.poll() is None or member != self._process.pid:
                with suppress(OSError):
                    os.kill(member, signal.SIGKILL)
        self._process.wait()

    def _ask(self) -> None:
        self._members.update(family(self._process.pid)[1:])
        try:
            self._pipe().write("\n")
            self._pipe().flush()
        except OSError:
            raise PeerError(f"ended: {_last(self._log.read_text())}") from None

    def _wait(self) -> None:
        if self._process.stdout is None:
            raise PeerError("has no output")
        for line in self._process.stdout:
            if line.startswith("done"):
                return
            if line.startswith("failed"):
                raise PeerError(line.strip())
        raise PeerError(f"ended: {_last(self._log.read_text())}")

    def _pipe(self) -> IO[str]:
        if self._process.stdin is None:
            raise PeerError("has no input")
        return self._process.stdin


@contextmanager
def peer(name: str, arrays: Path) -> Iterator[Peer]:
    """Start a peer; it has played one round when it is handed out."""
    _, module, requirements = PEERS[name]
    running = Peer(environment(name, requirements), module, arrays)
    try:
        yield running
    finally:
        running.close()


def write_arrays(parts: Parts, cohort: int, path: Path) -> None:
    """Write what peers need: the records of all clients, client by client."""
    clients = parts.partition.clients
    order = np.concatenate([parts.partition.records(client) for client in range(clients)])
    data, training = parts.dataset, parts.training()
    np.savez(
        path,
        x=data.x_train[order],
        y=data.y_train[order],
        clients=clients,
        cohort=cohort,
        steps=training.local_steps,
        lr=training.client_lr,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clients", type=int, default=W.clients)
    parser.add_argument("--cohort", type=int, default=W.cohort)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        parts = workload(
            source_of_w(Path(folder)),
            data={"clients": arguments.clients, "partition": "iid"},
            cohort={"sample_rate": f"{arguments.cohort}/{arguments.clients}"},
        )
        arrays = Path(folder) / "arrays.npz"
        write_arrays(parts, arguments.cohort, arrays)
        plain = PlainLoop(parts.dataset.x_train, parts.dataset.y_train)
        shards = [parts.partition.records(client) for client in range(arguments.cohort)]
        plain.round(shards[:5])
        play, _, pids = stack.enter_context(rounds(parts))
        contenders: dict[str, Round] = {
            "plain loop": lambda: cost_of(lambda: plain.round(shards)),
            "sottovoce": lambda: cost_of(play, pids),
        }
        failures: dict[str, str] = {}
        running: dict[str, Peer] = {}
        for name, (label, _, _) in PEERS.items():
            try:
                running[label] = stack.enter_context(peer(name, arrays))
                contenders[label] = running[label].round
            except (PeerError, OSError) as error:
                failures[label] = str(error)
        print(f"W with {arguments.cohort} of {arguments.clients} clients, median of {arguments.repeats}; {load()}")
        times: dict[str, list[Cost]] = {}
        for _ in range(arguments.repeats):
            for label, contender in contenders.items():
                if label in failures:
                    continue
                try:
                    times.setdefault(label, []).append(contender())
                except PeerError as error:
                    failures[label] = str(error)
        held = {label: peer_.memory() for label, peer_ in running.items() if label not in failures}
    show(times, held, failures)


def show(times: dict[str, list[Cost]], held: dict[str, float], failures: dict[str, str]) -> None:
    """Print a table; ratios are against the plain loop."""
    print(f"{'':24}{'CPU s':>8}{'wall s':>8}{'CPU x':>8}{'wall x':>8}{'MB after':>10}")
    base = times["plain loop"]
    for label, costs in times.items():
        if label in failures:
            continue
        cpu, wall = (statistics.median(getattr(cost, kind) for cost in costs) for kind in ("cpu", "wall"))
        base_cpu, base_wall = (statistics.median(getattr(cost, kind) for cost in base) for kind in ("cpu", "wall"))
        megabytes = f"{held[label]:10.0f}" if label in held else ""
        print(f"{label:24}{cpu:8.2f}{wall:8.2f}{cpu / base_cpu:8.2f}{wall / base_wall:8.2f}{megabytes}")
    for label, reason in failures.items():
        print(f"{label:24} not measured: {reason}")


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


if __name__ == "__main__":
    main()
