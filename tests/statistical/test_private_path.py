"""The whole private path: what comes out has the noise that was charged for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from sottovoce.core.streams import Purpose, Streams
from sottovoce.privacy.noise.randomness import Randomness
from sottovoce.privacy.plan.plan import PrivacyPlan

FALSE_ALARM = 1e-6
LENGTH = 20_000
COHORT = 30


def aggregate(seed: int, survivors: int = COHORT, **keys: Any) -> tuple[PrivacyPlan, NDArray[np.float64]]:
    """Return a plan and the error of one round's decoded sum."""
    plan = PrivacyPlan.solve(
        **{
            "clients": 300,
            "sample_rate": 0.1,
            "rounds": 5,
            "delta": 1e-3,
            "noise_multiplier": 1.5,
            "clip_norm": 0.7,
            "length": LENGTH,
            "accountant": "moments",
            **keys,
        }
    )
    streams = Streams(seed)
    rng = streams.get(Purpose.SETUP)
    if plan.request.form == "signs":
        messages = [rng.choice(np.array([-1, 1], np.int8), LENGTH) for _ in range(survivors)]
    else:
        messages = [(rng.standard_normal(LENGTH) * 0.004).astype(np.float32) for _ in range(survivors)]
    total = np.zeros(LENGTH, np.uint32)
    for client, message in enumerate(messages):
        key = Randomness.simulated(streams.key(Purpose.NOISE, 1, client))
        total += plan.protect(message, cohort=COHORT, randomness=key)
    server = Randomness.simulated(streams.key(Purpose.NOISE, 1, 10**6))
    release = plan.recover(
        total & np.uint32(2 ** (plan.bits or 32) - 1), cohort=COHORT, survivors=survivors, randomness=server
    )
    return plan, release.total.astype(float) - np.sum(messages, axis=0, dtype=float)


def variance_fits(error: NDArray[np.float64], stddev: float) -> bool:
    """Compare the variance with a chi-square law, two-sided at FALSE_ALARM."""
    statistic = float((error**2).sum() / stddev**2)
    tail = min(chi2.cdf(statistic, error.size), chi2.sf(statistic, error.size))
    return bool(2 * tail > FALSE_ALARM)


@pytest.mark.parametrize(
    ("survivors", "keys"),
    [
        (COHORT, {}),
        (COHORT, {"form": "signs", "clip_norm": 0.0}),
        (COHORT, {"form": "signs", "clip_norm": 0.0, "grid": "papers"}),
        (21, {"threshold": 2 / 3}),
        (COHORT, {"threshold": 2 / 3, "colluders": 2}),
    ],
)
def test_the_decoded_sum_carries_the_planned_noise(survivors: int, keys: dict[str, Any]) -> None:
    plan, error = aggregate(7, survivors, **keys)

    assert variance_fits(error, plan.stddev())
    assert not variance_fits(error, plan.stddev() * 2 / 3)
    assert not variance_fits(error, plan.stddev() * 3 / 2)


def test_the_noise_is_the_charged_one_plus_the_rounding_width_and_no_more() -> None:
    plan, _ = aggregate(7)

    charged = plan.noise_multiplier * 0.7
    assert charged < plan.stddev() < 1.006 * charged


def test_the_decoded_sum_is_unbiased_and_its_noise_gaussian() -> None:
    """Check mean and kurtosis, each within its two-sided FALSE_ALARM interval."""
    plan, error = aggregate(8)
    bound = norm.isf(FALSE_ALARM / 2)

    assert abs(error.mean()) < bound * plan.stddev() / np.sqrt(LENGTH)
    assert abs(((error / error.std()) ** 4).mean() - 3) < bound * np.sqrt(24 / LENGTH)


def test_noise_of_two_rounds_and_two_clients_is_independent() -> None:
    """Check four correlations, each at FALSE_ALARM."""
    plan, _ = aggregate(9)
    zeros = np.zeros(LENGTH, np.float32)
    words = []
    for path in ((1, 1), (1, 2), (2, 1)):
        key = Randomness.simulated(Streams(9).key(Purpose.NOISE, *path))
        raw = plan.protect(zeros, cohort=COHORT, randomness=key).astype(np.int64)
        words.append(np.where(raw >= 2 ** (plan.bits - 1), raw - 2**plan.bits, raw))
    correlations = np.corrcoef(words)[np.triu_indices(3, 1)]
    lagged = np.corrcoef(words[0][1:], words[0][:-1])[0, 1]

    assert np.abs([*correlations, lagged]).max() < norm.isf(FALSE_ALARM / 2) / np.sqrt(LENGTH - 1)


def test_words_of_one_client_alone_hide_in_the_noise() -> None:
    """The largest message moves the mean of a coordinate by `radius`, and the full noise is z times that."""
    plan, _ = aggregate(7)

    assert plan.grid is not None
    assert np.sqrt(plan.grid.variance) > plan.noise_multiplier * plan.grid.radius
