"""Plans that are played for a little while on records that are nobody's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.runs.small import small

from sottovoce.assembly.parts import gather
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.data import Dataset
from sottovoce.planning.signal_to_noise import reach
from sottovoce.search.trial import ranked, synthetic, try_plans, without_records

PRIVATE = {"delta": 0.01, "clip_norm": 1.0}


def shape() -> Dataset:
    return without_records(gather(small()).dataset)


def test_plans_are_played_on_synthetic_records_and_the_better_one_is_first() -> None:
    good = small(client={"local_steps": 10, "client_lr": 0.5}, experiment={"rounds": 4})
    lazy = small(client={"local_steps": 1, "client_lr": 1e-9}, experiment={"rounds": 4})

    trials, told = try_plans(good, [lazy, good], shape(), seconds=60)

    assert told["on"].startswith("synthetic") and told["metric"] == "accuracy" and not told["problems"]
    assert [trial["rounds"] for trial in trials if trial] == [4, 4]
    first = ranked([{"name": "lazy"}, {"name": "good"}], trials)[0]
    assert first["name"] == "good" and first["tried"]["score"] > told["baseline"] + 0.3


def test_a_private_plan_is_played_with_its_noise() -> None:
    quiet, loud = (
        small(privacy=PRIVATE | {"noise_multiplier": noise}, client={"local_steps": 10, "client_lr": 0.5})
        for noise in (0.5, 50.0)
    )

    (one, other), told = try_plans(quiet, [quiet, loud], shape(), seconds=60)

    assert not told["problems"]
    assert one is not None and other is not None
    assert one["score"] > other["score"] + 0.2


@pytest.mark.parametrize("unit", ["record", "person"])
def test_a_plan_that_protects_units_is_played_with_as_many_synthetic_ones(unit: str) -> None:
    private = {"unit": unit, "clip_norm": 1.0, "delta": 1e-4, "min_units": 20}
    table = {"source": "a.csv", "label": "b", "schema": "c.toml", "person": "patient"} if unit == "person" else {}
    quiet, loud = (
        small(
            data={"clients": 4, **table},
            privacy=private | {"noise_multiplier": noise},
            client={"batch_size": "all", "local_steps": 1},
            experiment={"rounds": 20},
            cohort={"sample_rate": 1},
        )
        for noise in (1.0, 3000.0)
    )

    (one, other), told = try_plans(quiet, [quiet, loud], shape(), units=800, seconds=120)

    assert not told["problems"]
    assert one is not None and other is not None
    assert one["score"] > other["score"] + 0.2


def test_a_plan_that_has_no_time_left_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    from sottovoce.search import trial

    ticks = iter(range(0, 10_000, 10))
    monkeypatch.setattr(trial.time, "monotonic", lambda: float(next(ticks)))

    trials, _ = try_plans(small(), [small(experiment={"rounds": 400}), small()], shape(), seconds=20)

    assert trials[1] is None
    assert trials[0] is None or 0 < trials[0]["rounds"] < 400


def test_nothing_of_the_records_is_in_what_synthetic_records_are_made_of() -> None:
    real = gather(small()).dataset

    one, other = (synthetic(without_records(each), 50) for each in (real, _shuffled(real)))

    assert np.array_equal(one.x_train, other.x_train) and np.array_equal(one.y_train, other.y_train)
    assert one.shape == real.shape and one.x_train.dtype == real.x_train.dtype


def _shuffled(dataset: Dataset) -> Dataset:
    from dataclasses import replace

    return replace(dataset, x_train=dataset.x_train[::-1].copy(), y_train=dataset.y_train[::-1].copy())


def test_the_clients_own_records_are_no_public_ones_and_wrong_seconds_are_named() -> None:
    with pytest.raises(PrivacyError, match="is the data of the clients"):
        try_plans(small(), [small()], shape(), on="digits")
    with pytest.raises(InputError, match="--try must be from 1 to 3600 seconds, got 0"):
        try_plans(small(), [small()], shape(), seconds=0)


def test_a_plan_that_cannot_be_played_is_named_and_stays_last() -> None:
    trials: list[Any] = [None, {"score": 0.1, "rounds": 1, "of": 1}, {"score": None, "rounds": 0, "of": 2}]

    order = ranked([{"n": 0}, {"n": 1}, {"n": 2}], trials)

    assert [each["n"] for each in order] == [1, 0, 2]


def test_a_plan_that_moves_all_weights_in_noise_is_ranked_above_one_that_moves_few_without() -> None:
    """Measured: a ratio of 0.11 with all weights learns, one of 2.4 with a hundredth of them does not."""
    assert reach(0.11, 1.0) > reach(2.4, 0.01)
    assert reach(float("inf"), 0.25) == 0.5
    assert reach(1.0, 1.0) < reach(2.0, 1.0) < 1
