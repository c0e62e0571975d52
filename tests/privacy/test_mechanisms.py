from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.errors import InputError
from sottovoce.privacy.noise.clipping import Adaptive, clip, norm, public_clip_norm
from sottovoce.privacy.noise.mechanisms import Laplace, Staircase
from sottovoce.privacy.plan.vote import elected, marks, vote_plan


@given(epsilon=st.floats(0.05, 8))
def test_the_best_gamma_in_one_dimension_is_gengs(epsilon: float) -> None:
    found = Staircase(epsilon, 1.0)

    assert found.best_gamma == 1 / (1 + math.exp(epsilon / 2))
    for other in (found.best_gamma * 0.9, found.best_gamma * 1.1):
        assert found.mean_norm <= Staircase(epsilon, 1.0, gamma=other).mean_norm


def test_the_expected_size_in_one_dimension_is_gengs() -> None:
    # Geng and Viswanath 2015: E|X| = D e^(eps/2) / (e^eps - 1).
    for epsilon in (0.1, 1.0, 4.0):
        assert Staircase(epsilon, 3.0).mean_norm == pytest.approx(3 * math.exp(epsilon / 2) / math.expm1(epsilon))


@pytest.mark.parametrize("dim", [1, 2, 5, 50, 7850])
def test_the_staircase_is_never_worse_than_laplace(dim: int) -> None:
    staircase, laplace = Staircase(1.0, 1.0, dim), Laplace(1.0, 1.0, dim)

    assert 0 <= staircase.best_gamma <= 1
    assert staircase.mean_norm <= laplace.mean_norm * (1 + 1e-9)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_the_density_falls_by_at_most_epsilon_within_one_sensitivity(dim: int, gamma: float) -> None:
    edges, masses = Staircase(0.8, 1.0, dim, gamma)._log_masses(gamma, dim)
    radii = np.arange(0.005, 5, 0.01)
    shell = np.searchsorted(edges, radii, side="right") - 1
    density = masses[shell] - np.log(edges[shell + 1] ** dim - edges[shell] ** dim)

    close = np.abs(radii[:, None] - radii[None, :]) <= 1
    assert np.abs(density[:, None] - density[None, :])[close].max() <= 0.8 + 1e-9


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(InputError, match=r"gamma must be in \[0, 1\], got 1.7"):
        Staircase(1.0, 1.0, gamma=1.7)
    with pytest.raises(InputError, match="epsilon must be above 0"):
        Laplace(0.0, 1.0)


def test_clipping_shortens_the_long_and_leaves_the_short() -> None:
    long, short = np.full(4, 3.0, np.float32), np.full(4, 0.1, np.float32)

    assert norm(clip(long, 1.5)) == pytest.approx(1.5)
    assert clip(short, 1.5) is short
    assert not clip(np.zeros(4, np.float32), 1.5).any()


@given(size=st.integers(0, 50))
def test_the_norm_is_the_norm(size: int) -> None:
    values = np.random.default_rng(size).standard_normal(size).astype(np.float32)

    assert norm(values) == pytest.approx(float(np.linalg.norm(values.astype(float))))


def test_public_norms_give_their_median() -> None:
    assert public_clip_norm([3.0, 1.0, 2.0]) == 2.0
    for bad in ([], [math.nan], [0.0]):
        with pytest.raises(InputError):
            public_clip_norm(bad)


def test_adaptive_clipping_stands_still_at_its_quantile() -> None:
    rule = Adaptive(count_stddev=5.0, quantile=0.5)

    assert rule.next_norm(2.0, 0.0, 100) == 2.0
    assert rule.next_norm(2.0, 50.0, 100) == pytest.approx(2 * math.exp(-0.1))
    assert rule.next_norm(2.0, -1e9, 100) == pytest.approx(2 * math.exp(0.1))


def test_a_vote_marks_the_largest_and_costs_one_round() -> None:
    marked = marks(np.array([0.1, -5, 3, 0], np.float32), 2)
    keys = {"clients": 100, "sample_rate": 0.2, "delta": 1e-3, "length": 400, "accountant": "rdp"}
    plan, spent = vote_plan(kept=2, noise_multiplier=3.0, **keys)

    assert marked.tolist() == [0, 1, 1, 0]
    assert norm(marked) == pytest.approx(plan.request.clip_norm)
    assert elected(np.array([1.0, 9.0, -3.0, 5.0], np.float32), 2).tolist() == [1, 3]
    assert [(event.rounds, event.noise_multiplier) for event in spent] == [(1, 3.0)]
