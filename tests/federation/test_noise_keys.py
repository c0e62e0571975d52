"""Every share of noise has a key of its own: one used twice cancels, or is known, or is the same in every round."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from sottovoce.core.streams import Seeds
from sottovoce.federation.aggregation.secure import SimulatedKeys
from sottovoce.federation.coding import Private, Terms
from sottovoce.privacy import PrivacyPlan

FALSE_ALARM = 1e-6
LENGTH, COHORT, SENDERS = 4096, 10, 7


def coding() -> Private:
    plan = PrivacyPlan.solve(
        clients=20,
        sample_rate=0.5,
        rounds=3,
        delta=1e-2,
        noise_multiplier=1.0,
        clip_norm=0.5,
        length=LENGTH,
        accountant="rdp",
        threshold=2 / 3,
    )
    return Private(plan, Seeds(3))


def share(coding: Private, round_: int, client: int) -> NDArray[Any]:
    words = coding.words(np.zeros(LENGTH, np.float32), Terms(COHORT, 0.5), round_, client)
    return np.where(words >= 2 ** (coding.bits - 1), words - 2.0**coding.bits, words)


def made_up(coding: Private, round_: int) -> NDArray[Any]:
    """Return what the server adds for those who dropped out."""
    return coding.open(np.zeros(LENGTH, np.uint32), Terms(COHORT, 0.5), SENDERS, round_).values


def test_no_two_shares_of_noise_are_alike_nor_is_what_the_server_makes_up() -> None:
    """Ten clients and the server, two rounds: 231 correlations, each at FALSE_ALARM."""
    private = coding()
    noises = [share(private, round_, client) for round_ in (1, 2) for client in range(COHORT)]
    noises += [made_up(private, round_) for round_ in (1, 2)]
    correlations = np.corrcoef(noises)[np.triu_indices(len(noises), 1)]

    assert all(noise.std() > 0 for noise in noises)
    assert np.abs(correlations).max() < norm.isf(FALSE_ALARM / 2) / np.sqrt(LENGTH)


def test_every_client_has_a_registered_key_of_its_own() -> None:
    """With one key for all, each could sign for the others, and the server's helper for everyone."""
    registry = SimulatedKeys(Seeds(1), 50)

    assert len({registry[client] for client in registry}) == 50
