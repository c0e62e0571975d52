"""Choose who masks with whom: everybody up to 200 clients, a k-regular ring of neighbours above (Bell et al. 2020).

Bell, Bonawitz, Gascón, Lepoint, Raykova, "Secure single-server aggregation with (poly)logarithmic overhead", CCS 2020,
show that a sparse random graph suffices if, with high probability, for every client

  1. fewer than t_k of its neighbours collude (they could open its secrets),
  2. the honest clients who stay are connected (or a partial sum would show),
  3. at least t_k of its neighbours stay (or the sum cannot be opened; nothing leaks).

Clients stand on a ring in pseudorandom order, each joined to the k/2 nearest on both sides (a Harary graph). The
neighbours of a client are then k of the n-1 others drawn without replacement, so with c colluders, at most d = n - t
dropouts and r = c + d, by the union bound over clients,

  1. n * P[Hypergeometric(n-1, c, k) >= t_k]           <= 2^-121
  2. n * r/n * (r-1)/(n-1) * ...  (k/2 factors)         <= 2^-41   (a cut needs k/2 removed clients in a row, twice)
  3. n * P[Hypergeometric(n-1, d, k) >  k - t_k]        <= 2^-20

with t_k above half of the k + 1 holders, so that holders who each give one share cannot open both secrets of a client.
`choose` takes the smallest even k for which such a t_k exists, or the complete graph if none is smaller.

The order is a hash of the session's whole context. Whoever picks the session id, the cohort, or a helper's registered
key may try many of them and keep the worst order. Each try is another draw, so 2^80 tries find an order that breaks
condition 1 with probability at most 2^-41; each costs n hashes. Colluders are fixed before they see the order.
Condition 2 is about dropouts that do not look at the order: it is for a server that names the true survivors.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache
from typing import Final, NamedTuple

from sottovoce.core.errors import InputError

COMPLETE_UP_TO: Final = 200
_COLLUSION: Final = -(41 + 80) * math.log(2)  # after 2^80 tries at an order of the ring
_CONNECTION: Final = -41 * math.log(2)
_LIVENESS: Final = -20 * math.log(2)
_NEGLIGIBLE: Final = 60.0  # logarithm; fewer than 2^16 terms of e^-60 do not show in a float


class Degree(NamedTuple):
    """How many neighbours a client has, and how many shares open its secrets."""

    neighbours: int
    threshold: int


@lru_cache(maxsize=256)
def choose(clients: int, threshold: int, colluders: int, neighbours: int = 0) -> Degree:
    """Return k and t_k; `neighbours` 0 follows the rule above, another number must satisfy the bound."""
    complete = Degree(clients - 1, threshold)
    if neighbours >= clients - 1 or (neighbours == 0 and clients <= COMPLETE_UP_TO):
        return complete
    if neighbours:
        if neighbours % 2:
            raise InputError(f"neighbours must be even below the complete graph, got {neighbours}")
        sparse = _share_threshold(clients, threshold, colluders, neighbours)
        if sparse is None:
            least = _least(clients, threshold, colluders)
            raise InputError(
                f"neighbours must be at least {least} for {clients} clients, threshold {threshold} and "
                f"{colluders} colluders, got {neighbours}"
            )
        return Degree(neighbours, sparse)
    return choose(clients, threshold, colluders, _least(clients, threshold, colluders))


def ring_neighbours(place: int, clients: int, neighbours: int) -> list[int]:
    """Return the places on the ring that are joined to `place`."""
    if neighbours >= clients - 1:
        return [other for other in range(clients) if other != place]
    half = neighbours // 2
    return [(place + step) % clients for step in range(-half, half + 1) if step]


def _least(clients: int, threshold: int, colluders: int) -> int:
    """Find the smallest even degree that the bound allows; the complete graph when there is none."""
    for degree in range(2, clients - 1, 2):
        if _share_threshold(clients, threshold, colluders, degree) is not None:
            return degree
    return clients - 1


def _share_threshold(clients: int, threshold: int, colluders: int, degree: int) -> int | None:
    """Return the least t_k that satisfies all three conditions, or None."""
    dropouts = clients - threshold
    union = math.log(clients)
    removed = min(colluders + dropouts, clients)
    if degree // 2 <= removed and union + _falling(removed, clients, degree // 2) > _CONNECTION:
        return None

    def hidden(least: int) -> bool:
        return union + _log_tail(clients - 1, colluders, degree, least) <= _COLLUSION

    least = bisect_left(range(degree + 1), True, lo=(degree + 1) // 2 + 1, key=hidden)
    if least > degree or union + _log_tail(clients - 1, dropouts, degree, degree - least + 1) > _LIVENESS:
        return None
    return least


def _falling(top: int, bottom: int, steps: int) -> float:
    """Return log of (top / bottom) * ((top-1) / (bottom-1)) * ... with `steps` factors."""
    return _log_choose(top, steps) - _log_choose(bottom, steps)


def _log_tail(population: int, marked: int, draws: int, at_least: int) -> float:
    """Return log P[X >= at_least] for X marked among `draws` without replacement."""
    low = max(at_least, 0, draws - (population - marked))
    high = min(draws, marked)
    if low > high:
        return -math.inf
    terms: list[float] = []
    for hits in range(low, high + 1):
        terms.append(_log_choose(marked, hits) + _log_choose(population - marked, draws - hits))
        if terms[-1] < terms[0] - _NEGLIGIBLE:  # the law has one peak, so the rest is smaller still
            break
    largest = max(terms)
    return largest + math.log(math.fsum(math.exp(term - largest) for term in terms)) - _log_choose(population, draws)


def _log_choose(total: int, part: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(part + 1) - math.lgamma(total - part + 1)
