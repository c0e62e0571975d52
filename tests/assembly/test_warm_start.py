"""A model that every client helps to solve for before round 1, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.played import ONE, Tables, killed, ledger, merged, model
from tests.runs.small import small

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, WARM_START, stages
from sottovoce.core.errors import ConfigError, InputError, PrivacyError, RunError, SottovoceError
from sottovoce.federation.aggregation.secure import Secure
from sottovoce.federation.aggregation.standing import Standing
from sottovoce.planning.plan import plan
from sottovoce.runs.folder import read_operator, read_rounds
from sottovoce.runs.loop import run

ONCE: Tables = {
    "experiment": {"rounds": 1, "evaluate_every": 1},
    "cohort": {"sample_rate": 1},
    "scheme": {"name": "fl-once"},
    "engine": ONE,
}
WARM: Tables = {"scheme": {"warm_start": "fl-once"}, "experiment": {"rounds": 3}, "engine": ONE}
WARM_PRIVACY = {"epsilon": 8.0, "delta": 1e-2, "clip_norm": 0.5, "warm_noise_multiplier": 1.0}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    path = tmp_path_factory.mktemp("warm") / "run"
    return path, run(small(**merged(WARM, {"privacy": WARM_PRIVACY})), path)


def test_a_warm_start_is_round_0_charged_before_round_1_and_paid_from_the_budget(
    warm: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    path, summary = warm
    cold = run(small(**merged(WARM, {"scheme": {"warm_start": None}, "privacy": _cold()})), tmp_path / "cold")

    assert ledger(path)[:5] == [("open", None), ("draws", 0), ("charge", 0), ("draws", 1), ("charge", 1)]
    assert [line["round"] for line in read_operator(path)] == [0, 1, 2, 3]
    assert read_operator(path)[0]["cohort"] == 20, "everyone is asked before round 1"
    assert summary["epsilon"] <= 8.0
    assert summary["noise_multiplier"] > cold["noise_multiplier"], "the rounds get what it leaves"
    assert summary["epsilon_server"] > summary["warm_start"]["epsilon_server"] > 0
    assert cold["warm_start"] is None


def _cold() -> dict[str, Any]:
    return {key: value for key, value in WARM_PRIVACY.items() if key != "warm_noise_multiplier"}


def test_what_a_warm_start_sends_is_counted_apart(warm: tuple[Path, dict[str, Any]]) -> None:
    told = warm[1]["warm_start"]

    assert told["bytes_up_per_client"] == 24 + -(-told["message_length"] * told["bits_per_coordinate"] // 8)
    assert told["bytes_up_total"] == 20 * told["bytes_up_per_client"]
    assert plan(small(**merged(WARM, {"privacy": WARM_PRIVACY})))["warm_start"] == told


def test_training_begins_at_the_solved_model(tmp_path: Path) -> None:
    one_round = {"experiment": {"rounds": 1, "evaluate_every": 1}, "client": {"client_lr": 1e-9}}
    keys = {"record_norm": 5.0, "gain": 3.0}
    run(small(**merged(WARM, one_round, {"scheme": {"warm_keys": keys}})), tmp_path / "warm")
    run(small(**merged(ONCE, {"scheme": keys})), tmp_path / "once")

    assert model(tmp_path / "warm") == pytest.approx(model(tmp_path / "once"), abs=1e-4)
    assert read_rounds(tmp_path / "warm")[0]["accuracy"] > 0.9, "without a step of training"


@pytest.mark.parametrize("round_", [0, 3])
def test_a_killed_run_does_not_pay_for_its_warm_start_twice(
    warm: tuple[Path, dict[str, Any]], tmp_path: Path, round_: int
) -> None:
    path, summary = warm
    tables = merged(WARM, {"privacy": WARM_PRIVACY})
    killed(tables, tmp_path / "cut", round_)

    cut = run(small(**tables), tmp_path / "cut", resume=True)

    assert np.array_equal(model(path), model(tmp_path / "cut"))
    assert cut == summary
    assert ledger(tmp_path / "cut") == ledger(path)
    assert [line["round"] for line in read_operator(tmp_path / "cut")] == [0, 1, 2, 3]


def test_a_warm_start_under_masks_is_that_of_the_ideal_sum(warm: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    real = merged(WARM, {"privacy": WARM_PRIVACY, "aggregation": {"secure": "real"}})
    summary = run(small(**real), tmp_path / "real")

    assert np.array_equal(model(warm[0]), model(tmp_path / "real"))
    assert summary["warm_start"]["bytes_up_total"] > warm[1]["warm_start"]["bytes_up_total"]


def test_a_warm_start_that_too_few_stay_for_is_not_charged(tmp_path: Path) -> None:
    leaving = {"devices": {"leave": [[0, client, "mask"] for client in range(10)]}}
    with pytest.raises(RunError, match="the warm start failed: too few clients stayed"):
        run(small(**merged(WARM, leaving, {"privacy": WARM_PRIVACY})), tmp_path / "run")
    assert ("charge", 0) not in ledger(tmp_path / "run")


@pytest.mark.parametrize(
    ("tables", "error", "message"),
    [
        ({"scheme": {"name": "fl-top"}}, ConfigError, "the clients of fl-top know weights from w_0 alone"),
        ({"scheme": {"name": "fl-bas-3"}}, ConfigError, "the clients of fl-bas-3 know weights from w_0 alone"),
        (
            {"scheme": {"name": "sign-sgd"}, "cohort": {"sample_rate": 1}},
            ConfigError,
            "the clients of sign-sgd know weights from w_0 alone",
        ),
        ({"privacy": _cold()}, ConfigError, r"one more release of a private run; set \[privacy\] warm_noise_multip"),
        (
            {"scheme": {"warm_start": None}, "privacy": WARM_PRIVACY},
            ConfigError,
            r"is the noise of a warm start, and there is none; set \[scheme\] warm_start",
        ),
        ({"threat": {"attack": "random-update", "fraction": 0.1}}, ConfigError, "remove one"),
        (
            {"privacy": {**WARM_PRIVACY, "warm_noise_multiplier": 0.2}},
            PrivacyError,
            "the warm start alone costs epsilon .* but the budget is 8",
        ),
        (
            {"privacy": {**WARM_PRIVACY, "epsilon": 100.0, "epsilon_server": 1.0}},
            PrivacyError,
            "the warm start alone costs epsilon_server .* but the budget is 1; raise warm_noise_multiplier",
        ),
        ({"model": {"name": "mlp"}}, InputError, "one linear layer"),
        ({"scheme": {"warm_keys": {"gian": 3.0}}}, InputError, "fl-once has no key 'gian'; did you mean 'gain'?"),
        ({"scheme": {"warm_start": None, "warm_keys": {"gain": 3.0}}}, ConfigError, "for a warm start, and there is"),
    ],
)
def test_a_warm_start_that_cannot_be_is_refused(tables: Tables, error: type[SottovoceError], message: str) -> None:
    with pytest.raises(error, match=message):
        protect(gather(small(**merged(WARM, tables))))


def test_a_stage_before_the_rounds_has_keys_of_its_own_where_rounds_share_those_of_a_session() -> None:
    masked: Tables = {"aggregation": {"secure": "real", "key_life": "session"}, "cohort": {"sample_rate": 1}}
    all_stages = stages(protect(gather(small(**merged(merged(WARM, masked), {"privacy": WARM_PRIVACY})))))

    kinds = {name: type(all_stages[name].server_side(None).server.aggregator) for name in (WARM_START, TRAINING)}

    assert kinds == {WARM_START: Secure, TRAINING: Standing}
