"""Who is malicious in a round."""

from __future__ import annotations

from fractions import Fraction

import pytest

from sottovoce.core.streams import Streams
from sottovoce.federation.wrappers.malicious import Choice

WORLD = Streams(11)


@pytest.mark.parametrize(("cohort", "malicious"), [(100, 10), (101, 11), (1, 1), (9, 1), (0, 0)])
def test_a_share_of_every_cohort_is_rounded_up(cohort: int, malicious: int) -> None:
    choice = Choice(Fraction(1, 10), "cohort", 1000)
    clients = list(range(500, 500 + cohort))

    chosen = choice.among(3, clients, WORLD)

    assert len(chosen) == malicious == choice.most(cohort)
    assert chosen <= set(clients)


def test_other_clients_of_a_cohort_are_malicious_in_another_round() -> None:
    choice = Choice(Fraction(1, 10), "cohort", 1000)

    assert choice.among(1, list(range(100)), WORLD) != choice.among(2, list(range(100)), WORLD)
    assert choice.among(1, list(range(100)), WORLD) == choice.among(1, list(range(100)), WORLD)


def test_a_share_of_the_population_is_the_same_in_all_rounds_and_falls_into_cohorts_by_chance() -> None:
    choice = Choice(Fraction(1, 10), "population", 1000)
    everyone = choice.among(1, list(range(1000)), WORLD)
    some = [choice.among(round_, list(range(40 * round_, 40 * round_ + 40)), WORLD) for round_ in range(1, 20)]

    assert len(everyone) == 100
    assert all(part <= everyone for part in some)
    assert len({len(part) for part in some}) > 1


def test_nobody_attacks_the_vote_before_the_first_round() -> None:
    assert not Choice(Fraction(1, 2), "cohort", 10).among(0, list(range(10)), WORLD)


def test_nobody_is_malicious_at_a_fraction_of_zero() -> None:
    for of in ("cohort", "population"):
        assert not Choice(Fraction(0), of, 10).among(1, list(range(10)), WORLD)  # type: ignore[arg-type]
