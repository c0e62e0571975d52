from __future__ import annotations

import math

import pytest

from sottovoce.threats.audit.bounds import epsilon_from_counts
from sottovoce.threats.audit.finding import checked, p_value_of_bound


def test_the_p_value_is_the_alpha_at_which_the_bound_meets_the_claim() -> None:
    def bound(alpha: float) -> float:
        return epsilon_from_counts(3, 1000, 10, 1000, delta=1e-3, alpha=alpha)

    p_value = p_value_of_bound(bound, 4.0)

    assert bound(p_value) == pytest.approx(4.0, abs=1e-6)


def test_a_claim_that_is_not_refuted_has_p_value_one_and_a_wild_one_nearly_none() -> None:
    assert p_value_of_bound(lambda alpha: 1.0, 2.0) == 1
    assert p_value_of_bound(lambda alpha: 3.0, 2.0) < 1e-200
    assert p_value_of_bound(lambda alpha: 3.0, math.inf) == 1


def test_a_check_without_chance_is_certain() -> None:
    assert checked("c", True, "").p_value == 1
    assert checked("c", False, "").p_value == 0
    assert checked("c", False, "").certain
