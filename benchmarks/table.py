"""Print measurements beside what was asked and beside a peer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import process_time
from typing import NamedTuple

__all__ = ["Row", "beside", "missed", "show"]


class Row(NamedTuple):
    """Hold one measurement; `ratio` is the peer's value over ours, above 1 where ours is better."""

    what: str
    value: float
    unit: str
    limit: float | None = None  # what was asked: at most this
    peer: str = ""
    ratio: float | None = None


def beside(
    what: str,
    ours: Callable[[], object],
    *,
    limit: float | None = None,
    peer: str = "",
    theirs: Callable[[], object] | None = None,
    repeats: int = 15,
    peer_repeats: int | None = None,
) -> Row:
    """Time two things in turn and keep the best CPU time of each: noise on a shared machine only ever adds."""
    ours()  # compiled and in the cache
    best, peer_best = float("inf"), float("inf")
    peer_repeats = repeats if peer_repeats is None else peer_repeats
    for turn in range(repeats):
        best = min(best, _seconds(ours))
        if theirs is not None and turn < peer_repeats:
            peer_best = min(peer_best, _seconds(theirs))
    ratio = peer_best / best if theirs is not None else None
    return Row(what, best * 1e3, "ms", limit, peer, ratio)


def missed(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that are above what was asked."""
    return [row for row in rows if row.limit is not None and row.value > row.limit]


def show(rows: Iterable[Row]) -> None:
    """Print a table."""
    print(f"{'':46}{'ours':>14}{'asked':>14}{'ratio':>9}  peer")
    for row in rows:
        digits = 3 if row.unit == "ms" else 0
        limit = "" if row.limit is None else f"{row.limit:,.{1 if row.unit == 'ms' else 0}f}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f} x"
        mark = "" if row.limit is None or row.value <= row.limit else "  MISSED"
        print(f"{row.what:46}{row.value:>11,.{digits}f} {row.unit:2}{limit:>14}{ratio:>9}  {row.peer}{mark}")


def _seconds(work: Callable[[], object]) -> float:
    began = process_time()
    work()
    return process_time() - began
