"""What is measured before round 1: importance on the public batch, and the clip norm."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.config.test_weights import hospitals
from tests.runs.small import small

from sottovoce.assembly.engines import start_engine
from sottovoce.assembly.measure import coordinate_importance, measured_clip_norm, public_records
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.core.errors import ConfigError, InputError, PrivacyError, RunError
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.privacy.noise.clipping import unsafe_clip_norm
from sottovoce.runs.loop import run

Tables = dict[str, dict[str, Any]]

UNSAFE = {"epsilon": 8.0, "delta": 1e-2, "clipping": "private", "unsafe_clip_norm": True}
PUBLIC = {"epsilon": 8.0, "delta": 1e-2, "clipping": "public", "unsafe_public": True}


class Watched:
    """An engine that notes what it is asked; gradients are zero and norms are the numbers of the pairs."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.owners: list[Any] = []
        self.seeds: list[int] = []

    def gradient(self, params: np.ndarray, split: str, records: np.ndarray) -> np.ndarray:
        assert split == "public"
        self.batches.append(records.tolist())
        return np.zeros_like(params)

    def public_norms(self, scheme: Any, params: np.ndarray, shards: list[Any], seeds: list[int]) -> list[float]:
        self.owners, self.seeds = shards, seeds
        return [1.0, 2.0, 9.0]

    client_norms = public_norms


def test_the_medical_public_batch_is_balanced_and_the_same_in_every_step(tmp_path: Path) -> None:
    scheme = {"name": "fl-top", "ratio": 0.5, "public_samples": 356, "public_steps": 40}
    parts = gather(small(**hospitals(tmp_path / "own.npz", scheme=scheme)))
    engine = Watched()

    coordinate_importance(parts, engine)  # type: ignore[arg-type]

    labels = parts.splits["public"].y_train
    deaths = int(labels.sum())
    assert len(labels) == 356
    assert deaths > 1
    assert len(engine.batches) == 40
    assert len({tuple(batch) for batch in engine.batches}) == 1
    assert np.bincount(labels[engine.batches[0]]).tolist() == [deaths, deaths]


def test_of_356_patients_with_12_deaths_24_are_used(tmp_path: Path) -> None:
    scheme = {"name": "fl-top", "ratio": 0.5, "public_samples": 356}
    parts = gather(small(**hospitals(tmp_path / "own.npz", scheme=scheme)))
    y = parts.splits["public"].y_train
    y[:] = np.arange(356) % 30 == 0

    assert np.bincount(y[public_records(parts)]).tolist() == [12, 12]


def test_images_are_one_batch_of_ten_in_every_step() -> None:
    parts = gather(small(scheme={"name": "fl-top"}))
    engine = Watched()

    coordinate_importance(parts, engine)  # type: ignore[arg-type]

    assert engine.batches == [list(range(10))] * 5


def test_more_public_images_are_one_batch_unless_public_batch_asks_for_others() -> None:
    whole, fresh = Watched(), Watched()
    scheme = {"name": "fl-top", "public_samples": 30}

    coordinate_importance(gather(small(scheme=scheme)), whole)  # type: ignore[arg-type]
    coordinate_importance(gather(small(scheme={**scheme, "public_batch": 10})), fresh)  # type: ignore[arg-type]

    assert whole.batches == [list(range(30))] * 5
    assert {len(batch) for batch in fresh.batches} == {10}
    assert len({tuple(batch) for batch in fresh.batches}) == 5


@pytest.mark.parametrize("privacy", [PUBLIC, UNSAFE], ids=["public", "private"])
@pytest.mark.parametrize(("name", "sets"), [("fl-basic", 100), ("fl-rnd", 100), ("fl-bas-3", 1), ("fl-std", 1)])
def test_a_scheme_with_a_new_set_every_round_is_measured_on_a_hundred(
    name: str, sets: int, privacy: dict[str, Any]
) -> None:
    parts = gather(small(scheme={"name": name}, privacy=privacy))
    bound = parts.scheme.bind(parts.network.dim, seed=1)
    engine = Watched()

    found = measured_clip_norm(parts, engine, bound)  # type: ignore[arg-type]

    assert found == 2.0, "the median"
    assert len(set(engine.seeds)) == len(engine.seeds) == sets


@pytest.mark.parametrize("name", ["fl-std", "fl-basic"])
def test_public_clipping_is_the_median_of_real_norms(name: str) -> None:
    """The papers' procedure by hand: train from w_0 on the public batch, encode, take the norm; the median of all."""
    # Of logistic regression with one step on all records, the update is -lr * gradient, without any randomness.
    one_step = {"local_steps": 1, "batch_size": "all", "client_lr": 0.1}
    tables: Tables = {"scheme": {"name": name, "public_samples": 70}, "privacy": PUBLIC, "client": one_step}
    parts = gather(small(**tables, engine={"workers": 2}))
    bound = parts.scheme.bind(parts.network.dim, seed=parts.seeds.public.seed, start=parts.start)
    with start_engine(parts) as (_, engine):
        found = measured_clip_norm(parts, engine, bound)
        update = -0.1 * engine.gradient(parts.start, "public", np.arange(70))

    rng = np.random.default_rng(0)
    seeds = {bound.round_seed(round_) for round_ in range(1, 101)}
    norms = [np.linalg.norm(bound.encode(update, seed, rng)) for seed in seeds]
    assert len(norms) == (100 if name == "fl-basic" else 1)
    assert found == pytest.approx(np.median(norms), rel=1e-5)


def test_private_clipping_is_the_median_of_a_cohorts_norms() -> None:
    one_step = {"local_steps": 1, "batch_size": "all", "client_lr": 0.1}
    parts = gather(small(privacy=UNSAFE, client=one_step, engine={"workers": 2}))
    bound = parts.scheme.bind(parts.network.dim, seed=parts.seeds.public.seed, start=parts.start)
    everyone = range(20)
    watched = Watched()
    measured_clip_norm(parts, watched, bound)  # type: ignore[arg-type]
    with start_engine(parts) as (_, engine):
        found = measured_clip_norm(parts, engine, bound)
        lengths = {
            k: float(np.linalg.norm(0.1 * engine.gradient(parts.start, "train", parts.partition.records(k))))
            for k in everyone
        }

    assert 0 < len(watched.owners) < 20, "a cohort like any other, not everyone"
    assert found == pytest.approx(np.median([lengths[client] for client in watched.owners]), rel=1e-5)


def test_private_clipping_is_recorded_as_unsafe_and_found_again_by_a_resumed_run(tmp_path: Path) -> None:
    summary = run(small(privacy=UNSAFE, engine={"workers": 1}), tmp_path / "whole")
    privacy = summary["privacy"]

    assert (privacy["clipping"], privacy["unsafe"]) == ("private", ["unsafe_clip_norm"])
    assert 0 < privacy["clip_norm"] != 1.0
    assert "clip_norm =" not in (tmp_path / "whole" / "config.toml").read_text().replace("unsafe_clip_norm =", "")
    charges = [json.loads(line) for line in (tmp_path / "whole" / "ledger.jsonl").read_text().splitlines()]
    assert [entry["round"] for entry in charges if entry["kind"] == "charge"] == [1, 2, 3, 4, 5, 6]

    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    (tmp_path / "again" / "summary.json").unlink()
    (tmp_path / "again" / "model.npz").unlink()
    for state in (tmp_path / "again" / "checkpoint").glob("*.npz"):  # every round is played again, on the same records
        state.unlink()
    again = run(small(privacy=UNSAFE, engine={"workers": 3}), tmp_path / "again", resume=True)

    assert again["privacy"] == privacy
    assert (tmp_path / "again" / "model.npz").read_bytes() == (tmp_path / "whole" / "model.npz").read_bytes()


def test_a_norm_that_is_given_and_one_that_is_measured_exclude_each_other() -> None:
    for privacy in (UNSAFE, PUBLIC):
        with pytest.raises(ConfigError, match=r"measures clip_norm, but 0\.5 is given; remove it"):
            small(privacy={**privacy, "clip_norm": 0.5})


def test_private_clipping_needs_its_unsafe_key() -> None:
    with pytest.raises(PrivacyError, match="is not private"):
        protect(gather(small(privacy={**UNSAFE, "unsafe_clip_norm": False})))


def test_private_clipping_says_when_nobody_was_drawn() -> None:
    tables: Tables = {"privacy": {**UNSAFE, "delta": 1e-2}, "cohort": {"sample_rate": "1/100"}}
    parts = gather(small(**tables))
    drawn = parts.cohort.draw(Seeds(1).server.get(Purpose.COHORT, 0, 1))
    assert len(drawn) == 0

    with pytest.raises(InputError, match="drew no client to measure; raise"):
        measured_clip_norm(parts, Watched(), parts.scheme.bind(parts.network.dim))  # type: ignore[arg-type]


def test_norms_that_are_not_finite_are_left_out() -> None:
    assert unsafe_clip_norm([1.0, float("nan"), 3.0, float("inf"), 5.0]) == 3.0
    with pytest.raises(RunError, match="no client that was measured had a finite update"):
        unsafe_clip_norm([float("inf")])
    with pytest.raises(InputError, match="the clients' updates have norm 0"):
        unsafe_clip_norm([0.0, 0.0])
