"""Turn releases into epsilon, and a wanted epsilon into noise, by dp-accounting.

    pld      privacy loss distributions (Koskela et al. 2020; Doroshenko et al. 2022): tight, the default
    rdp      Renyi differential privacy (Mironov 2017; Mironov, Talwar and Zhang 2019)
    moments  the papers' accountant (Abadi et al. 2016), integer orders up to 32: to reproduce their printed numbers

dp-accounting takes a second to import, so nothing here imports it before it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.validate import in_range, one_of
from sottovoce.privacy.events import ACCOUNTANTS, Accountant, Event

__all__ = ["epsilon", "epsilon_server", "epsilons_by_round", "noise_multiplier", "truncation_slack"]

INTERVAL: Final = 1e-4  # of the discretised privacy loss; the result is an upper bound whatever it is
COARSE: Final = 1e-3  # for searching
CURVE: Final = 5e-4  # for one value a round
MOMENT_ORDERS: Final = range(1, 33)
MAX_NOISE: Final = 1e5
NEGLIGIBLE: Final = 1e-3  # of delta: a rarer truncation is charged to delta, a likelier one by its own distribution


def epsilon(events: Sequence[Event], *, delta: float, accountant: Accountant = "pld", interval: float = INTERVAL) -> float:
    """Return the epsilon of all events together against anyone who does not know who was sampled.

    Guarantee: an upper bound for zero-out adjacency (one client's messages replaced by nothing), whichever accountant.

    >>> round(epsilon([Event(noise_multiplier=1.54, sample_rate=1 / 60, rounds=200)], delta=1e-5, accountant="moments"), 4)
    1.0006
    """
    _check(delta, accountant)
    if not events:
        return 0.0
    return _at_slack(events, delta, accountant, lambda left, exact: _epsilon(tuple(events), left, accountant, interval, exact))


def epsilon_server(
    participations: Iterable[tuple[float, int]], *, delta: float, accountant: Accountant = "pld"
) -> float:
    """Return the epsilon of (noise multiplier, count) participations against the server, which knows whom it sampled.

    Guarantee: no amplification is used; Gaussian releases compose to one Gaussian, so `pld` is exact here.

    >>> round(epsilon_server([(1.54, 1)], delta=1e-5), 3)
    2.673
    """
    _check(delta, accountant)
    precision = sum(count / (multiplier * multiplier) for multiplier, count in participations)
    if precision == 0:
        return 0.0
    return _gaussian(1 / math.sqrt(precision), delta, accountant)


def noise_multiplier(
    target: float, make: Callable[[float], Sequence[Event]], *, delta: float, accountant: Accountant = "pld"
) -> float:
    """Return the least noise multiplier (to about 1e-6) at which `make(noise_multiplier)` costs at most `target`.

    The search runs on a coarse privacy-loss grid, whose error changes slowly, and is corrected on the fine one.
    """
    in_range("epsilon", target, low=0, open_low=True)
    _check(delta, accountant)

    def excess(log_noise: float, interval: float, wanted: float) -> float:
        return epsilon(make(math.exp(log_noise)), delta=delta, accountant=accountant, interval=interval) - wanted

    def root(wanted: float, interval: float, guess: float, width: float) -> float:
        from scipy.optimize import brentq

        low, high = guess - width, guess + width
        while excess(high, interval, wanted) > 0:
            low, high = high, high + 4 * width
            if high > math.log(MAX_NOISE):
                raise PrivacyError(
                    f"epsilon {target:g} cannot be met with delta {delta:g}: not even a noise multiplier of {MAX_NOISE:g} "
                    "is enough; raise epsilon or delta, or run fewer rounds"
                )
        while excess(low, interval, wanted) < 0:
            low, high = low - 4 * width, low
            if low < math.log(1e-2):
                return low  # so much budget that the noise hardly matters
        return float(brentq(excess, low, high, args=(interval, wanted), xtol=1e-6))

    if accountant != "pld":
        return _nudge(target, math.exp(root(target, INTERVAL, 0.3, 0.5)), make, delta, accountant)
    guess = root(target, COARSE, 0.3, 0.5)
    bias = excess(guess, COARSE, 0) - excess(guess, INTERVAL, 0)
    if abs(bias) > 1e-7:
        guess = root(target + bias, COARSE, guess, 2 * abs(bias) / max(target, 1e-3) + 1e-5)
    return _nudge(target, math.exp(guess), make, delta, accountant)


def epsilons_by_round(before: Sequence[Event], each: Event, *, delta: float, accountant: Accountant = "pld") -> list[float]:
    """Return epsilon after 1, 2, ... `each.rounds` rounds, with `before` spent already; quick, and never too small."""
    last = epsilon([*before, each], delta=delta, accountant=accountant)

    def single(left: float, exact: bool) -> list[float]:
        if accountant == "pld" and each.sample_rate < 1:
            return _pld_curve(tuple(before), each, left, exact)
        steps = (Event(**{**vars(each), "rounds": count}) for count in range(1, each.rounds + 1))
        return [_epsilon((*before, step), left, accountant, INTERVAL, exact) for step in steps]

    curve = _at_slack([*before, each], delta, accountant, single)
    # More rounds never cost less, so the finer last value bounds them all.
    return [min(value, last) for value in curve]


def truncation_slack(event: Event) -> float:
    """Return the probability that any round of the event draws more clients than its cohort cap."""
    if event.cohort_cap is None or event.clients is None:
        return 0.0
    from scipy.stats import binom

    return float(event.rounds * binom.sf(event.cohort_cap, event.clients, event.sample_rate))


def _check(delta: float, accountant: str) -> None:
    in_range("delta", delta, low=0, high=1, open_low=True, open_high=True)
    one_of("accountant", accountant, ACCOUNTANTS)


def _at_slack(events: Sequence[Event], delta: float, accountant: str, price: Callable[[float, bool], Any]) -> Any:
    """Price the events as if cohorts were never cut, after taking from delta what that costs.

    If cutting has probability eta in either world, (epsilon, d) of the uncut release is (epsilon, d + (1 + e^epsilon) eta) of
    the cut one. A cut that is too likely for that is priced exactly, which only `pld` can.
    """
    eta = sum(truncation_slack(event) for event in events)
    if eta == 0:
        return price(delta, False)
    left = delta
    for _ in range(4):
        value = price(left, False)
        worst = max(value) if isinstance(value, list) else value
        taken = (1 + math.exp(min(worst, 700.0))) * eta
        if taken > NEGLIGIBLE * delta and accountant == "pld":
            return price(delta, True)
        if taken >= delta:
            raise PrivacyError(
                f"the cohort cap is too low for the {accountant} accountant: cutting a cohort has probability {eta:.2g} over all "
                f"rounds, which uses up delta {delta:g}; raise cohort_cap or use the pld accountant"
            )
        if delta - taken >= left:
            return value
        left = (delta - taken) * (1 - 1e-9)
    return value


@lru_cache(maxsize=256)
def _epsilon(events: tuple[Event, ...], delta: float, accountant: Accountant, interval: float, exact: bool) -> float:
    if all(event.sample_rate == 1 for event in events):
        return epsilon_server([(e.noise_multiplier, e.rounds) for e in events], delta=delta, accountant=accountant)
    if accountant == "pld":
        parts = [_distribution(event, interval, exact).self_compose(event.rounds) for event in events]
        total = parts[0]
        for part in parts[1:]:
            total = total.compose(part)
        return float(total.get_epsilon_for_delta(delta))
    if accountant == "rdp":
        from dp_accounting.rdp import compute_epsilon

        orders = _renyi_orders()
        divergence = sum(
            (e.rounds * np.asarray(_renyi(e.noise_multiplier / e.distance, e.sample_rate)) for e in events),
            start=np.zeros(len(orders)),
        )
        return max(0.0, float(compute_epsilon(orders, divergence, delta)[0]))
    return min(
        (sum(e.rounds * _moment(order, e.noise_multiplier / e.distance, e.sample_rate) for e in events) - math.log(delta)) / order
        for order in MOMENT_ORDERS
    )


@lru_cache(maxsize=32)
def _distribution(event: Event, interval: float, exact: bool) -> Any:
    """Return the privacy loss distribution of one round of an event."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    options = {"value_discretization_interval": interval, "log_mass_truncation_bound": -50}
    if exact and event.cohort_cap is not None:
        return pld.from_truncated_subsampled_gaussian_mechanism(
            event.clients, event.sample_rate, event.cohort_cap, event.noise_multiplier, **options
        )
    return pld.from_gaussian_mechanism(
        event.noise_multiplier / event.distance, sampling_prob=event.sample_rate, **options
    )


def _pld_curve(before: tuple[Event, ...], each: Event, delta: float, exact: bool) -> list[float]:
    step = _distribution(each, CURVE, exact)
    total = None
    for event in before:
        part = _distribution(event, CURVE, exact).self_compose(event.rounds)
        total = part if total is None else total.compose(part)
    curve = []
    for _ in range(each.rounds):
        total = step if total is None else total.compose(step)
        curve.append(float(total.get_epsilon_for_delta(delta)))
    return curve


def _gaussian(multiplier: float, delta: float, accountant: Accountant) -> float:
    """Return the epsilon of one Gaussian release without sampling."""
    if accountant == "pld":
        from dp_accounting import get_epsilon_gaussian

        return float(get_epsilon_gaussian(multiplier, delta))
    if accountant == "rdp":
        from dp_accounting.rdp import compute_epsilon

        orders = np.asarray(_renyi_orders())
        return max(0.0, float(compute_epsilon(orders, orders / (2 * multiplier**2), delta)[0]))
    return min((_moment(order, multiplier, 1.0) - math.log(delta)) / order for order in MOMENT_ORDERS)


@lru_cache(maxsize=1)
def _renyi_orders() -> tuple[float, ...]:
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    return tuple(float(order) for order in rdp.DEFAULT_RDP_ORDERS)


@lru_cache(maxsize=256)
def _renyi(multiplier: float, sample_rate: float) -> tuple[float, ...]:
    """Return the Renyi divergences of one round, by dp-accounting."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    orders = _renyi_orders()
    account = RdpAccountant(orders)
    account.compose(PoissonSampledDpEvent(sample_rate, GaussianDpEvent(multiplier)))
    # The accountant hands out epsilons only; its vector of divergences is what composes.
    return tuple(float(value) for value in account._rdp)


def _moment(order: int, multiplier: float, sample_rate: float) -> float:
    """Return alpha(order) of Abadi et al. 2016 for one round: the log of the (order + 1)-th binomial moment.

    log sum_k C(a, k) (1 - q)^(a - k) q^k exp(k (k - 1) / (2 z^2)), a = order + 1
    """
    from scipy.special import gammaln, logsumexp

    if sample_rate == 1:
        return order * (order + 1) / (2 * multiplier**2)
    a = order + 1
    k = np.arange(a + 1)
    choose = gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)
    logs = choose + (a - k) * math.log1p(-sample_rate) + k * math.log(sample_rate) + k * (k - 1) / (2 * multiplier**2)
    return float(logsumexp(logs))


def _nudge(
    target: float, guess: float, make: Callable[[float], Sequence[Event]], delta: float, accountant: Accountant
) -> float:
    """Raise a root that rounding left a hair too low until the fine accountant agrees."""
    for _ in range(60):
        if epsilon(make(guess), delta=delta, accountant=accountant) <= target:
            return guess
        guess *= 1 + 2e-6
    raise InputError(f"the {accountant} accountant found no noise for epsilon {target:g}")
