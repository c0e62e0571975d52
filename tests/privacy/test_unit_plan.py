"""Plans that protect the records or persons of a few sites."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.privacy import PrivacyPlan, Randomness
from sottovoce.privacy.noise.path import COARSE, protect_total, unit_centres

DELTA = 1e-5


def plan(**changes: Any) -> PrivacyPlan:
    """Return the plan of five hospitals with 30,000 records, of which four must stay."""
    keys = {
        "clients": 5,
        "sample_rate": 1,
        "rounds": 80,
        "delta": DELTA,
        "length": 40,
        "clip_norm": 1.0,
        "threshold": 0.75,
        "unit": "record",
        "units": 30_000,
    }
    return PrivacyPlan.solve(**{**keys, **changes})


def gaussian(multiplier: float, rounds: int) -> float:
    """Return the epsilon of full batches, by dp-accounting called directly."""
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(multiplier / math.sqrt(rounds), DELTA))


def sampled(multiplier: float, rate: float, rounds: int) -> float:
    """Return the epsilon of sampled batches, by dp-accounting called directly."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    account = PLDAccountant()
    account.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier)), rounds)
    return float(account.get_epsilon(DELTA))


def left(solved: PrivacyPlan, shares: float) -> float:
    """Return the noise multiplier of some of five shares, each with its part of the rounding width of two steps."""
    grid = solved.grid
    assert grid is not None
    return math.sqrt(grid.variance * shares / 5 - 4) / grid.radius


@pytest.mark.parametrize(("colluders", "outsiders", "server", "site"), [(0, 5, 4, 4), (1, 4, 3, 3), (2, 3, 2, 2)])
def test_full_batches_cost_what_dp_accounting_says(colluders: int, outsiders: int, server: int, site: int) -> None:
    solved = plan(noise_multiplier=40.0, colluders=colluders)

    for value, shares in ((solved.epsilon, outsiders), (solved.epsilon_server, server), (solved.epsilon_site, site)):
        assert value == pytest.approx(gaussian(left(solved, shares), 80), rel=2e-5)


@pytest.mark.parametrize(("colluders", "outsiders", "server"), [(0, 5, 4), (1, 4, 3), (2, 3, 2)])
def test_sampled_units_cost_what_dp_accounting_says(colluders: int, outsiders: int, server: int) -> None:
    solved = plan(noise_multiplier=3.874, unit_rate=1 / 20, rounds=400, colluders=colluders)

    assert solved.epsilon == pytest.approx(sampled(left(solved, outsiders), 1 / 20, 400), rel=2e-3)
    assert solved.epsilon_server == pytest.approx(sampled(left(solved, server), 1 / 20, 400), rel=2e-3)
    assert solved.epsilon_site == solved.epsilon_server  # another site knows its own share, the server one that is gone


def test_sampled_units_are_charged_by_dp_accounting_where_all_other_sites_collude() -> None:
    solved = plan(noise_multiplier=3.874, unit_rate=1 / 20, rounds=400, colluders=4)

    for value in (solved.epsilon, solved.epsilon_server, solved.epsilon_site):
        assert value == pytest.approx(sampled(left(solved, 1), 1 / 20, 400), rel=2e-3)


def test_a_full_batch_before_sampled_rounds_is_composed_as_dp_accounting_does() -> None:
    """A vote of every unit and rounds by coins are one event of two kinds, not two epsilons."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    vote = plan(noise_multiplier=9.0, rounds=1)
    solved = plan(noise_multiplier=3.874, unit_rate=1 / 20, rounds=400, spent=tuple(vote.events()))

    for value, shares in ((solved.epsilon, 5), (solved.epsilon_server, 4)):
        account = PLDAccountant()
        account.compose(GaussianDpEvent(left(vote, shares)))
        account.compose(PoissonSampledDpEvent(1 / 20, GaussianDpEvent(left(solved, shares))), 400)
        assert value == pytest.approx(float(account.get_epsilon(DELTA)), rel=2e-3)


def test_where_all_other_sites_collude_each_site_adds_the_whole_noise() -> None:
    """No threshold helps then, and none is asked for: a round with one site is as private as any."""
    solved = plan(epsilon_server=1.0, colluders=4, threshold=0.5)

    assert solved.request.local_noise
    assert solved.epsilon_server <= 1
    assert left(solved, 1) == pytest.approx(plan(epsilon=1.0, threshold=1.0).noise_multiplier, rel=2e-3)
    for value in (solved.epsilon, solved.epsilon_server, solved.epsilon_site):
        assert value == pytest.approx(gaussian(left(solved, 1), 80), rel=2e-5)


def test_a_target_against_the_server_is_reached_and_not_exceeded() -> None:
    solved = plan(epsilon_server=1.0)

    assert 0.995 < solved.epsilon_server <= 1
    assert solved.epsilon < solved.epsilon_server
    assert solved.noise_multiplier == pytest.approx(3.731 * math.sqrt(80) / math.sqrt(4 / 5), rel=5e-3)


def test_the_rate_of_sites_amplifies_nothing() -> None:
    every, some = plan(epsilon_server=1.0, threshold=1.0), plan(epsilon_server=1.0, threshold=1.0, sample_rate=0.4)

    assert some.epsilon == every.epsilon
    assert some.events()[-1].sample_rate == 1
    assert some.events()[-1].rounds == 80
    assert some.noise_multiplier >= every.noise_multiplier


def test_nothing_is_charged_for_floor_or_quorum_and_nobody_is_turned_away() -> None:
    """Whether enough sites answer does not depend on one of their records, so no answer rate is needed."""
    solved = plan(epsilon_server=1.0, answer_rate=None, sample_rate=0.8)
    own = solved.events()[-1]

    assert math.isfinite(solved.epsilon)
    assert (own.floor_slack, own.quorum_slack, own.cohort_cap) == (0, 0, None)
    worn = np.full(5, 80, np.int32)
    drawn = [solved.draw_cohort(worn - 1, np.random.default_rng(seed)).clients.size for seed in range(50)]
    assert max(drawn) == 5


def test_the_server_divides_by_the_expected_batch() -> None:
    assert plan(noise_multiplier=40.0).expected_cohort == 30_000
    assert plan(noise_multiplier=40.0, unit_rate=0.1, sample_rate=0.8).expected_cohort == pytest.approx(2_400)


def test_bits_grow_with_the_logarithm_of_the_batch() -> None:
    bits = [plan(noise_multiplier=30.0, units=units, delta=1e-7).bits for units in (2_000, 32_000, 512_000)]

    assert bits[1] - bits[0] in (3, 4)
    assert bits[2] - bits[1] == 4


@pytest.mark.parametrize("units", [500, 30_000, 1_000_000])
def test_the_roundings_of_all_units_stay_below_the_noise(units: int) -> None:
    grid = plan(epsilon_server=1.0, units=units, delta=1e-7).grid
    assert grid is not None

    assert units / 2 * 2.0**-grid.precision <= math.sqrt(grid.variance) / 4


def test_no_unit_is_longer_than_the_clip_norm_and_short_ones_keep_their_length() -> None:
    solved, rng = plan(epsilon_server=1.0), np.random.default_rng(3)
    grid = solved.grid
    assert grid is not None
    messages = rng.normal(size=(300, 40)).astype(np.float32) * np.geomspace(1e-3, 100, 300)[:, None].astype(np.float32)

    rows = unit_centres(messages, clip_norm=1.0, radius=grid.radius, precision=grid.precision)

    limit = Fraction(grid.radius) ** 2 * 4**grid.precision
    assert all(sum(int(value) ** 2 for value in row) <= limit for row in rows)
    lengths = np.linalg.norm(messages, axis=1)
    kept = np.linalg.norm(rows, axis=1) / (grid.radius * 2**grid.precision)
    assert np.allclose(kept, np.minimum(lengths, 1), atol=2e-3)


def test_a_unit_that_diverged_counts_as_zero_and_nothing_else_changes() -> None:
    solved, messages = plan(epsilon_server=1.0), np.random.default_rng(1).normal(size=(3, 40)).astype(np.float32)
    broken = np.vstack([messages, np.full((1, 40), np.nan, np.float32)])

    assert (solved.centres(broken) == solved.centres(messages)).all()


def test_centres_are_the_same_however_units_are_grouped() -> None:
    solved, messages = plan(epsilon_server=1.0), np.random.default_rng(2).normal(size=(500, 40)).astype(np.float32)
    whole = solved.centres(messages)

    for parts in (5, 123, 500):
        assert (sum(solved.centres(part) for part in np.array_split(messages, parts)) == whole).all()


def test_signs_of_units_weigh_no_more_than_the_square_root_of_their_number() -> None:
    solved = plan(epsilon_server=1.0, form="signs", clip_norm=0.0)
    grid = solved.grid
    assert grid is not None
    signs = np.ones((1, 40), np.int8)

    centre = solved.centres(signs)

    assert Fraction(int((centre**2).sum()), 4**grid.precision) <= Fraction(grid.radius) ** 2
    assert np.sqrt((centre**2).sum()) / 2**grid.precision > grid.radius * (1 - 1 / 32)
    assert (solved.centres(np.vstack([signs, -signs])) == 0).all()
    with pytest.raises(InputError, match="signs must be"):
        solved.centres(np.zeros((1, 40), np.int8))


@pytest.mark.parametrize("precision", [5, COARSE, 12])
def test_a_site_adds_a_discrete_gaussian_around_its_exact_total(precision: int) -> None:
    """Mean and variance of 200,000 draws within five standard errors: 1 in a million tests fails by chance.

    At 3/2 of the variance it fails.
    """
    count, variance = 200_000, Fraction(80)
    total = np.full(count, -((1 << 20) << precision) + 3, np.int64)

    words = protect_total(
        total, precision=precision, share_variance=variance, bits=24, randomness=Randomness.simulated(bytes(32)).bits()
    )

    values = (words.astype(np.int64) + (1 << 23)) % (1 << 24) - (1 << 23) + (1 << 20) - 3 / 2**precision
    assert abs(values.mean()) < 5 * math.sqrt(80 / count)
    spread = 5 * math.sqrt(2 / count)
    assert abs(values.var() / 80 - 1) < spread
    assert abs(values.var() / 120 - 1) > spread


def test_two_draws_make_the_discrete_gaussian_of_the_whole_variance() -> None:
    """The exact law of both draws is compared with the discrete Gaussian, outcome by outcome."""
    from sottovoce.privacy.noise.path import NARROW
    from sottovoce.privacy.noise.table import fraction_tables

    variance, fine, start = Fraction(9), 3, 5  # around 5 / 2^11
    first = fraction_tables(Fraction(NARROW**2), fine)
    second = fraction_tables(variance - Fraction(NARROW**2, 4**COARSE), COARSE)
    law: dict[int, Fraction] = {}
    for offset, chance in enumerate(first.probabilities(start)):
        centre = first.first + offset
        row, base = centre % (1 << COARSE), centre >> COARSE
        for other, then in enumerate(second.probabilities(row)):
            place = base + second.first + other
            law[place] = law.get(place, Fraction(0)) + chance * then
    centre = start / 2 ** (COARSE + fine)
    weights = {place: math.exp(-((place - centre) ** 2) / 18) for place in range(-36, 37)}
    whole = sum(weights.values())

    assert all(abs(float(law[place]) - weight / whole) < 1e-13 for place, weight in weights.items())


def test_the_sum_of_all_sites_has_the_noise_that_is_charged() -> None:
    solved = plan(noise_multiplier=40.0, length=4000)
    total = np.zeros(4000, np.int64)
    words = sum(
        solved.protect_total(total, cohort=5, randomness=Randomness.simulated(bytes([site] * 32))).astype(np.uint32)
        for site in range(5)
    )

    released = solved.recover(words, cohort=5, survivors=5, randomness=Randomness.simulated(bytes(32))).total

    assert np.std(released) == pytest.approx(solved.stddev(), rel=5 / math.sqrt(2 * 4000))
    assert solved.stddev() >= 40


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"unit_rate": 0}, "unit_rate must be in"),
        ({"unit_rate": 1.5}, "unit_rate must be in"),
        ({"units": None}, "units must say how many records"),
        ({"unit": "client"}, 'units and unit_rate are for unit "record" or "person"'),
        ({"unit": "patient"}, "unit has no 'patient'"),
        ({"noise_by": "aggregators"}, "a ballot is one bit a site"),
        ({"clipping": "adaptive"}, 'clipping "fixed" only'),
        ({"mechanism": "gaussian"}, "discrete-gaussian"),
        ({"max_participations": 3}, "remove it"),
        ({"sampling": "fixed", "sample_rate": 0.4}, "asked by coins"),
        ({"colluders": 5}, "colluders must be in"),
    ],
)
def test_what_a_plan_for_units_refuses(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises((InputError, PrivacyError), match=sentence):
        plan(**{"noise_multiplier": 40.0, **changes})


def test_delta_must_be_below_one_by_the_number_of_units() -> None:
    with pytest.raises(PrivacyError, match=r"delta must be below 1 / units = 3.33e-05, got 0.0001"):
        plan(noise_multiplier=40.0, delta=1e-4)


def test_a_rate_of_units_is_charged_alike_between_machines() -> None:
    here, there = (plan(noise_multiplier=40.0, unit_rate=0.5, deployment=deployed) for deployed in (False, True))

    assert here.epsilon_server == there.epsilon_server


def test_a_message_of_one_client_is_not_protected_by_a_plan_for_units() -> None:
    with pytest.raises(PrivacyError, match="protects each record"):
        plan(noise_multiplier=40.0).protect(
            np.zeros(40, np.float32), cohort=5, randomness=Randomness.simulated(bytes(32))
        )
