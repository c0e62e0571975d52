"""Emulate thin links in userspace: every packet of a node passes a queue with a rate, a delay, losses and outages.

Each node has a network namespace of its own, with one TUN device. This process holds the far ends of all devices and
hands packets on when their time has come, so that the kernels' own TCP meets what it would meet on a radio. Needs root
and Linux; `allowed` says whether it can be done here.

    with Emulator({"n0": LINKS["2g"]}) as net:
        net.popen("n0", ["sottovoce", "join", ...])       # the hub is at net.hub
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import selectors
import struct
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

HUB: Final = "10.77.0.1"
_NEW_NET: Final = 0x40000000
_TUN: Final = 0x0001 | 0x1000  # IFF_TUN, IFF_NO_PI
_SET: Final = 0x400454CA
_QUEUE: Final = 3.0  # seconds of bytes that a link's queue holds, as a modem's does; at least ten packets
_MTU: Final = 1500
_CUBIC: Final = ("congctl", "cubic")  # as nearly all brokers and nodes have it, whatever this machine has


class Link(NamedTuple):
    """What a link does to packets: bits and seconds; an outage of `down` seconds follows `up` good ones."""

    rate: float
    round_trip: tuple[float, float]  # least and most, drawn for every packet, which keep their order
    loss: float = 0.0
    up: float = 0.0  # 0: always
    down: float = 0.0


LINKS: Final = {
    "2g": Link(20e3, (1.0, 1.0)),
    "satellite": Link(500e3, (1.0, 1.0), loss=0.02),
    "5k": Link(5e3, (1.0, 1.0)),
    "nb-iot": Link(20e3, (2.0, 10.0)),
    "flapping": Link(64e3, (0.6, 0.6), up=20.0, down=40.0),
}


@dataclass
class _Way:
    """One direction of a link."""

    link: Link
    out: int  # the file that packets leave by
    offset: float  # of the outages
    free: float = 0.0  # when the link has sent all that waits
    last: float = 0.0  # when the newest packet arrives
    bytes: int = 0
    lost: int = 0

    def due(self, size: int, now: float, rng: random.Random) -> float | None:
        """Return when a packet arrives; None: it is lost."""
        link = self.link
        if link.down and (now + self.offset) % (link.up + link.down) >= link.up:
            self.lost += 1
            return None
        start = max(now, self.free)
        if start - now > max(_QUEUE, 10 * _MTU * 8 / link.rate) or rng.random() < link.loss:
            self.lost += 1
            return None
        self.free = start + size * 8 / link.rate
        self.bytes += size
        self.last = max(self.last, self.free + rng.uniform(*link.round_trip) / 2)
        return self.last


@dataclass
class _Place:
    """A network namespace, held by a process that sleeps in it."""

    holder: subprocess.Popen[bytes]

    @classmethod
    def make(cls) -> _Place:
        """Return a new one, in which nobody but loopback is there."""
        ready, told = os.pipe()
        command = ["unshare", "-n", "sh", "-c", f"ip link set lo up; echo >&{told}; exec sleep 1000000"]
        holder = subprocess.Popen(command, pass_fds=[told])
        os.close(told)
        try:
            if not os.read(ready, 1):
                raise OSError("namespaces are not allowed here")
        finally:
            os.close(ready)
        return cls(holder)

    def enter(self) -> list[str]:
        """Return the words before a command that is to run in it."""
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]

    def run(self, *words: str) -> None:
        subprocess.run([*self.enter(), *words], check=True)

    def tun(self, name: str) -> int:
        """Return the near end of a new device in it; threads stay where they are but for this moment."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path("/proc/self/ns/net").open() as here, Path(f"/proc/{self.holder.pid}/ns/net").open() as there:
            if libc.setns(there.fileno(), _NEW_NET):
                raise OSError(ctypes.get_errno(), "setns")
            try:
                device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
                fcntl.ioctl(device, _SET, struct.pack("16sH", name.encode(), _TUN))
            finally:
                libc.setns(here.fileno(), _NEW_NET)
        return device


@dataclass
class Emulator:
    """Nodes behind emulated links, and a hub that all of them reach at `hub`."""

    links: Mapping[str, Link]
    seed: int = 1
    hub: str = HUB
    _places: dict[str, _Place] = field(default_factory=dict)
    _ways: dict[int, tuple[str, _Way]] = field(default_factory=dict)  # by the file that packets come in by
    _over: bool = False
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        rng = random.Random(self.seed)
        self._places[""] = _Place.make()
        self._places[""].run("ip", "addr", "add", f"{self.hub}/32", "dev", "lo")
        for number, (name, link) in enumerate(self.links.items()):
            place = self._places[name] = _Place.make()
            near, far, address = place.tun("t0"), self._places[""].tun(f"t{number}"), f"10.77.1.{number + 1}"
            place.run("ip", "addr", "add", f"{address}/32", "dev", "t0")
            place.run("ip", "link", "set", "t0", "up")
            place.run("ip", "route", "add", "default", "dev", "t0", *_CUBIC)
            self._places[""].run("ip", "link", "set", f"t{number}", "up")
            self._places[""].run("ip", "route", "add", f"{address}/32", "dev", f"t{number}", "src", self.hub, *_CUBIC)
            offset = rng.uniform(0, link.up + link.down)
            self._ways[near] = name, _Way(link, far, offset)
            self._ways[far] = name, _Way(link, near, offset)
        self._thread = threading.Thread(target=self._carry, args=(rng,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        if self._thread is not None:
            self._thread.join()
        for place in self._places.values():
            place.holder.kill()
            place.holder.wait()
        for file in self._ways:
            os.close(file)

    def popen(self, name: str, command: Sequence[str], **more: Any) -> subprocess.Popen[bytes]:
        """Start a process at a node, or with "" at the hub."""
        return subprocess.Popen([*self._places[name].enter(), *command], **more)

    def carried(self, name: str) -> int:
        """Return the bytes that a node's link has carried, both ways, with headers of TCP and IP."""
        return sum(way.bytes for owner, way in self._ways.values() if owner == name)

    def _carry(self, rng: random.Random) -> None:
        waiting: list[tuple[float, int, int, bytes]] = []
        selector, number = selectors.DefaultSelector(), 0
        for file in self._ways:
            selector.register(file, selectors.EVENT_READ)
        while not self._over:
            patience = min(0.5, max(0.0, waiting[0][0] - time.monotonic())) if waiting else 0.5
            for key, _ in selector.select(patience):
                _, way = self._ways[key.fd]
                try:
                    packet = os.read(key.fd, 65536)
                except BlockingIOError:
                    continue
                if packet[0] >> 4 == 4 and (due := way.due(len(packet), time.monotonic(), rng)) is not None:
                    number += 1
                    heapq.heappush(waiting, (due, number, way.out, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, out, packet = heapq.heappop(waiting)
                try:
                    os.write(out, packet)
                except OSError:  # the far end's process has gone
                    continue


def allowed() -> bool:
    """Tell whether this machine lets us make namespaces and TUN devices."""
    try:
        with Emulator({"n0": LINKS["2g"]}):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False
