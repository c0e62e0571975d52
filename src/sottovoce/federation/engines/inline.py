"""Simulate in this process: no workers to start, so breakpoints, notebooks and profilers see all of it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Generator
from typing import Any

from typing_extensions import override

from sottovoce.data.compact import CompactFeatures
from sottovoce.federation.engines.process import Call
from sottovoce.federation.engines.shared_memory import Arrays
from sottovoce.federation.engines.worker import Blueprint, Worker
from sottovoce.federation.engines.workers import Workers


class InlineEngine(Workers):
    """An engine whose one worker is an object here: calls are calls, and errors keep their tracebacks.

    Guarantee: bits are those of the other engines. torch computes with one thread meanwhile, as worker processes do.
    """

    def __init__(self, blueprint: Blueprint, arrays: Arrays) -> None:
        self._records = {split[2:]: len(array) for split, array in arrays.items() if split.startswith("x_")}
        self._worker = Worker(blueprint, {name: _read_only(array) for name, array in arrays.items()})
        self._answer: Any = None
        # Looked up and not imported: where no trainer needed torch, nothing here does.
        self._torch = sys.modules.get("torch")
        self._threads = 0 if self._torch is None else self._torch.get_num_threads()
        if self._torch is not None:
            self._torch.set_num_threads(1)

    @property
    @override
    def count(self) -> int:
        return 1

    @override
    def close(self) -> None:
        if self._torch is not None:
            self._torch.set_num_threads(self._threads)
            self._torch = None
        self._answer = None

    @override
    def _begin(self, worker: int, call: Call) -> None:
        name, arguments = call
        self._answer = getattr(self._worker, name)(*arguments)

    @override
    def _ready(self, busy: list[int]) -> Collection[int]:
        return busy

    @override
    def _receive(self, worker: int) -> tuple[bool, Any]:
        if not isinstance(self._answer, Generator):
            return True, self._answer
        try:
            return False, next(self._answer)
        except StopIteration as stop:
            return True, stop.value


def _read_only(array: Any) -> Any:
    """Return a view that nobody can write through, as the records of a worker process are."""
    if isinstance(array, CompactFeatures):  # its rows are copies
        return array
    view = array.view()
    view.flags.writeable = False
    return view
