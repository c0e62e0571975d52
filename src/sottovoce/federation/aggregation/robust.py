"""A robust estimate in place of a sum: the server looks at every single update, and lets a defence judge them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sottovoce.core.errors import InputError, RunError
from sottovoce.core.vectors import Vector
from sottovoce.federation.aggregation.aggregator import Conversation, Costs, Spend, Total, one_message
from sottovoce.federation.coding import Clear, Terms
from sottovoce.federation.engine import Request
from sottovoce.federation.sums import read_floats
from sottovoce.threats.defences import Defence
from sottovoce.threats.defences.base import Matrix

Reference = Callable[[int, bytes], Vector]  # round and downlink -> the message that the server makes by itself


class _Updates:
    """The updates of one round, in the order of the clients and not of their arrival, which may change a result.

    They are written to their place as they come, so that no more than one is held twice.
    """

    def __init__(self, cohort: list[int], length: int) -> None:
        self._places = {client: place for place, client in enumerate(cohort)}
        try:
            self._matrix = np.empty((len(cohort), length), np.float32)
        except MemoryError:
            raise RunError(
                f"a defence holds all updates of a round, and {len(cohort)} of {length} values take "
                f"{4e-9 * len(cohort) * length:.1f} GB, which there are not; lower [cohort] sample_rate"
            ) from None
        self._came = np.zeros(len(cohort), np.bool_)

    def take(self, client: int, payload: bytes) -> None:
        """Keep one client's update, or raise if it cannot be one."""
        self._matrix[self._places[client]] = read_floats(payload, self._matrix.shape[1])
        self._came[self._places[client]] = True

    def rows(self) -> Matrix:
        """Return the updates that came; those behind a gap move up."""
        places = np.flatnonzero(self._came)
        for row, place in enumerate(places):
            if row != place:
                self._matrix[row] = self._matrix[place]
        self._came[:] = np.arange(len(self._came)) < len(places)
        return self._matrix[: len(places)]


@dataclass(frozen=True)
class Robust:
    """The estimate of a defence, times the expected cohort, as the server divides by that.

    Of a cohort of n clients, f = `share` * n, rounded up, are taken to be malicious. Who left or sent what is no update
    is not counted on: the others may still hold f malicious ones, and must be enough for the defence.
    """

    coding: Clear
    fewest: Callable[[int], int]  # how many of a cohort must answer
    defence: Defence
    share: Fraction
    expected: float
    reference: Reference | None = None

    def __post_init__(self) -> None:
        if self.coding.form != "floats":
            raise InputError(f"{self.defence.name} compares updates of floats, not {self.coding.form}")
        if self.defence.needs_reference and self.reference is None:
            raise InputError(f"{self.defence.name} needs an update of the server's own, from public records")

    def malicious(self, cohort: int) -> int:
        """Return f."""
        return math.ceil(self.share * cohort)

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Ask everyone to train, and estimate the mean of what comes back."""
        updates = _Updates(cohort, self.coding.length)
        request = Request(round_, "train", dict.fromkeys(cohort, down), take=updates.take, opening=True)
        reply = yield request
        total = Total(clip_norm=terms.clip_norm, senders=len(reply.sizes))
        total.count(request, reply)
        if not cohort:
            total.values = np.zeros(self.coding.length, np.float64)
            return total
        total.reason = self._refusal(round_, len(cohort), total.senders)
        if total.reason is not None:
            return total
        spend()
        try:
            reference = None if self.reference is None else self.reference(round_, down)
            estimate = self.defence.estimate(updates.rows(), self.malicious(len(cohort)), reference)
        except RunError as error:
            total.reason = f"round {round_}: {error}; nothing was released"
            return total
        total.values = estimate * np.float64(self.expected)
        return total

    def costs(self, cohort: int, down: int) -> Costs:
        """Return the bytes of a round: one message each."""
        return one_message(cohort, self.coding.fold.payload_size, down)

    def _refusal(self, round_: int, cohort: int, senders: int) -> str | None:
        """Return why a round is given up; None if enough came."""
        needed, malicious = self.fewest(cohort), self.malicious(cohort)
        if senders < needed:
            return f"round {round_}: {senders} messages, but {needed} are needed; nothing was released"
        needed = self.defence.fewest(malicious)
        if senders < needed:
            return (
                f"round {round_}: {self.defence.name} needs {needed} updates to stand {malicious} malicious of "
                f"{cohort}, but {senders} came; nothing was released"
            )
        return None
