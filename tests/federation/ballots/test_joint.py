"""Ballots whose noise both aggregators toss together, and features that are whitened by ballots: real and ideal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import ConfigError, InputError
from sottovoce.federation.aggregation.ballots.account import HELPER_LEDGER
from sottovoce.federation.aggregation.ballots.coding import Ballots
from sottovoce.planning.plan import plan
from sottovoce.privacy.ledger import verify
from sottovoce.runs.folder import read_whitening
from sottovoce.runs.loop import run
from tests.federation.ballots.forked import fork_helpers
from tests.runs.played import Tables, killed, merged, model
from tests.runs.small import small
from tests.secagg.ballots.stage import without_base_transfers


def keys(secure: str = "ballot", **tables: dict[str, Any]) -> Tables:
    base: dict[str, dict[str, Any]] = {
        "experiment": {"rounds": 2},
        "cohort": {"sample_rate": 1},
        "privacy": {"epsilon_server": 6.0, "delta": 1e-3, "clip_norm": 0.5},
        "aggregation": {"secure": secure, "noise": "joint"},
    }
    return merged(base, tables)


def joint(secure: str = "ballot", **tables: dict[str, Any]) -> Experiment:
    return small(**keys(secure, **tables))


WHITE = {"model": {"front": "none", "whiten": True, "whiten_dims": 20}}


@pytest.mark.parametrize("tables", [{}, WHITE, {"cohort": {"sample_rate": "1/2"}}], ids=["all", "whitened", "half"])
def test_a_real_count_gives_the_model_of_an_ideal_one(
    tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_base_transfers(monkeypatch)
    fork_helpers(monkeypatch)

    ideal = run(joint("ideal-ballot", **tables), tmp_path / "ideal")
    real = run(joint("ballot", **tables), tmp_path / "real")

    assert (model(tmp_path / "ideal") == model(tmp_path / "real")).all()
    assert ideal["epsilon_server"] == real["epsilon_server"] <= 6.0
    if tables == WHITE:
        assert (read_whitening(tmp_path / "ideal") == read_whitening(tmp_path / "real")).all()
        for folder in ("ideal", "real"):
            assert sorted(verify(tmp_path / folder / HELPER_LEDGER).charged) == [0, 1, 2]
            assert sorted(verify(tmp_path / folder / "ledger.jsonl").charged) == [0, 1, 2]


def test_joint_noise_promises_against_an_aggregator_what_it_promises_outsiders() -> None:
    told, each = plan(joint())["privacy"], plan(joint(aggregation={"noise": "each"}))["privacy"]

    assert told["epsilon"] == pytest.approx(told["epsilon_server"], rel=0.01)
    assert told["noise_stddev"] < 0.8 * each["noise_stddev"]
    assert (told["noise_by"], told["epsilon_both_aggregators"]) == ("two aggregators jointly", None)


def test_plan_tells_the_transfers_of_coins() -> None:
    told, each = (
        next(
            way
            for way in plan(joint(aggregation={"noise": noise}))["ways"]
            if "aggregation.secure=ballot" in way["settings"]
        )
        for noise in ("joint", "each")
    )

    assert told["bytes_between_aggregators_round"] > 2 * each["bytes_between_aggregators_round"]
    assert told["epsilon_server"] == pytest.approx(told["epsilon"], rel=0.01) and each["epsilon"] < 5


def test_a_failed_round_is_covered_by_coins_of_the_leader(tmp_path: Path) -> None:
    coding = _coding()

    cover = coding.cover(1)
    assert abs(cover.std() / np.sqrt(coding.plan.grid.variance) - 1) < 0.2
    assert (cover != coding.joint_noise(1)).any()


def _coding() -> Ballots:
    from sottovoce.assembly.parts import gather
    from sottovoce.assembly.protection import protect
    from sottovoce.assembly.stages import TRAINING, stages

    side = stages(protect(gather(joint("ideal-ballot"))))[TRAINING].server_side()
    assert isinstance(side.coding, Ballots)
    return side.coding


def test_whitening_by_ballots_is_charged_and_counted(tmp_path: Path) -> None:
    summary = run(joint("ideal-ballot", **WHITE), tmp_path)

    assert summary["whitening"]["bytes_up_per_client"] == (64 + 20 * 21 // 2 + 2 + 7) // 8 + 144
    assert 0 < summary["whitening"]["epsilon_server"] < summary["epsilon_server"] <= 6.0
    assert summary["private"] and np.isfinite(summary["accuracy_final"])


def test_a_run_that_is_killed_goes_on_with_both_accounts(tmp_path: Path) -> None:
    whole = run(joint("ideal-ballot", **WHITE), tmp_path / "whole")
    killed(keys("ideal-ballot", **WHITE), tmp_path / "cut", 1)
    resumed = run(joint("ideal-ballot", **WHITE), tmp_path / "cut", resume=True)

    assert (model(tmp_path / "whole") == model(tmp_path / "cut")).all()
    assert resumed["epsilon_server"] == whole["epsilon_server"]


def test_colluders_vote_in_the_whitening_too(tmp_path: Path) -> None:
    threat = {"threat": {"attack": "inner-product", "fraction": 0.25}}
    honest = run(joint("ideal-ballot", **WHITE), tmp_path / "honest")
    run(joint("ideal-ballot", **WHITE, **threat), tmp_path / "attacked")

    assert honest["accuracy_final"] > 0
    assert (read_whitening(tmp_path / "honest") != read_whitening(tmp_path / "attacked")).any()


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"aggregation": {"secure": "real"}}, 'noise = "joint" is for secure = "ballot"'),
        ({"aggregation": {"secure": None}}, 'noise = "joint" is for secure = "ballot"'),
        ({**WHITE, "threat": {"attack": "inner-product", "fraction": 0.1}, "aggregation": {"secure": "ideal",
          "noise": "each"}}, "only a ballot bounds"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused_with_a_reason(tables: Any, words: str) -> None:
    with pytest.raises((ConfigError, InputError), match=words):
        joint(**tables)
