"""Ranges of the `[sweep]` table."""

from __future__ import annotations

from typing import Any

import pytest

from sottovoce.config.experiment import parse
from sottovoce.core.errors import ConfigError
from sottovoce.search.sweep import grid_values, layout


def test_the_thesis_grids_have_all_their_values() -> None:
    """T 4.1.5: eta from 0.01 to 0.5 by 0.005, eta_G from 0.05 to 2.0 by 0.05."""
    eta = grid_values("x", {"from": 0.01, "to": 0.5, "step": 0.005})
    server = grid_values("x", {"from": 0.05, "to": 2.0, "step": 0.05})

    assert (len(eta), eta[0], eta[1], eta[-1]) == (99, 0.01, 0.015, 0.5)
    assert server == [round(0.05 * place, 2) for place in range(1, 41)]


def test_a_range_of_whole_numbers_stays_whole_and_ends_before_it_passes_its_end() -> None:
    assert grid_values("x", {"from": 1, "to": 10, "step": 4}) == [1, 5, 9]
    assert all(isinstance(value, int) for value in grid_values("x", {"from": 1, "to": 3, "step": 1}))


def test_lists_single_values_and_other_inline_tables_are_taken_as_they_are() -> None:
    assert grid_values("x", [3, 1]) == [3, 1]
    assert grid_values("x", 0.5) == [0.5]
    assert grid_values("x", {"dims": 400}) == [{"dims": 400}]


def test_a_sweep_runs_every_value_of_a_range() -> None:
    grid = {"client": {"client_lr": {"from": 0.1, "to": 0.3, "step": 0.1}}, "experiment": {"seed": [1, 2]}}
    points = layout(parse({"data": {"source": "digits"}, "sweep": grid}))

    assert sorted({point.client.client_lr for point in points}) == [0.1, 0.2, 0.3]
    assert len({point.experiment.name for point in points}) == len(points) == 6


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"from": 1, "to": 2}, "a range has from, to and step, such as .*, got from, to"),
        ({"from": 1, "to": 2, "step": 1, "scale": "log"}, "got from, to, step, scale"),
        ({"from": 2, "to": 2, "step": 1}, "from must be below to, got from = 2 and to = 2"),
        ({"from": 1, "to": 2, "step": 0}, "step must be above 0, got 0"),
        ({"from": 1, "to": 2, "step": -0.5}, "step must be above 0, got -0.5"),
        ({"from": "a", "to": 2, "step": 1}, "from must be a number"),
        ({"from": 0, "to": float("inf"), "step": 1}, "to must be a number"),
        ({"from": 0, "to": True, "step": 1}, "to must be a number"),
        ({"from": 0, "to": 1, "step": 1e-9}, "a range may have 1000 values, this one has 1000000001; raise step"),
    ],
)
def test_a_range_that_is_none_is_refused(told: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"\[sweep\] client.client_lr: .*{message}"):
        grid_values("[sweep] client.client_lr", told)
