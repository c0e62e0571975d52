"""Compute on the records that a server has itself, in its own process: no client is here, and none of their records."""

from __future__ import annotations

from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Vector
from sottovoce.federation.engines.shared_memory import Arrays
from sottovoce.federation.engines.worker import Blueprint, Worker
from sottovoce.schemes.base import Scheme

_AT_ONCE: Final = 500  # records whose scores are computed together


class OwnRecords:
    """What computes on a server's test and public records; whatever needs a client's is refused."""

    def __init__(self, blueprint: Blueprint, arrays: Arrays) -> None:
        self._records = {name[2:]: len(array) for name, array in arrays.items() if name.startswith("x_")}
        self._worker = Worker(blueprint, arrays)

    def scores(self, params: Vector, split: str) -> NDArray[np.float32]:
        """Return the scores of all records of a split."""
        starts = range(0, self._records[split], _AT_ONCE)
        return np.concatenate([self._worker.scores(params, split, start, start + _AT_ONCE) for start in starts])

    def gradient(self, params: Vector, split: str, records: NDArray[np.int64]) -> Vector:
        """Return the gradient on some records of a split."""
        return self._worker.gradient(params, split, records)

    def public_message(
        self, scheme: Scheme, params: Vector, seed: int, records: NDArray[np.int64], round_: int
    ) -> Vector:
        """Return the message that a client with these public records would send in a round."""
        return self._worker.public_message(scheme, params, seed, records, round_)

    def public_norms(
        self, scheme: Scheme, params: Vector, shards: list[NDArray[np.int64]], seeds: list[int]
    ) -> NoReturn:
        """Refuse: between machines every node solves the plan from the file alone."""
        raise InputError("a server of nodes measures no norms; set [privacy] clip_norm")

    def client_norms(self, scheme: Scheme, params: Vector, clients: list[int], seeds: list[int]) -> NoReturn:
        """Refuse: nobody but the clients has their records."""
        raise InputError("a server of nodes measures no norms; set [privacy] clip_norm")

    def client_accuracies(self, params: Vector, clients: list[int], personal_steps: int = 0) -> NoReturn:
        """Refuse: nobody but the clients has their records."""
        raise InputError("a server of nodes cannot measure the model client by client")
