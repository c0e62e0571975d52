"""The search itself, on scores that are a function of the point."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.errors import InputError
from sottovoce.search.grid import Point, rungs, search


def hill(*top: int):  # type: ignore[no-untyped-def]
    """Return scores that fall off from one point on each axis by itself."""
    return lambda point, seed: -float(sum((place - best) ** 2 for place, best in zip(point, top, strict=True)))


def test_a_grid_that_fits_is_tried_whole() -> None:
    trials = search([3, 4], (0, 0), hill(2, 1), budget=12, seeds=1)

    assert trials.whole and not trials.cut
    assert set(trials.scores) == set(itertools.product(range(3), range(4)))
    assert (trials.best(), trials.runs) == ((2, 1), 12)


def test_of_a_larger_grid_one_key_after_another_is_searched() -> None:
    trials = search([5, 5, 5], (2, 2, 2), hill(4, 0, 3), budget=30, seeds=1)

    assert trials.best() == (4, 0, 3)
    assert not trials.whole
    assert trials.runs < 125 / 4


def test_two_keys_that_hide_each_other_are_moved_together() -> None:
    """On a narrow ridge no single step is an improvement."""

    def ridge(point: Point, seed: int) -> float:
        one, two, three = point
        return float(one + two + three - 10 * abs(one - two))

    trials = search([4, 4, 4], (0, 0, 0), ridge, budget=50, seeds=1)

    assert trials.best() == (3, 3, 3)
    assert not trials.whole and not trials.cut


def test_the_best_settings_get_more_seeds_and_the_best_mean_wins() -> None:
    """(0,) is lucky with the first seed only."""
    scores = {(0,): [0.99, 0.1, 0.1], (1,): [0.8, 0.8, 0.8], (2,): [0.7, 0.6, 0.6], (3,): [0.1, 0.1], (4,): [0.0]}

    trials = search([5], (2,), lambda point, seed: scores[point][seed], budget=12, seeds=3)

    assert trials.best() == (1,)
    assert {point[0]: len(known) for point, known in trials.scores.items()} == {0: 2, 1: 3, 2: 3, 3: 2, 4: 1}
    assert trials.mean((1,)) == pytest.approx(0.8)


def test_a_setting_that_cannot_be_run_costs_nothing_and_is_never_chosen() -> None:
    def play(point: Point, seed: int) -> float | None:
        return None if point[0] > 1 else float(point[0])

    trials = search([4], (3,), play, budget=4, seeds=1)

    assert (trials.best(), trials.runs) == ((1,), 2)
    assert search([2, 2], (0, 0), lambda point, seed: None, budget=4, seeds=1).best() is None


def test_a_search_that_ran_out_of_budget_says_so() -> None:
    assert search([5, 5, 5], (2, 2, 2), hill(4, 0, 3), budget=5, seeds=1).cut
    assert not search([5, 5, 5], (2, 2, 2), hill(4, 0, 3), budget=100, seeds=1).cut


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    budget=st.integers(1, 40),
    seeds=st.integers(1, 4),
    salt=st.integers(0, 10),
)
def test_a_search_keeps_its_budget_and_repeats_itself(sizes: list[int], budget: int, seeds: int, salt: int) -> None:
    played: list[tuple[Point, int]] = []

    def play(point: Point, seed: int) -> float | None:
        played.append((point, seed))
        number = hash((point, seed, salt)) % 11
        return None if number == 0 else number / 10

    if budget < 4 * (seeds - 1):
        with pytest.raises(InputError, match=f"budget must be at least {4 * (seeds - 1)} for {seeds} seeds"):
            search(sizes, tuple(0 for _ in sizes), play, budget=budget, seeds=seeds)
        return
    start = tuple(size // 2 for size in sizes)
    first = search(sizes, start, play, budget=budget, seeds=seeds)
    once = list(played)
    played.clear()
    second = search(sizes, start, play, budget=budget, seeds=seeds)

    assert first.runs <= budget
    assert len(set(once)) == len(once), "nothing is run twice"
    assert played == once and second.scores == first.scores and second.best() == first.best()


@pytest.mark.parametrize(
    ("budget", "seeds", "reason"), [(0, 1, "budget must be at least 1, got 0"), (5, 0, "seeds must")]
)
def test_no_budget_and_no_seeds_are_refused(budget: int, seeds: int, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        rungs(budget, seeds)


def test_at_most_half_of_the_budget_goes_to_more_seeds() -> None:
    for budget, seeds in itertools.product(range(1, 60), range(1, 8)):
        try:
            widths = rungs(budget, seeds)
        except InputError:
            assert budget < 4 * (seeds - 1)
            continue
        assert len(widths) == seeds - 1 and 2 * sum(widths) <= budget
        assert widths == sorted(widths, reverse=True) and min(widths, default=2) == 2
