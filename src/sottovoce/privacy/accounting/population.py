"""Add up what several runs on the same records cost.

    fixed    all runs were fixed before the first of them was looked at: their privacy losses are composed (pld), and
             against the server their Gaussians are one Gaussian. This is the small number.
    added    epsilons and deltas are added. It holds whatever was looked at before the next run was chosen.
    filter   a `Limit` is fixed beforehand, and a run that would exceed it is not begun. It holds whatever was looked
             at, and is smaller than adding: by Renyi divergences of one order that is fixed beforehand too, and against
             the server by the sum of participations / z^2. docs/privacy.md, "Several runs", has the proofs.

The pld accountant of what is spent and what comes next is no filter, and is not used as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

from sottovoce.core.errors import PrivacyError
from sottovoce.privacy.accounting import accountant as accounts
from sottovoce.privacy.accounting.events import Event

RESERVE: Final = 1e-5  # of a plan's delta, which pays for its lattice and for caps that nobody reaches
ADDED, PRICED, SLACK = 0.5, 0.25, 0.25  # parts of a limit's delta: for adding, for the filter, for what it leaves out


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one run, or a release that was declared, may cost a client.

    `epsilon` against outsiders and `epsilon_server` at `delta` are the plan's; infinite: no bound. `events` are what
    outsiders see and `precision` is the sum of participations / z^2 against the server; a release of which only epsilon
    and delta are known has neither. `lattice` is the distance of all rounds from the Gaussian. `apart` is what
    outsiders see of units that are set aside: a unit is touched by `events` or by `apart`, in another run by the other.
    """

    epsilon: float
    epsilon_server: float
    delta: float
    events: tuple[Event, ...] = ()
    precision: float | None = None
    lattice: float = 0.0
    apart: tuple[Event, ...] = ()

    @property
    def floor(self) -> float:
        """Return what is added to delta at every epsilon."""
        return sum(event.floor_slack + event.quorum_slack for event in self.events) if self.events else self.delta

    @property
    def distance(self) -> float:
        """Bound the probability that outsiders see anything else than the events; it counts 1 + e^epsilon times."""
        if not self.events:
            return 0.0
        cut = sum(accounts.truncation_slack(event) for event in (*self.events, *self.apart))
        return cut + RESERVE * self.delta / (1 + math.exp(min(700.0, self.epsilon)))

    def divergence(self, order: float) -> float:
        """Return the Renyi divergence of an order against outsiders; of epsilon alone min(e, order e^2 / 2)."""
        if self.events:
            own = accounts.renyi(self.events, order)
            return max(own, accounts.renyi(self.apart, order)) if self.apart else own
        return min(self.epsilon, order * self.epsilon**2 / 2)

    @property
    def gaussian(self) -> float:
        """Return mu^2 of the Gaussian trade-off that bounds the release against the server, beside its slack."""
        if self.precision is not None:
            return self.precision
        if math.isinf(self.epsilon_server):
            return math.inf
        from scipy.special import ndtri

        # Randomised response of this epsilon lies above the trade-off function of N(0, 1) against N(mu, 1).
        return float((2 * ndtri(1 / (1 + math.exp(min(700.0, self.epsilon_server))))) ** 2)

    def exposed(self) -> Cost:
        """Return the cost if outsiders learnt who was sampled: they see no more than the server does."""
        events: tuple[Event, ...] = ()
        if self.precision is not None and 0 < self.precision < math.inf:
            slack = sum(event.floor_slack for event in self.events)
            events = (Event(noise_multiplier=self.precision**-0.5, sample_rate=1.0, rounds=1, floor_slack=slack),)
        return replace(self, epsilon=self.epsilon_server, events=events, apart=())

    def told(self) -> dict[str, Any]:
        """Return plain values; what has no bound is null."""
        plain = {key: _finite(getattr(self, key)) for key in ("epsilon", "epsilon_server", "delta", "precision")}
        apart = {"apart": [asdict(event) for event in self.apart]} if self.apart else {}
        return {**plain, "lattice": self.lattice, "events": [asdict(event) for event in self.events], **apart}

    @classmethod
    def read(cls, told: Any) -> Cost:
        """Return the cost that was told; raises ValueError if it is none."""
        try:
            epsilon, server = (math.inf if told[key] is None else float(told[key]) for key in _EPSILONS)
            events = tuple(Event(**event) for event in told["events"])
            precision = told["precision"]
            if precision is None and events:
                precision = math.inf
            return cls(
                epsilon=epsilon,
                epsilon_server=server,
                delta=float(told["delta"]),
                events=events,
                precision=None if precision is None else float(precision),
                lattice=float(told["lattice"]),
                apart=tuple(Event(**event) for event in told.get("apart", ())),
            )
        except (KeyError, TypeError, ValueError, AttributeError, PrivacyError) as error:
            raise ValueError(f"no cost of a run: {error}") from None


class TotalCost(NamedTuple):
    """What several releases cost together, and by which sum; an epsilon is infinite where there is no bound."""

    epsilon: float
    epsilon_server: float
    delta: float
    method: str


def added(costs: Sequence[Cost]) -> TotalCost:
    """Return the sums of epsilons and deltas: they hold however runs were chosen, and whenever one stops."""
    return TotalCost(
        sum(cost.epsilon for cost in costs),
        sum(cost.epsilon_server for cost in costs),
        sum(cost.delta for cost in costs),
        "epsilons and deltas added: holds whatever was looked at before the next run was chosen",
    )


def fixed(costs: Sequence[Cost]) -> TotalCost:
    """Return what runs cost together that were all fixed before the first was looked at, such as those of a sweep.

    The accountant gets the largest delta of the runs; what the Gaussians do not describe is added to it.

    Guarantee: an upper bound for zero-out adjacency over all runs, if none of them was chosen after looking.
    """
    plain = added(costs)
    if len(costs) < 2:
        return plain._replace(method="one run")
    known = [cost for cost in costs if cost.events]
    outsiders = server = (math.inf, math.inf)
    if known:
        outsiders = _outsiders(costs, known)
        server = _server(costs, known)
    if not (outsiders[0] <= plain.epsilon and outsiders[1] <= plain.delta):
        outsiders = (plain.epsilon, plain.delta)
    if not (server[0] <= plain.epsilon_server and server[1] <= plain.delta):
        server = (plain.epsilon_server, plain.delta)
    return TotalCost(
        outsiders[0],
        server[0],
        max(outsiders[1], server[1]),
        "privacy losses composed (pld): holds if all runs were fixed before the first was looked at",
    )


def _outsiders(costs: Sequence[Cost], known: Sequence[Cost]) -> tuple[float, float]:
    delta = max(cost.delta for cost in known)
    # Whoever trains in one run may be set aside in another, so both are composed: more than anybody pays.
    seen = (event for cost in known for event in (*cost.events, *cost.apart))
    events = _merged(replace(event, floor_slack=0.0, quorum_slack=0.0) for event in seen)
    try:
        epsilon = accounts.epsilon(events, delta=delta)
    except PrivacyError:  # cohorts are cut too often
        return math.inf, math.inf
    slack = sum(cost.floor for cost in costs)
    for cost in known:  # a plan's reserve is for its own epsilon
        slack += RESERVE * cost.delta * math.exp(min(700.0, max(0.0, epsilon - cost.epsilon)))
    return epsilon + sum(cost.epsilon for cost in costs if not cost.events), delta + slack


def _server(costs: Sequence[Cost], known: Sequence[Cost]) -> tuple[float, float]:
    delta, precision = max(cost.delta for cost in known), sum(cost.gaussian for cost in known)
    if math.isinf(precision):
        return math.inf, math.inf
    epsilon = accounts.epsilon_server([(precision**-0.5, 1)], delta=delta) if precision else 0.0
    lattice = (1 + math.exp(min(700.0, epsilon))) * sum(cost.lattice for cost in known)
    slack = sum(cost.floor for cost in costs) + RESERVE * sum(cost.delta for cost in known) + lattice
    return epsilon + sum(cost.epsilon_server for cost in costs if not cost.events), delta + slack


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What all runs together may cost, fixed before the first of them; an epsilon that is None has no limit.

    Guarantee: if every run is begun only while `fits` says so for it and all before it, everything that was released is
    private for each client at `delta` with `epsilon` against outsiders and `epsilon_server` against the server,
    however the runs were chosen and whenever they stopped.
    """

    epsilon: float | None
    epsilon_server: float | None
    delta: float
    order: float  # of the Renyi divergence

    def fits(self, costs: Sequence[Cost]) -> bool:
        """Tell whether these runs keep the limit."""
        return self.share(costs) <= 1

    def share(self, costs: Sequence[Cost]) -> float:
        """Return which part of the limit these runs take; above 1 they do not fit."""
        shares = [0.0]
        if self.epsilon is not None:
            shares.append(min(self._added(costs, self.epsilon, server=False), self._renyi(costs, self.epsilon)))
        if self.epsilon_server is not None:
            limit = self.epsilon_server
            shares.append(min(self._added(costs, limit, server=True), self._gaussian(costs, limit)))
        return max(shares)

    @property
    def words(self) -> str:
        """Say by which sums the limit is kept."""
        return (
            f"a limit fixed beforehand, kept by added epsilons, a Renyi filter of order {self.order:g} and the sum of "
            "1/z^2 against the server: holds whatever was looked at before the next run was chosen"
        )

    def _added(self, costs: Sequence[Cost], limit: float, *, server: bool) -> float:
        epsilon = sum(cost.epsilon_server if server else cost.epsilon for cost in costs)
        return max(epsilon / limit, sum(cost.delta for cost in costs) / (ADDED * self.delta))

    def _renyi(self, costs: Sequence[Cost], limit: float) -> float:
        allowed = limit - _conversion(self.order, PRICED * self.delta)
        if allowed <= 0:
            return math.inf
        taken = sum(cost.divergence(self.order) for cost in costs)
        slack = sum(cost.floor + (1 + math.exp(min(700.0, limit))) * cost.distance for cost in costs)
        return max(taken / allowed, slack / (SLACK * self.delta))

    def _gaussian(self, costs: Sequence[Cost], limit: float) -> float:
        precision = sum(cost.gaussian for cost in costs)
        if math.isinf(precision):
            return math.inf
        taken = accounts.epsilon_server([(precision**-0.5, 1)], delta=PRICED * self.delta) if precision else 0.0
        lattice = (1 + math.exp(min(700.0, limit))) * sum(cost.lattice for cost in costs)
        slack = lattice + sum(cost.floor + RESERVE * cost.delta for cost in costs)
        return max(taken / limit, slack / (SLACK * self.delta))


def order_for(cost: Cost, epsilon: float, delta: float) -> float:
    """Return the Renyi order at which a limit affords the most runs like this one."""
    runs = {}
    for order in accounts.renyi_orders():
        divergence, allowed = cost.divergence(order), epsilon - _conversion(order, PRICED * delta)
        runs[order] = allowed / divergence if divergence > 0 else allowed
    return max(runs, key=lambda order: runs[order])


def _conversion(order: float, delta: float) -> float:
    """Return what turning a Renyi divergence into epsilon adds (Canonne, Kamath, Steinke 2020, Prop. 12)."""
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def _merged(events: Iterable[Event]) -> list[Event]:
    """Return the events with equal ones in one, so that the runs of a grid are composed at once."""
    rounds: dict[Event, int] = {}
    for event in events:
        single = replace(event, rounds=1)
        rounds[single] = rounds.get(single, 0) + event.rounds
    return [replace(event, rounds=count) for event, count in rounds.items()]


_EPSILONS: Final = ("epsilon", "epsilon_server")


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
