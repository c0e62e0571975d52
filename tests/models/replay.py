"""Record calls of compiled functions here, and write them down for `arm_driver.c`, which replays them elsewhere."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, NamedTuple

import numpy as np

FLOATING = {"d": "<d", "f": "<fxxxx"}


class Call(NamedTuple):
    name: str
    kind: int  # of the result: 0 none, 1 a 32-bit integer, 2 a double, 3 a 64-bit integer
    result: bytes
    integers: list[tuple[int, int]]
    reals: list[bytes]
    changed: list[tuple[int, bytes]]  # what buffers hold afterwards


class Tape:
    """The calls so far, and every piece of memory that they were given."""

    def __init__(self) -> None:
        self.buffers: list[bytes] = []
        self.places: list[tuple[int, int, int]] = []
        self.calls: list[Call] = []

    def buffer(self, content: bytes) -> int:
        self.buffers.append(content)
        return len(self.buffers) - 1

    def write(self, names: list[str]) -> bytes:
        parts = [struct.pack("<q", len(self.buffers))]
        for content in self.buffers:
            parts += [struct.pack("<q", len(content)), content]
        parts.append(struct.pack("<q", len(self.places)))
        parts += [struct.pack("<qqq", *place) for place in self.places]
        parts.append(struct.pack("<q", len(self.calls)))
        for call in self.calls:
            parts.append(struct.pack("<qqq", names.index(call.name), 2 if call.kind == 2 else 1, len(call.integers)))
            parts += [struct.pack("<qq", *one) for one in call.integers]
            parts += [struct.pack("<q", len(call.reals)), *call.reals]
        return b"".join(parts)

    def differences(self, told: bytes) -> list[str]:
        """Name the calls whose results, or whose memory in the end, are not what they were here."""
        found, at = [], 8 * len(self.calls)
        last = {buffer: (call.name, content) for call in self.calls for buffer, content in call.changed}
        for number, call in enumerate(self.calls):
            width = {0: 0, 1: 4, 2: 8, 3: 8}[call.kind]
            if told[8 * number : 8 * number + width] != call.result[:width]:
                found.append(f"{call.name} returned something else")
        for number, content in enumerate(self.buffers):
            name, expected = last.get(number, ("", content))
            if name and told[at : at + len(content)] != expected:
                found.append(f"{name} wrote something else")
            at += len(content)
        return found


class NativeSpy:
    """The functions of core/native, with every call on a tape; `place` stands for that of the module."""

    def __init__(self, functions: Any, signatures: dict[str, str], tape: Tape) -> None:
        self._functions, self._signatures, self._tape = functions, signatures, tape
        self._sizes: dict[int, int] = {}

    def place(self, array: Any) -> int:
        self._sizes[array.ctypes.data] = array.nbytes
        return array.ctypes.data  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        signature, function = self._signatures[name], getattr(self._functions, name)

        def call(*arguments: Any) -> Any:
            integers: list[tuple[int, int]] = []
            reals: list[bytes] = []
            known: dict[int, int] = {}
            for letter, value in zip(signature[1:], arguments, strict=True):
                if isinstance(value, bytes):
                    integers.append((1, self._tape.buffer(value)))
                elif letter == "p":
                    if value not in known:
                        known[value] = self._tape.buffer(ctypes.string_at(value, self._sizes[value]))
                    integers.append((1, known[value]))
                elif letter in FLOATING:
                    reals.append(struct.pack(FLOATING[letter], float(value)))
                else:
                    integers.append((0, int(value) - (1 << 64 if int(value) >= 1 << 63 else 0)))
            result = function(*arguments)
            kind = {"-": 0, "i": 1, "I": 1, "d": 2, "q": 3}[signature[0]]
            told = b"" if kind == 0 else struct.pack("<d", result) if kind == 2 else struct.pack("<q", result)
            changed = [(buffer, ctypes.string_at(at, self._sizes[at])) for at, buffer in known.items()]
            self._tape.calls.append(Call(name, kind, told, integers, reals, changed))
            return result

        return call


class KernelSpy:
    """The kernels of models, with every call on a tape; the records of all clients have one size."""

    def __init__(self, kernels: Any, dim: int, x_bytes: int, records: int, classes: int, tape: Tape) -> None:
        self._kernels, self._tape, self._dim = kernels, tape, dim
        self._x_bytes, self._records, self._classes = x_bytes, records, classes  # of one record; of each client
        self._rooms: dict[int, int] = {}  # packed weights and workspaces by their address

    def packed_size(self, job: Any) -> Any:
        self._packed = self._kernels.packed_size(job)
        return self._packed

    def workspace_size(self, job: Any, mask: int | None) -> Any:
        self._workspace = self._kernels.workspace_size(job, mask)
        return self._workspace

    def pack(self, job: Any, params: int, packed: int) -> None:
        self._rooms[packed] = self._tape.buffer(bytes(self._packed))
        self._kernels.pack(job, params, packed)
        self._note("pack", [self._job(job), self._copy(params, 4 * self._dim), (1, self._rooms[packed])])

    def train(self, job: Any, packed: int, mask: int | None, *rest: int) -> None:
        x, y, index, batch, records, share, workspace = rest
        chunk = job.chunk
        self._rooms[workspace] = self._tape.buffer(bytes(self._workspace))
        lists = []
        for places, size in ((x, self._x_bytes * self._records), (y, 8 * self._records)):
            number = self._tape.buffer(bytes(8 * chunk))
            for client, address in enumerate(np.frombuffer(ctypes.string_at(places, 8 * chunk), np.uint64).tolist()):
                self._tape.places.append((number, 8 * client, self._copy(address, size)[1]))
            lists.append((1, number))
        batches = np.frombuffer(ctypes.string_at(batch, 4 * chunk), np.int32)
        self._kernels.train(job, packed, mask, *rest)
        arguments = [self._job(job), (1, self._rooms[packed]), self._mask(mask), *lists]
        arguments.append(self._copy(index, 8 * int(batches.sum()) * job.steps))
        arguments += [self._copy(place, 4 * chunk) for place in (batch, records, share)]
        arguments.append((1, self._rooms[workspace]))
        self._note("train", arguments)

    def updates(self, job: Any, packed: int, mask: int | None, first: int, count: int, dim: int, *rest: int) -> None:
        batch, records, room, rows = rest
        self._kernels.updates(job, packed, mask, first, count, dim, *rest)
        wanted = ctypes.string_at(rows, 4 * self._dim * count)
        number = self._tape.buffer(bytes(len(wanted)))
        arguments = [self._job(job), (1, self._rooms[packed]), self._mask(mask), (0, first), (0, count), (0, dim)]
        arguments += [self._copy(place, 4 * job.chunk) for place in (batch, records)]
        self._note("updates", [*arguments, (1, self._rooms[room]), (1, number)], [(number, wanted)])

    def scores(self, job: Any, packed: int, records: int, x: int, room: int, logits: int) -> None:
        self._kernels.scores(job, packed, records, x, room, logits)
        wanted = ctypes.string_at(logits, 4 * records * self._classes)
        number, own = self._tape.buffer(bytes(len(wanted))), self._tape.buffer(bytes(self._workspace))
        arguments = [self._job(job), (1, self._rooms[packed]), (0, records), self._copy(x, self._x_bytes * records)]
        self._note("scores", [*arguments, (1, own), (1, number)], [(number, wanted)])

    def _copy(self, address: int, size: int) -> tuple[int, int]:
        return 1, self._tape.buffer(ctypes.string_at(address, size))

    def _job(self, job: Any) -> tuple[int, int]:
        return 1, self._tape.buffer(bytes(job))

    def _mask(self, mask: int | None) -> tuple[int, int]:
        return (0, 0) if mask is None else self._copy(mask, self._dim)

    def _note(self, name: str, integers: list[tuple[int, int]], changed: list[tuple[int, bytes]] | None = None) -> None:
        self._tape.calls.append(Call(name, 0, b"", integers, [], changed or []))
