"""Begin and end a run's count of ballots: its second account, and where the count is real its second aggregator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sottovoce.federation.aggregate import Aggregator
from sottovoce.federation.ballots.ideal import IdealCount
from sottovoce.federation.ballots.real import RealCount

__all__ = ["counting"]


@contextmanager
def counting(aggregator: Aggregator, folder: Path, played: int = 0) -> Iterator[None]:
    """Let an aggregator that counts ballots keep the helper's account in a folder; others need nothing.

    `played` is the last round that a run has played: an account that does not know it is not the run's.
    """
    if not isinstance(aggregator, IdealCount | RealCount):
        yield
        return
    with aggregator.counting(folder, played):
        yield
