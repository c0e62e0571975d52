from __future__ import annotations

from fractions import Fraction

import pytest

from sottovoce.federation.aggregation.aggregator import Fewest


@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(2, 3), Fraction(1)])
def test_no_hidden_sum_is_opened_for_one_client(share: Fraction) -> None:
    """The sum of one vector is that vector, so of a cohort of one two must answer."""
    assert Fewest(share)(1) == 2
    assert all(2 <= Fewest(share)(cohort) <= cohort for cohort in range(2, 50))
    assert all(Fewest(share)(cohort) >= share * cohort for cohort in range(2, 50))


def test_nobody_is_needed_for_the_sum_of_nobody() -> None:
    assert Fewest(Fraction(2, 3))(0) == 0
