"""A delta of 1 / clients lets one client, chosen at random, be published outright: it must be below."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sottovoce.core.errors import PrivacyError
from sottovoce.privacy import PrivacyPlan


def solve(**keys: Any) -> PrivacyPlan:
    base: dict[str, Any] = {"clients": 100, "sample_rate": 1.0, "rounds": 2, "clip_norm": 1.0, "length": 10}
    return PrivacyPlan.solve(**{**base, "noise_multiplier": 4.0, **keys})


@pytest.mark.parametrize("clients", [3, 7, 49, 100, 1000])
def test_one_of_the_clients_is_refused_with_the_way_out(clients: int) -> None:
    with pytest.raises(PrivacyError, match=r"delta must be below 1 / clients = .*; lower it, .*or set unsafe_delta"):
        solve(clients=clients, delta=1 / clients)


def test_a_delta_below_is_taken() -> None:
    assert solve(delta=float(np.nextafter(0.01, 0))).epsilon > 0


def test_the_unsafe_key_is_still_printed() -> None:
    assert solve(delta=0.01, unsafe_delta=True).describe()["unsafe"] == ["unsafe_delta"]
