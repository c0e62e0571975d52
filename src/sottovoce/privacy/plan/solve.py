"""Solve a request as a whole: participations, noise, rounds and grid together, for all targets."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.privacy.accounting import accountant as accounts
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.accounting.participation import upper_quantile
from sottovoce.privacy.noise.grid import NoiseGrid, solve_grid
from sottovoce.privacy.noise.lattice import ROUNDING
from sottovoce.privacy.plan.ballots import solve_ballot_grid, solve_joint_grid
from sottovoce.privacy.plan.charges import (
    COARSEST_ROUNDING,
    accounted,
    accounted_delta,
    against,
    apart_cost,
    charged,
    events_of,
    facing,
    noise_for_epsilon,
    participations,
    reserve,
    shares_of,
)
from sottovoce.privacy.plan.cohort import Shares
from sottovoce.privacy.plan.request import PrivacyRequest
from sottovoce.privacy.plan.server import (
    RARE_SLACK,
    CapSource,
    Targets,
    affordable_participations,
    noise_for_server,
    with_cap,
)

COIN_SLACK: Final = 1e-8  # of delta: what coins may be off by in a round at most; enough up to epsilon 10


def solve_request(request: PrivacyRequest) -> dict[str, Any]:
    """Return the fields of a `PrivacyPlan` but its seal, or say in one sentence why there is none."""
    request, source = with_cap(request)
    shares = shares_of(request)
    _check_everyone(request, source)
    if request.noise_multiplier is not None:
        targets = Targets(None, None, source)
        solved = _solved(request, shares, targets, request.noise_multiplier)
    else:
        outsiders = noise_for_epsilon(request, shares)
        targets = Targets(outsiders, noise_for_server(request, shares, rounding=COARSEST_ROUNDING), source)
        solved = _solved(request, shares, targets, targets.noise)
        if targets.binding == "epsilon_server":
            solved = _refined(solved)
    solved = _with_apart(solved)
    if request.epsilon_server is not None and solved["epsilon_server"] > request.epsilon_server:
        raise PrivacyError(
            f"epsilon_server {request.epsilon_server:g} is out of reach: the noise's distance from a Gaussian leaves "
            f"{solved['epsilon_server']:.6g}; ask for a smaller one"
        )
    return solved


def _with_apart(solved: dict[str, Any]) -> dict[str, Any]:
    """Return the same with the cost of units that are set aside, where it is larger; refuse one above a target."""
    request, shares = solved["request"], solved["shares"]
    if not request.apart:
        return solved
    costs = {
        "epsilon": apart_cost(request, shares.outsider_part),
        "epsilon_server": apart_cost(request, shares.server_part),
        "epsilon_member": apart_cost(request, shares.member_part),
    }
    for name in ("epsilon", "epsilon_server"):
        target = getattr(request, name)
        if target is not None and costs[name] > target:
            raise PrivacyError(
                f"what is released about the {request.unit}s that are set aside costs {name} {costs[name]:.4g}, but "
                f"the budget is {target:g}; raise evaluation_noise_multiplier, or measure less often"
            )
    return solved | {name: max(solved[name], cost) for name, cost in costs.items()}


def _solved(request: PrivacyRequest, shares: Shares, targets: Targets, noise: float) -> dict[str, Any]:
    rounds = _affordable_rounds(request, shares, noise)
    events = events_of(request, shares, noise, rounds, rounding=COARSEST_ROUNDING)
    true = charged(request, events)
    epsilon = accounts.epsilon(
        accounted(request, events), delta=accounted_delta(request), accountant=request.accountant
    )
    most = participations(request, rounds, epsilon)
    grid = request_grid(request, shares, noise, rounds, epsilon, most)
    events = events_of(request, shares, noise, rounds, **grid_costs(grid, noise, shares))
    if request.of_sites:  # what is left where shares may be missing depends on the grid, which is known now
        epsilon = min(epsilon, against(request, events, most=most, part=shares.outsider_part))
    return {
        "request": request,
        "noise_multiplier": noise,
        "epsilon": epsilon if true else math.inf,
        "epsilon_server": against(request, events, most=most, part=shares.server_part),
        "epsilon_member": _member(request, shares, events, most, epsilon if true else math.inf),
        "rounds": rounds,
        "max_participations": most,
        "shares": shares,
        "grid": grid,
        "targets": targets,
    }


def _member(request: PrivacyRequest, shares: Shares, events: list[Event], most: int, epsilon: float) -> float:
    """Return epsilon against one client of the cohort.

    With ballots a client hears nothing about the others and adds no noise, so it is an outsider to them.
    """
    if shares.by_aggregators and request.sampling == "poisson":
        return epsilon
    return against(request, events, most=most, part=shares.member_part)


def _refined(solved: dict[str, Any]) -> dict[str, Any]:
    """Return the same with the noise that its own grid needs, which is finer than the coarsest; if that keeps it."""
    request, shares, grid, targets = (solved[name] for name in ("request", "shares", "grid", "targets"))
    rounding = grid_costs(grid, solved["noise_multiplier"], shares).get("rounding", 0.0) * (1 + 1e-6)
    server = noise_for_server(request, shares, rounding=rounding)
    targets = Targets(targets.noise_for_epsilon, server, targets.cap)
    finer = _solved(request, shares, targets, targets.noise)
    return finer if finer["epsilon_server"] <= request.epsilon_server else solved


def _check_everyone(request: PrivacyRequest, source: CapSource) -> None:
    most = request.max_participations
    if source == "given" and request.sample_rate == 1 and most is not None and most < request.rounds:
        raise InputError(
            f"max_participations must be the {request.rounds} rounds where every client is asked in every round, got "
            f"{most}: nobody would be left for the others; set rounds to {most}, or lower sample_rate"
        )


def _affordable_rounds(request: PrivacyRequest, shares: Shares, noise: float) -> int:
    """Return how many of the rounds asked for both budgets afford at a given noise; all of them at a solved one."""
    if request.noise_multiplier is None:
        return request.rounds
    allowed = request.rounds
    if request.of_sites:
        return _affordable_rounds_of_sites(request, shares, noise)
    if request.epsilon_server is not None:
        allowed = affordable_participations(request, shares, noise)
        _check_participations(request, shares, noise, allowed)

    def fits(rounds: int) -> bool:
        if needed(rounds) > allowed:
            return False
        return request.epsilon is None or cost(rounds) <= request.epsilon

    def needed(rounds: int) -> int:
        if request.sample_rate == 1:
            return rounds  # who sits out leaves nobody
        if request.sampling == "fixed":
            return participations(request, rounds, request.epsilon or request.epsilon_server or 0.0)
        return 1  # the cap does the rest

    def cost(rounds: int) -> float:
        events = accounted(request, events_of(request, shares, noise, rounds, rounding=COARSEST_ROUNDING))
        return accounts.epsilon(events, delta=accounted_delta(request), accountant=request.accountant)

    if request.epsilon is not None and cost(1) > request.epsilon:
        raise PrivacyError(
            f"epsilon must be at least {cost(1):.4g} for one round at noise multiplier {noise:g}, got "
            f"{request.epsilon:g}; raise epsilon or noise_multiplier"
        )
    return _most(request.rounds, fits)


def _affordable_rounds_of_sites(request: PrivacyRequest, shares: Shares, noise: float) -> int:
    """Return how many of the rounds both budgets of records and persons afford, or raise if not even one."""

    def costs(rounds: int) -> dict[str, float]:
        events = events_of(request, shares, noise, rounds, rounding=COARSEST_ROUNDING)
        delta, accountant = (1 - 2 * RARE_SLACK) * request.delta, request.accountant
        seen = facing(events, shares.server_part)
        return {
            "epsilon": accounts.epsilon(events, delta=accounted_delta(request), accountant=accountant),
            "epsilon_server": accounts.epsilon(seen, delta=delta, accountant=accountant),
        }

    budgets = {"epsilon": request.epsilon, "epsilon_server": request.epsilon_server}

    def kept(costs: dict[str, float]) -> list[str]:
        return [name for name, budget in budgets.items() if budget is not None and costs[name] > budget]

    if over := kept(costs(1)):
        cost = costs(1)[over[0]]
        raise PrivacyError(
            f"{over[0]} must be at least {cost:.4g} for one round at noise multiplier {noise:g}, got "
            f"{budgets[over[0]]:g}; raise {over[0]} or noise_multiplier"
        )
    return _most(request.rounds, lambda rounds: not kept(costs(rounds)))


def _check_participations(request: PrivacyRequest, shares: Shares, noise: float, allowed: int) -> None:
    """Raise if a given noise does not keep `epsilon_server` for the participations asked for, or for one."""
    wanted = min(request.rounds, request.max_participations or 1)
    if wanted <= allowed:
        return
    events = events_of(request, shares, noise, 1, rounding=COARSEST_ROUNDING)
    cost = against(request, events, most=wanted, part=shares.server_part)
    times = "1 participation" if wanted == 1 else f"{wanted} participations"
    fewer = f"lower max_participations to {allowed}, or " if allowed else ""
    raise PrivacyError(
        f"epsilon_server must be at least {cost:.4g} for {times} a client at noise multiplier {noise:g}, got "
        f"{request.epsilon_server:g}; {fewer}raise epsilon_server or noise_multiplier"
    )


def _most(rounds: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number of rounds, at least 1, that fits; more rounds never cost less."""
    if fits(rounds):
        return rounds
    low, high = 1, rounds
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def request_grid(
    request: PrivacyRequest, shares: Shares, noise: float, rounds: int, epsilon: float, most: int
) -> NoiseGrid | None:
    """Return the grid, its distance from the Gaussian within what `accounted_delta` keeps back; None for floats.

    Against the server the distance counts e^epsilon_server times, so the grid is fine enough for a server that does not
    know two thirds of the noise; the real threshold and the colluders change what the server is charged, and not the
    grid, so that the model stays the same. Where no grid is fine enough for that, because epsilon_server is so large
    that the tables' own 128 bits are too few, the outsiders' epsilon decides.
    """
    if request.mechanism == "gaussian":
        return None
    extra = 1 if request.clipping == "adaptive" else 0
    length = request.length + extra
    slack = 0.1 * reserve(request) * request.delta / (rounds * (1 + math.exp(min(700.0, epsilon))))
    events = events_of(request, shares, noise, rounds, rounding=COARSEST_ROUNDING)
    server = against(request, events, most=most, part=1.0 if shares.joint else 2 / 3)
    server = max(server, request.epsilon_server or 0.0)  # a target is kept at any threshold
    finer = RARE_SLACK * request.delta / (rounds * (1 + math.exp(min(700.0, server))))
    # A grid has very little for nothing. Coins have not, and a message before round 1, whose plan does not know the
    # rest of the run, is charged beside.
    slack = min(slack, finer / 4, COIN_SLACK * request.delta) if shares.joint else min(1e-18, slack)
    if finer > length * shares.cap * 2.0**-117:
        slack = min(slack, finer)
    if shares.joint:
        return solve_joint_grid(noise_multiplier=noise, shares=shares, length=length, max_slack=slack)
    if shares.by_aggregators:
        return solve_ballot_grid(noise_multiplier=noise, shares=shares, length=length, max_slack=slack)
    return solve_grid(
        units=None if request.units is None else _most_units(request),
        noise_multiplier=noise,
        shares=shares,
        length=length,
        form=request.form,
        max_slack=slack,
        step_one=request.grid == "papers",
        bits=request.bits,
    )


def _most_units(request: PrivacyRequest) -> int:
    """Return the most units of a round but for a chance of 2^-40, which the modulus leaves room for.

    More would wrap, which spoils a sum and is no leak: nothing is charged for it.
    """
    units = request.protected
    return units if request.unit_rate == 1 else min(units, upper_quantile(2.0**-40, units, request.unit_rate))


def grid_costs(grid: NoiseGrid | None, noise: float, shares: Shares) -> dict[str, float]:
    """Return s^2 / (z R)^2, by how much the rounding widens the variance, and the lattice's distance; floats: none.

    Two aggregators widen each its own half, so that neither's noise less the rounding is below z / sqrt(2).
    """
    if grid is not None and shares.by_aggregators:
        return {"rounding": 0.0, "lattice": grid.slack}
    return {} if grid is None else {"rounding": (ROUNDING / (noise * grid.radius)) ** 2, "lattice": grid.slack}
