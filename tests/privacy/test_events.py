from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from sottovoce.core.errors import InputError
from sottovoce.privacy.accounting.events import Event

POINTS = np.linspace(-18, 20, 8001)
WIDTH = POINTS[1] - POINTS[0]


def hockey_stick(first: NDArray[np.float64], second: NDArray[np.float64], epsilon: float) -> float:
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum() * WIDTH)


@pytest.mark.parametrize("rate", [1 / 60, 0.5])
@pytest.mark.parametrize("z", [0.77, 1.54, 3.0])
def test_the_pair_charged_for_a_fixed_cohort_dominates_every_placing_of_two_clients(rate: float, z: float) -> None:
    """Try all displaced and all own contributions on a grid: present against zeroed out, both ways."""
    event = Event(noise_multiplier=z, sample_rate=rate, rounds=1, sampling="fixed")
    none = norm.pdf(POINTS, 0, z)
    far = (1 - rate) * none + rate * norm.pdf(POINTS, event.distance, z)
    for epsilon in (0.0, 0.1, 0.5, 1.5):
        charged = max(hockey_stick(far, none, epsilon), hockey_stick(none, far, epsilon))
        for displaced in (-1.0, -0.5, 0.0, 0.5, 1.0):
            for own in (-1.0, -0.5, 0.5, 1.0):
                there = (1 - rate) * none + rate * norm.pdf(POINTS, displaced + own, z)
                zeroed = (1 - rate) * none + rate * norm.pdf(POINTS, displaced, z)
                for pair in ((there, zeroed), (zeroed, there)):
                    assert hockey_stick(*pair, epsilon) <= charged + 1e-12


def test_a_cohort_of_everybody_displaces_nobody() -> None:
    assert Event(noise_multiplier=1.0, sample_rate=1.0, rounds=1, sampling="fixed").distance == 1.0
    assert Event(noise_multiplier=1.0, sample_rate=0.5, rounds=1, sampling="fixed").distance == 2.0
    assert Event(noise_multiplier=1.0, sample_rate=0.5, rounds=1).distance == 1.0


def test_events_check_their_fields() -> None:
    with pytest.raises(InputError, match="did you mean 'poisson'"):
        Event(noise_multiplier=1.0, sample_rate=0.5, rounds=1, sampling="possion")
    with pytest.raises(InputError, match="rounds must be at least 1"):
        Event(noise_multiplier=1.0, sample_rate=0.5, rounds=0)
