"""The sum of what clients send, in one phase: in the clear, or as the exact integers of an ideal secure sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from typing_extensions import override

from sottovoce.core import wire
from sottovoce.federation.aggregation.aggregator import (
    AggregationProtocol,
    Conversation,
    Costs,
    Materials,
    Spend,
    Total,
    one_message,
)
from sottovoce.federation.coding import Coding, Terms
from sottovoce.federation.engine import Request, Sum
from sottovoce.secagg.sizes import Outline


def direct_costs(outline: Outline, down: int) -> Costs:
    """Return the costs of a round whose messages are frames of words or float32 values."""
    return one_message(outline.cohort, wire.frame_size(outline.length, outline.bits), down)


@dataclass(frozen=True)
class Direct:
    """The sum of what clients send, in one phase: in the clear, or as the exact integers of an ideal secure sum."""

    coding: Coding
    fewest: Callable[[int], int]  # how many of a cohort must answer

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Ask everyone to train, and add up what comes back."""
        summed = Sum(self.coding.fold)
        needed = self.fewest(len(cohort))
        request = Request(
            round_, "train", dict.fromkeys(cohort, down), take=summed.take, sum=summed, opening=True, least=needed
        )
        reply = yield request
        total = Total(clip_norm=terms.clip_norm, senders=len(reply.sizes))
        total.count(request, reply)
        if total.senders < needed:
            total.reason = f"round {round_}: {total.senders} messages, but {needed} are needed; nothing was released"
            return total
        spend()
        total.values, total.clip_norm = self.coding.open(summed.total(), terms, total.senders, round_)
        return total

    def costs(self, cohort: int, down: int) -> Costs:
        """Return the bytes of a round: one message each."""
        return one_message(cohort, self.coding.fold.payload_size, down)


@final
class PlainSum(AggregationProtocol):
    """No protection: the server sees each message."""

    name = "none"
    hides_updates = False
    costs = staticmethod(direct_costs)

    @classmethod
    @override
    def make(cls, materials: Materials) -> Direct:
        return Direct(materials.coding, materials.fewest)


@final
class IdealSum(AggregationProtocol):
    """A secure sum by a trusted party: the server is given the sum only, and nothing is encrypted."""

    name = "ideal"
    costs = staticmethod(direct_costs)

    @classmethod
    @override
    def make(cls, materials: Materials) -> Direct:
        return Direct(materials.coding, materials.fewest)
