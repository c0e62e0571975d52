"""Parts that are given as objects, and callbacks: what a Python caller can put into a run and see of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.small import small

from sottovoce.assembly.overrides import Given
from sottovoce.core.errors import InputError
from sottovoce.core.streams import Seeds
from sottovoce.data import Shards, load, partition
from sottovoce.models import network
from sottovoce.runs.loop import run
from sottovoce.schemes import make

ONE = {"workers": 1}
PRIVACY = {"noise_multiplier": 1.0, "delta": 1e-3, "accountant": "rdp", "clip_norm": 0.5}


class Watcher:
    """Callback that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.states: list[set[str]] = []

    def on_start(self, config: dict[str, Any]) -> None:
        self.told.append(("start", config["experiment"]["rounds"]))

    def on_round(self, record: dict[str, Any], state: dict[str, Any]) -> None:
        self.told.append(("round", record))
        self.states.append(set(state))

    def on_end(self, summary: dict[str, Any]) -> None:
        self.told.append(("end", summary["rounds"]))


class OnlyEnd:
    """Callback with one of the methods."""

    ended = 0

    def on_end(self, summary: dict[str, Any]) -> None:
        self.ended += 1


def same_model(one: Path, other: Path) -> bool:
    return (one / "model.npz").read_bytes() == (other / "model.npz").read_bytes()


def test_parts_that_are_given_play_like_those_that_are_named(tmp_path: Path) -> None:
    digits = load("digits")
    parts = Given(
        dataset=digits,
        partition=partition("iid", digits.y_train, 20, Seeds(1).world),
        network=network("logistic", digits.shape, 10, input_scale=digits.input_scale),
        scheme=make("fl-rnd"),
    )
    blank = {"data": {"source": "nowhere", "clients": 3}, "model": {"name": "cnn"}, "engine": ONE}

    run(small(**blank), tmp_path / "given", given=parts)

    run(small(scheme={"name": "fl-rnd"}, engine=ONE), tmp_path / "named")
    assert same_model(tmp_path / "given", tmp_path / "named")


def test_a_run_with_given_parts_is_not_resumed_without_them(tmp_path: Path) -> None:
    run(small(engine=ONE), tmp_path / "run", given=Given(dataset=load("digits")))

    with pytest.raises(InputError, match=r"started with these parts given as objects: dataset; now it is none"):
        run(small(engine=ONE), tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("given", "tables", "reason"),
    [
        (Given(network=network("logistic", (4, 4), 10)), {}, r"reads records of shape \(4, 4\) in 10 classes"),
        (Given(partition=Shards(np.arange(9), np.array([0, 9]))), {"data": {"held_out": 0.1}}, "remove .* held_out"),
        (Given(scheme=make("sign-sgd")), {}, r"the given scheme: sign-sgd needs every client in every round"),
    ],
    ids=["network", "partition", "scheme"],
)
def test_given_parts_that_do_not_fit_are_refused_before_anything_is_written(
    tmp_path: Path, given: Given, tables: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        run(small(**tables), tmp_path / "run", given=given)
    assert not list(tmp_path.iterdir())


def test_callbacks_hear_the_start_each_round_and_the_end(tmp_path: Path) -> None:
    watcher, only = Watcher(), OnlyEnd()

    run(small(engine=ONE), tmp_path / "run", callbacks=[watcher, only])

    assert [kind for kind, _ in watcher.told] == ["start", *["round"] * 6, "end"]
    assert [record["round"] for kind, record in watcher.told if kind == "round"] == [1, 2, 3, 4, 5, 6]
    assert all("params" in state for state in watcher.states)
    assert only.ended == 1


def test_callbacks_of_a_private_run_see_what_may_be_published_and_nothing_else(tmp_path: Path) -> None:
    watcher = Watcher()

    run(small(privacy=PRIVACY, engine=ONE), tmp_path / "run", callbacks=[watcher])

    for _, record in watcher.told[1:-1]:
        assert not record.keys() & {"cohort", "senders", "failures", "phases", "seconds", "reason", "sizes"}
    assert all("params" in state and not state & {"draws", "draws_salt"} for state in watcher.states)
