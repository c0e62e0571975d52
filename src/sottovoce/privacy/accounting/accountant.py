"""Turn releases into epsilon, and a wanted epsilon into noise, by dp-accounting.

    pld      privacy loss distributions (Koskela et al. 2020; Doroshenko et al. 2022): tight, the default
    rdp      Renyi differential privacy (Mironov 2017; Mironov, Talwar and Zhang 2019)
    moments  the papers' accountant (Abadi et al. 2016), integer orders up to 32: to reproduce their printed numbers

dp-accounting takes a second to import, so nothing here imports it before it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import PrivacyError
from sottovoce.core.validate import in_range, one_of
from sottovoce.privacy.accounting import distributions
from sottovoce.privacy.accounting.events import ACCOUNTANTS, Accountant, Event

FINE: Final = (
    100  # steps of the discretised privacy loss in one round's standard deviation; an upper bound whatever it is
)
COARSE: Final = 12  # for searching
MOMENT_ORDERS: Final = range(1, 33)
CURVE_VALUES: Final = 500  # epsilons that are reckoned one by one
MIN_NOISE: Final = 1e-2
MAX_NOISE: Final = 1e5
SETTLING: Final = 200  # times that delta is reckoned anew, until what is taken from it changes no more
NEGLIGIBLE: Final = 1e-3  # of delta: a rarer truncation is charged to delta, a likelier one by its own distribution


def epsilon(events: Sequence[Event], *, delta: float, accountant: Accountant = "pld", steps: int = FINE) -> float:
    """Return the epsilon of all events together against anyone who does not know who was sampled.

    Guarantee: an upper bound for zero-out adjacency (one client's messages replaced by nothing), whichever accountant.

    >>> event = Event(noise_multiplier=1.54, sample_rate=1 / 60, rounds=200)
    >>> round(epsilon([event], delta=1e-5, accountant="moments"), 4)
    1.0006
    """
    _check(delta, accountant)
    return _composed(tuple(events), delta, accountant, steps) if events else 0.0


@lru_cache(maxsize=1024)  # plans that differ in the length of their messages ask the same question
def _composed(events: tuple[Event, ...], delta: float, accountant: Accountant, steps: int) -> float:
    price = partial(_epsilon, events, accountant, steps)
    return float(_at_slack(events, delta, accountant, price))


def epsilon_server(
    participations: Iterable[tuple[float, int]], *, delta: float, accountant: Accountant = "pld"
) -> float:
    """Return the epsilon of (noise multiplier, count) participations against somebody who knows who was sampled.

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
    if accountant == "pld":
        guess = rough_noise(target, make, delta=delta)
        guess, slope = _search(target, lambda z: epsilon(make(z), delta=delta, steps=COARSE), guess, 1e-4)
    else:
        guess, slope = _search(target, lambda z: epsilon(make(z), delta=delta, accountant=accountant), 1.0, 1e-7)
    for _ in range(8):
        excess = math.log(max(epsilon(make(guess), delta=delta, accountant=accountant), 1e-300) / target)
        if -5e-6 < excess <= 0 or (guess <= MIN_NOISE and excess <= 0):
            return guess
        # Aim a hair below the target: the answer must not cost more than asked.
        guess = min(MAX_NOISE, max(MIN_NOISE, guess * math.exp(min(1.0, max(-1.0, (excess + 2e-6) / slope)))))
    more = 1e-5
    while epsilon(make(guess), delta=delta, accountant=accountant) > target:
        if guess >= MAX_NOISE:
            raise _out_of_reach(target)
        guess, more = min(MAX_NOISE, guess * (1 + more)), 2 * more
    return guess


def rough_noise(
    target: float, make: Callable[[float], Sequence[Event]], *, delta: float, within: float = 1e-2
) -> float:
    """Return about the noise multiplier at which `make(noise_multiplier)` costs `target`, in a millisecond; no bound.

    By the central limit theorem many rounds look like one Gaussian of the same spread (Bu et al. 2020).
    """

    def cost(noise: float) -> float:
        return _gaussian(1 / math.sqrt(distributions.spread(make(noise))), delta, "pld")

    return _search(target, cost, 1.0, within)[0]


def _out_of_reach(target: float) -> PrivacyError:
    return PrivacyError(
        f"epsilon {target:g} is out of reach: not even a noise multiplier of {MAX_NOISE:g} is enough; "
        "raise epsilon or delta, or run fewer rounds"
    )


def _search(target: float, cost: Callable[[float], float], guess: float, tolerance: float) -> tuple[float, float]:
    """Return z with cost(z) near `target`, and -d log cost / d log z there; the cost falls in z, nearly as a power."""
    low, high, slope = 0.0, math.inf, 1.0
    previous: tuple[float, float] | None = None
    for _ in range(60):
        value = cost(guess)
        point = (math.log(guess), math.log(max(value, 1e-12) / target))
        if value > target:
            low = guess
        else:
            high = guess
        if previous is not None and abs(point[0] - previous[0]) > 1e-12:
            slope = min(20.0, max(0.1, -(point[1] - previous[1]) / (point[0] - previous[0])))
        if previous is not None and (abs(point[1]) < tolerance or high / low - 1 < 1e-9 if low else guess <= MIN_NOISE):
            return guess, slope
        if low > MAX_NOISE:
            raise _out_of_reach(target)
        previous = point
        step = guess * math.exp(min(2.0, max(-2.0, point[1] / slope)))
        if not low < step < high:
            step = math.sqrt(low * high) if low and high < math.inf else step
        guess = max(MIN_NOISE, step if step != guess else guess * (1 + 1e-6))
    return guess, slope


def epsilons_by_round(
    before: Sequence[Event], each: Event, *, delta: float, accountant: Accountant = "pld"
) -> list[float]:
    """Return epsilon after 1, 2, ... `each.rounds` rounds, with `before` spent already; quick, and never too small.

    Of very many rounds only some are reckoned; a round in between is said to cost what the next of those costs.
    """
    last = epsilon([*before, each], delta=delta, accountant=accountant)
    block = -(-each.rounds // CURVE_VALUES)

    def single(left: float, exact: bool) -> list[float]:
        if accountant == "pld" and each.sample_rate < 1:
            return distributions.curve(tuple(before), each, block, left, exact)
        steps = (replace(each, rounds=count + block) for count in range(0, each.rounds, block))
        return [_epsilon((*before, step), accountant, FINE, left, exact) for step in steps]

    curve = _at_slack([*before, each], delta, accountant, single)
    # More rounds never cost less, so the finer last value bounds them all.
    return [min(curve[round_ // block], last) for round_ in range(each.rounds)]


def truncation_slack(event: Event) -> float:
    """Return the probability that any round of the event draws more clients than its cohort cap."""
    if event.cohort_cap is None or event.clients is None:
        return 0.0
    from scipy.stats import binom

    return float(event.rounds * binom.sf(event.cohort_cap, event.clients, event.sample_rate))


def renyi(events: Sequence[Event], order: float) -> float:
    """Return the Renyi divergence of all events together, as if no cohort were cut or sent home; see `renyi_orders`."""
    place = renyi_orders().index(order)
    return sum(e.rounds * _renyi(e.faced / e.distance, e.sample_rate)[place] for e in events)


def _check(delta: float, accountant: str) -> None:
    in_range("delta", delta, low=0, high=1, open_low=True, open_high=True)
    one_of("accountant", accountant, ACCOUNTANTS)


def _at_slack(events: Sequence[Event], delta: float, accountant: str, price: Callable[[float, bool], Any]) -> Any:
    """Price the events as if cohorts were never cut or sent home, after taking from delta what that costs.

    If cutting has probability eta in either world, (epsilon, d) of the uncut release is (epsilon, d + (1 + e^epsilon)
    eta) of the cut one. A cut that is too likely for that is priced exactly, which only `pld` can. Sending home costs
    the events' `floor_slack`, and too few answers their `quorum_slack`, whatever epsilon is.
    """
    floor = sum(event.floor_slack for event in events)
    quorum = sum(event.quorum_slack for event in events)
    if floor >= delta:
        raise PrivacyError(
            f"cohort_floor is too high: a cohort just below it has probability {floor:.2g} over all rounds, which uses "
            f"up delta {delta:g}; lower cohort_floor, or raise sample_rate or delta"
        )
    if floor + quorum >= delta:
        raise PrivacyError(
            f"answer_rate is too low: rounds that one answer decides have probability {quorum:.2g} over all rounds, "
            f"which uses up delta {delta:g}; ask more clients a round, or raise delta"
        )
    delta -= floor + quorum
    eta = sum(truncation_slack(event) for event in events)
    if eta == 0:
        return price(delta, False)
    left = delta
    for _ in range(SETTLING):
        value = price(left, False)
        worst = max(value) if isinstance(value, list) else value
        taken = (1 + math.exp(min(worst, 700.0))) * eta
        if taken > NEGLIGIBLE * delta and accountant == "pld":
            return price(delta, True)
        if taken >= delta:
            break
        if delta - taken >= left:
            return value
        left = (delta - taken) * (1 - 1e-9)
    # What is left of delta never settled above zero: no value was priced at a delta that it leaves.
    raise PrivacyError(
        f"cohort_cap is too low for the {accountant} accountant: cutting a cohort has probability {eta:.2g} "
        f"over all rounds, which uses up delta {delta:g}; raise cohort_cap or use the pld accountant"
    )


def _epsilon(events: tuple[Event, ...], accountant: Accountant, steps: int, delta: float, exact: bool) -> float:
    if all(event.sample_rate == 1 for event in events):
        return epsilon_server([(e.faced, e.rounds) for e in events], delta=delta, accountant=accountant)
    if accountant == "pld":
        return float(distributions.composed(events, steps, exact).get_epsilon_for_delta(delta))
    if accountant == "rdp":
        from dp_accounting.rdp import compute_epsilon

        orders = renyi_orders()
        divergence = sum(
            (e.rounds * np.asarray(_renyi(e.faced / e.distance, e.sample_rate)) for e in events),
            start=np.zeros(len(orders)),
        )
        return max(0.0, float(compute_epsilon(orders, divergence, delta)[0]))
    total = sum(event.rounds * _moments(event.faced / event.distance, event.sample_rate) for event in events)
    return float(np.min((total - math.log(delta)) / np.asarray(MOMENT_ORDERS)))


def _gaussian(multiplier: float, delta: float, accountant: Accountant) -> float:
    """Return the epsilon of one Gaussian release without sampling."""
    if accountant == "pld":
        from dp_accounting import get_epsilon_gaussian

        with np.errstate(divide="ignore"):  # it takes the logarithm of a zero where nothing is left to pay
            return float(get_epsilon_gaussian(multiplier, delta))
    if accountant == "rdp":
        from dp_accounting.rdp import compute_epsilon

        orders = np.asarray(renyi_orders())
        return max(0.0, float(compute_epsilon(orders, orders / (2 * multiplier**2), delta)[0]))
    return float(np.min((_moments(multiplier, 1.0) - math.log(delta)) / np.asarray(MOMENT_ORDERS)))


@lru_cache(maxsize=1)
def renyi_orders() -> tuple[float, ...]:
    """Return the orders at which Renyi divergences are known."""
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    return tuple(float(order) for order in rdp.DEFAULT_RDP_ORDERS)


@lru_cache(maxsize=256)
def _renyi(multiplier: float, sample_rate: float) -> tuple[float, ...]:
    """Return the Renyi divergences of one round, by dp-accounting."""
    import logging

    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    # dp-accounting logs through absl, and tells of every order that it leaves out, which is never unsafe.
    logging.getLogger("absl").setLevel(logging.ERROR)
    orders = renyi_orders()
    account = RdpAccountant(orders)
    account.compose(PoissonSampledDpEvent(sample_rate, GaussianDpEvent(multiplier)))
    # The accountant hands out epsilons only; its vector of divergences is what composes.
    return tuple(float(value) for value in account._rdp)


@lru_cache(maxsize=256)
def _moments(multiplier: float, sample_rate: float) -> NDArray[np.float64]:
    """Return alpha(l) of Abadi et al. 2016 for one round and every order l: the log of the (l + 1)-th binomial moment.

    log sum_k C(a, k) (1 - q)^(a - k) q^k exp(k (k - 1) / (2 z^2)), a = l + 1
    """
    from scipy.special import gammaln, logsumexp

    a = np.asarray(MOMENT_ORDERS, dtype=float)[:, None] + 1
    if sample_rate == 1:
        return np.asarray(a * (a - 1) / (2 * multiplier**2)).reshape(-1)
    k = np.arange(a.max() + 1)[None, :]
    inside = k <= a
    choose = gammaln(a + 1) - gammaln(k + 1) - gammaln(np.where(inside, a - k, 0) + 1)
    logs = choose + (a - k) * math.log1p(-sample_rate) + k * math.log(sample_rate) + k * (k - 1) / (2 * multiplier**2)
    return np.asarray(logsumexp(np.where(inside, logs, -np.inf), axis=1))
