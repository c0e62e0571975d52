"""Sum what the units of all sites answer to a survey: one round, and the sum is the answer.

It is a round like any other, with a scheme of its own, so it is noised, summed and charged by the code of every round.
Nobody trains: a unit's message follows from its rows and from the survey, which is public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sottovoce.core.errors import InputError, WireError
from sottovoce.core.vectors import Vector
from sottovoce.federation.stages.discovery import Discovery, RawBlock
from sottovoce.federation.stages.survey import Block, Survey
from sottovoce.models.trainer import Shard
from sottovoce.models.units import CentreGrid
from sottovoce.schemes.base import Message, Scheme, State, Task

NORM: Final = 1.0  # the clip norm of a unit, which no message exceeds
_ROWS: Final = 1 << 18  # rows that are read at once, so that sums of them are exact as doubles
_SHY: Final = 1 - 2.0**-40  # sums of shares are not rounded above one


AnyBlock = Block | RawBlock


class BlockSteps(NamedTuple):
    """What a one is worth in steps of the grid: in cells that count, and in cells that add values."""

    ones: int
    values: float


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SurveyTally(Scheme):
    """The scheme of a survey: what each unit adds to the cells, and nothing to learn.

    Guarantee: the centre of a unit has norm at most one clip norm, because each block of it has at most the root of its
    share: a person's are shares of rows' centres, rounded towards zero. It depends on the unit's own rows alone.
    """

    name: ClassVar[str] = "statistics"
    paper: ClassVar[str] = "beyond the papers: Gaussian mechanism on a sum over units"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "nothing"
    weighted: ClassVar[bool] = False
    sends_weights: ClassVar[bool] = False
    once: ClassVar[bool] = True

    survey: Survey | Discovery

    @property
    @override
    def length(self) -> int:
        return self.survey.length

    @property
    @override
    def public_norm(self) -> float:
        return NORM

    @override
    def downlink(self, state: State, seed: int) -> bytes:
        return b""

    @override
    def receive(self, payload: bytes, memory: State) -> Task:
        if payload:
            raise WireError(f"a survey expects an empty downlink, got {len(payload)} bytes")
        return Task(np.zeros(self.length, np.float32), 0, memory)

    @override
    def encode(self, update: Vector, seed: int, rng: np.random.Generator) -> Message:
        raise InputError("a survey sums over records or persons; it has no message of a client")

    @override
    def decode(self, mean: Vector, state: State, seed: int, rng: np.random.Generator) -> State:
        return {"params": mean}

    def steps(self, block: AnyBlock, grid: CentreGrid) -> BlockSteps:
        """Return how many steps of the grid a one is worth in the cells of a block.

        Guarantee: rounded to the nearest step, what a record adds to the block is no longer than the root of its share.
        """
        room = grid.steps * math.sqrt(self.survey.share)
        values = (room - math.sqrt(block.values) / 2) / block.norm
        if values < 1:
            raise InputError("the survey asks for so much that its answers would round to nothing; ask for less")
        # Whoever misses a value adds nothing else to the block.
        return BlockSteps(int(values if block.query == "correlation" else room), values)

    def total(self, shard: Shard, grid: CentreGrid) -> NDArray[np.int64]:
        """Return the exact sum of the centres of a site's units: its persons if it knows them, else its records."""
        total = np.zeros(self.length, np.int64)
        codes = shard.x
        for block, span in self.survey.spans():
            steps = self.steps(block, grid)
            if shard.persons is not None:
                total[span] = self._of_persons(block, codes, shard.persons, steps)
                continue
            for first in range(0, len(codes), _ROWS):
                total[span] += self._of_records(block, codes[first : first + _ROWS], steps)
        return total

    def _of_records(self, block: AnyBlock, codes: NDArray[Any], steps: BlockSteps) -> NDArray[np.int64]:
        size = len(self.survey.groups) * block.cells
        offsets, total = self.survey.group_of(codes) * block.cells, np.zeros(size, np.int64)
        for rows, cells, values in block.entries(codes):
            places = offsets[rows] + cells
            if values is None:
                total += np.bincount(places, minlength=size) * steps.ones
            else:
                # Fewer than 2^18 whole numbers below 2^31 each: their sum is exact as a double.
                total += np.bincount(places, np.rint(values * steps.values), size).astype(np.int64)
        return total

    def _of_persons(
        self, block: AnyBlock, codes: NDArray[Any], whose: NDArray[np.int64], steps: BlockSteps
    ) -> NDArray[np.int64]:
        size = len(self.survey.groups) * block.cells
        offsets, total = self.survey.group_of(codes) * block.cells, np.zeros(size, np.int64)
        _, person, rows_of = np.unique(whose, return_inverse=True, return_counts=True)
        keys, shares = [], []
        for rows, cells, values in block.entries(codes):
            keys.append(person[rows] * size + offsets[rows] + cells)
            worth = steps.ones if values is None else values * steps.values
            shares.append(worth / rows_of[person[rows]])
        cells_of, places = np.unique(np.concatenate(keys), return_inverse=True)
        sums = np.bincount(places, np.concatenate(shares), len(cells_of))
        np.add.at(total, cells_of % size, np.trunc(sums * _SHY).astype(np.int64))
        return total
