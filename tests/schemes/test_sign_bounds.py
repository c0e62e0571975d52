"""The thesis' proofs about FL-SIGN in numbers, against the distributions and sums they speak of."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sottovoce.core.errors import InputError
from sottovoce.schemes.sign_bounds import convergence, slack


def discrete_gaussian(mean: float, stddev: float, reach: int = 60) -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(-reach, reach + 1)
    mass = np.exp(-((x - mean) ** 2) / (2 * stddev**2))
    return x, mass / mass.sum()


@pytest.mark.parametrize("stddev", [0.6, 0.8, 1.0, 1.5])
@pytest.mark.parametrize("mean", [0.0, 0.3, 0.5])
def test_kappa_bounds_the_ratio_of_the_two_gaussians(stddev: float, mean: float) -> None:
    """Lemma 1; the bound is tight: three quarters of it are reached at the worst means."""
    _, mass = discrete_gaussian(mean, stddev)
    density = np.exp(-((np.arange(-60, 61) - mean) ** 2) / (2 * stddev**2)) / (math.sqrt(2 * math.pi) * stddev)
    keep = mass > 1e-12
    away = np.abs(density[keep] / mass[keep] - 1).max()
    kappa = slack(stddev, cohort=1).kappa

    assert away <= kappa * (1 + 1e-9) + 1e-13
    if mean != 0.3 and kappa > 1e-6:
        assert away > 0.75 * kappa


@pytest.mark.parametrize(("stddev", "cohort"), [(1.2, 2), (1.6, 2), (1.6, 3)])
def test_nu_bounds_how_far_shared_noise_is_from_one_discrete_gaussian(stddev: float, cohort: int) -> None:
    """Lemma 3, by folding the distributions of the shares."""
    means = [0.5, 0.2, 0.9][:cohort]
    shares = [discrete_gaussian(mean, stddev / math.sqrt(cohort))[1] for mean in means]
    total = shares[0]
    for share in shares[1:]:
        total = np.convolve(total, share)
    whole = discrete_gaussian(sum(means), stddev, reach=(len(total) - 1) // 2)[1]
    keep = whole > 1e-10
    ratio = total[keep] / whole[keep]
    nu = slack(stddev, cohort).nu

    assert (1 - nu) / (1 + nu) <= ratio.min() and ratio.max() <= (1 + nu) / (1 - nu)
    assert ratio.max() - 1 > 1e-9, "the sum of discrete Gaussians is not one"


def test_the_smallest_nu_meets_the_lemmas_condition_with_equality() -> None:
    found = slack(2.0, cohort=5)

    assert math.sqrt(5 * math.log(2 + 2 / found.nu)) / math.pi == pytest.approx(2.0)
    assert math.log10(found.nu) == pytest.approx(found.log10_nu)
    assert math.log10(found.kappa) == pytest.approx(found.log10_kappa)


def test_in_the_papers_set_up_the_slack_is_nothing() -> None:
    """n = 1,663,370, sigma 1.54, 100 clients: the sum has a noise of 1986 steps."""
    found = slack(math.sqrt(1_663_370) * 1.54, cohort=100)

    assert (found.kappa, found.nu, found.epsilon(200)) == (0, 0, 0)
    assert found.log10_nu == pytest.approx(-169_086, rel=1e-3)


def test_what_a_round_adds_to_epsilon_is_largest_at_order_one() -> None:
    found = slack(1.2, cohort=3)
    added = [found.moment(order) / order for order in range(1, 33)]

    assert added == sorted(added, reverse=True)
    assert found.epsilon(10) == pytest.approx(10 * added[0])
    k, v = found.kappa, found.nu
    assert found.moment(4) == pytest.approx(math.log((1 + k) ** 4 / (1 - k) ** 5 * ((1 + v) / (1 - v)) ** 3))


def test_noise_that_is_too_coarse_has_no_bound() -> None:
    with pytest.raises(InputError, match=r"too coarse for Lemma 4; it needs more than 3\.748"):
        slack(3.0, cohort=100)


def test_theorem_6_is_the_printed_sum() -> None:
    """Written out for |tau|_1 = 7 and the |L|_1 for which the server's step is the theorem's."""
    rounds, cohort, gap, step, tau = 200, 100, 2.3, 0.001, 7.0
    smooth = gap / (step**2 * rounds)
    honest = convergence(rounds=rounds, cohort=cohort, server_lr=step, gap=gap).bound(tau)
    noisy = convergence(
        rounds=rounds, cohort=cohort, server_lr=step, gap=gap, noise_multiplier=1.54, length=1_663_370
    ).bound(tau)
    attacked = convergence(rounds=rounds, cohort=cohort, server_lr=step, gap=gap, fraction=0.4).bound(tau)

    scale, descent = 2 / math.sqrt(rounds), math.sqrt(smooth * gap)
    assert honest == pytest.approx(scale * (tau / math.sqrt(cohort) + descent))
    assert noisy == pytest.approx(
        scale * (tau / math.sqrt(cohort) + math.sqrt(3 * 1_663_370) * 1.54 * tau / cohort + descent)
    )
    assert attacked == pytest.approx(scale * (math.sqrt(2) * tau / (0.6 * math.sqrt(cohort)) + descent))


def test_theorem_6_has_no_bound_for_noise_and_attackers() -> None:
    with pytest.raises(InputError, match="not both"):
        convergence(rounds=1, cohort=1, server_lr=1, gap=1, fraction=0.1, noise_multiplier=1, length=1)


def test_signs_of_a_noisy_quadratic_keep_to_theorem_6() -> None:
    """f = |w|^2 / 2 per coordinate with gradient noise tau, the theorem's gamma and batch; 20 runs, none is near it."""
    rng = np.random.default_rng(5)
    dim, rounds, cohort, deviation = 20, 400, 11, 2.0
    start = rng.standard_normal(dim)
    gap = float((start**2).sum() / 2)
    step = math.sqrt(gap / (dim * rounds))
    bound = convergence(rounds=rounds, cohort=cohort, server_lr=step, gap=gap)
    means = []
    for _ in range(20):
        w, norms = start.copy(), []
        for _ in range(rounds):
            norms.append(np.abs(w).sum())
            votes = np.sign(w + rng.normal(0, deviation / math.sqrt(rounds), (cohort, dim))).sum(0)
            w -= step * np.sign(votes)
        means.append(float(np.mean(norms)))

    # tau of a single record; the batch of T records is in the theorem's 1 / sqrt(T).
    assert max(means) <= bound.bound(dim * deviation)
