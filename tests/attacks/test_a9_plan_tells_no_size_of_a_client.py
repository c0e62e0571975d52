"""How many records single clients have is private: neither plan nor summary of a private run depends on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.planning.plan import plan
from tests.runs.small import small

PRIVATE = {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 1.0}


def owned(folder: Path, victim: int) -> Path:
    """Write a file of six owners with eight records each, but for the last one, who has `victim`."""
    rng = np.random.default_rng(1)
    ids = np.concatenate([np.repeat(np.arange(5), 8), np.full(victim, 5)])
    path = folder / f"own-{victim}.npz"
    x = rng.random((60, 4), np.float32)
    y = np.arange(60) % 3
    records = len(ids)
    np.savez(path, x_train=x[:records], y_train=y[:records], x_test=x[55:], y_test=y[55:], ids=ids)
    return path


def experiment(path: Path, **tables: Any) -> Any:
    data = {"source": str(path), "classes": 3, "clients": 6, "partition": "by-id", **tables.pop("data", {})}
    return small(data=data, client={"batch_size": "all"}, cohort={"sample_rate": 1}, **tables)


@pytest.mark.parametrize("profile", [None, "phone-lte"])
def test_a_private_plan_is_the_same_whatever_a_client_holds(tmp_path: Path, profile: str | None) -> None:
    devices = {} if profile is None else {"devices": {"profile": profile}}
    told = [plan(experiment(owned(tmp_path, victim), privacy=PRIVATE, **devices)) for victim in (2, 9)]

    assert told[0] == told[1]
    assert told[0]["records_per_client"] == {
        "smallest": None,
        "median": None,
        "largest": None,
        "reason": "how many records clients have is private; work is estimated for 10 ([data] mean_records)",
    }


def test_a_private_summary_on_devices_is_the_same_whatever_a_client_holds(tmp_path: Path) -> None:
    keys = ("joules_per_client", "joules_per_client_run", "seconds_simulated")
    told = []
    for victim in (2, 9):
        done = sv.run(
            experiment(owned(tmp_path, victim), privacy=PRIVATE, devices={"profile": "phone-lte"}),
            tmp_path / f"run-{victim}",
        )
        told.append({key: done[key] for key in keys})
    assert told[0] == told[1]


def test_a_declared_mean_is_what_estimates_follow(tmp_path: Path) -> None:
    told = [
        plan(experiment(owned(tmp_path, 2), privacy=PRIVATE, data={"mean_records": mean}))["gflop_per_client_round"]
        for mean in (4, 8)
    ]
    assert told[1] == 2 * told[0]


def test_a_plan_without_privacy_and_that_of_a_known_data_set_have_sizes(tmp_path: Path) -> None:
    open_plan = plan(experiment(owned(tmp_path, 2)))["records_per_client"]
    assert (open_plan["smallest"], open_plan["largest"], open_plan["reason"]) == (2, 8, None)
    known = plan(small(privacy=PRIVATE))["records_per_client"]
    assert known["smallest"] > 0 and known["reason"] is None


def test_a_data_set_of_the_users_is_not_public_because_of_its_name() -> None:
    from sottovoce.assembly.overrides import Given
    from sottovoce.assembly.parts import gather
    from sottovoce.data import load
    from sottovoce.data.dataset import Dataset

    digits = load("digits")
    x, y = digits.x_train[:100], digits.y_train[:100]
    mine = Dataset("digits", x, y, digits.x_test, digits.y_test, classes=10, input_scale=1 / 16)
    parts = gather(small(privacy=PRIVATE), Given(dataset=mine))
    assert not parts.boundary.passes(parts.counts)
    assert parts.mean_size == 10  # the batch, not 5
