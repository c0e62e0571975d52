"""What a Flower fleet costs: bytes on the wire, seconds, CPU and memory of a SuperNode; run it where flwr is installed.

    .venv-flower/bin/python -m benchmarks.flower

Three SuperNodes on this machine, TLS, real secure aggregation on digits. Bytes are counted by a TCP proxy before each
SuperNode; CPU is that of the SuperNode and of all processes that it started, from /proc.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
import time
from pathlib import Path

from tests.engines.flower.test_flower import NODES, TABLES, Trial, trial

IDLE = 60.0  # seconds


class Proxy:
    """A TCP proxy that counts."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.up = self.down = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._socket.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self._to))
            except ConnectionRefusedError:  # the SuperLink has ended
                near.close()
                continue
            threading.Thread(target=self._pass, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if up:
                    self.up += len(data)
                else:
                    self.down += len(data)
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            each.close()


def family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def cpu_seconds(pid: int) -> float:
    """Return the CPU of a process and of those that it started, also of those that have ended."""
    total = 0
    for each in family(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
    return total / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    """Return the resident bytes of a process and of those that it started."""
    pages = 0
    for each in family(pid):
        try:
            pages += int(Path(f"/proc/{each}/statm").read_text().split()[1])
        except FileNotFoundError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, trial(Path(folder), TABLES) as held:
        measure(held)


def measure(held: Trial) -> None:
    fleet, proxies = held.fleet, []
    port = fleet.port
    for number in range(NODES):
        proxies.append(Proxy(port))
        fleet.port = proxies[-1].port
        held.join(number)
    fleet.port = port
    time.sleep(15)
    before = [(proxy.up, proxy.down) for proxy in proxies]
    time.sleep(IDLE)
    idle = sum(proxy.up + proxy.down for proxy in proxies) - sum(map(sum, before))
    pid = fleet.processes["n0"].pid
    cpu, wire, began, most = cpu_seconds(pid), (proxies[0].up, proxies[0].down), time.monotonic(), 0
    held.submit()
    while not (held.out / "summary.json").exists():
        most = max(most, resident(pid))
        time.sleep(0.1)
    seconds = time.monotonic() - began
    operator = [json.loads(line) for line in (held.out / "operator.jsonl").read_text().splitlines()]
    payload = sum(record["bytes_up"] + record["bytes_down"] for record in operator) / NODES
    phases = sum(len(record["phases"]) for record in operator)
    moved = proxies[0].up + proxies[0].down - wire[0] - wire[1]
    told = {
        "rounds": len(operator),
        "phases": phases,
        "seconds_a_round": [record["seconds"] for record in operator],
        "seconds_a_phase": sum(record["seconds"] for record in operator) / phases,
        "seconds_of_the_run": seconds,
        "payload_bytes_a_node": payload,
        "wire_bytes_a_node": moved,
        "wire_bytes_beyond_payload_a_phase": (moved - payload) / phases,
        "idle_bytes_a_node_and_day": idle / NODES * 86400 / IDLE,
        "cpu_seconds_a_node_and_phase": (cpu_seconds(pid) - cpu) / phases,
        "resident_mb_of_a_node": most / 1e6,
    }
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
