"""One message ever, as a user has it: real workers, real folders, real kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.core.errors import ConfigError, InputError
from sottovoce.runs.loop import run
from sottovoce.schemes.once import Once
from tests.runs.played import ONE, Tables, killed, ledger, merged, model
from tests.runs.small import small

ONCE: Tables = {
    "experiment": {"rounds": 1, "evaluate_every": 1},
    "cohort": {"sample_rate": 1},
    "scheme": {"name": "fl-once"},
    "engine": ONE,
}
PRIVACY = {"epsilon": 8.0, "delta": 1e-2}


def test_a_run_is_the_ridge_regression_of_all_records_by_one_message_and_none_down(tmp_path: Path) -> None:
    summary = run(small(**ONCE), tmp_path / "run")
    data = gather(small(**ONCE)).dataset
    x = data.x_train.reshape(len(data.y_train), -1).astype(np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    a, b = x.T @ x / len(x), x.T @ (np.eye(10)[data.y_train] - 0.1) / len(x)
    weights = 12 * np.linalg.solve(a + 0.01 * np.trace(a) / 64 * np.eye(64), b)
    with np.load(tmp_path / "run" / "model.npz") as arrays:
        kernel = arrays["1.kernel"]

    assert kernel == pytest.approx(weights, rel=1e-3, abs=1e-3)
    assert summary["accuracy_final"] > 0.93
    assert summary["message_length"] == 64 * 65 // 2 + 640
    assert summary["bytes_up_per_client_round"] == 24 + 4 * summary["message_length"]
    assert summary["bytes_down_per_client_round"] == 0


def test_masks_change_the_bytes_and_not_the_private_model(tmp_path: Path) -> None:
    tables = merged(ONCE, {"privacy": PRIVACY})
    ideal = run(small(**tables), tmp_path / "ideal")
    real = run(small(**merged(tables, {"aggregation": {"secure": "real"}})), tmp_path / "real")

    assert np.array_equal(model(tmp_path / "ideal"), model(tmp_path / "real"))
    assert real["bytes_up_per_client_round"] > ideal["bytes_up_per_client_round"]
    bits = ideal["bits_per_coordinate"]
    assert ideal["bytes_up_per_client_round"] == 24 + -(-ideal["message_length"] * bits // 8)
    assert ideal["bytes_down_per_client_round"] == 32, "the terms of the round"


def test_a_secure_sum_that_is_not_private_gives_nearly_the_plain_model(tmp_path: Path) -> None:
    plain, secure = ({}, {"aggregation": {"secure": "ideal"}})
    for name, tables in (("plain", plain), ("secure", secure)):
        run(small(**merged(ONCE, tables)), tmp_path / name)

    assert model(tmp_path / "secure") == pytest.approx(model(tmp_path / "plain"), rel=1e-2, abs=1e-3)


def test_the_clip_norm_follows_from_the_number_of_features_and_is_charged_once(tmp_path: Path) -> None:
    summary = run(small(**merged(ONCE, {"privacy": PRIVACY})), tmp_path / "run")

    assert summary["privacy"]["clip_norm"] == pytest.approx(1 / 8)
    assert summary["epsilon"] == pytest.approx(8.0, rel=1e-3)
    assert summary["privacy"]["max_participations"] == 1
    assert ledger(tmp_path / "run") == [("open", None), ("draws", 1), ("charge", 1)]


def test_a_sampled_cohort_sends_too(tmp_path: Path) -> None:
    tables = merged(ONCE, {"cohort": {"sample_rate": "1/2"}, "privacy": PRIVACY})
    summary = run(small(**tables), tmp_path / "run")

    assert summary["expected_cohort"] == 10
    assert (
        summary["noise_multiplier"]
        < run(small(**merged(ONCE, {"privacy": PRIVACY})), tmp_path / "all")["noise_multiplier"]
    ), "outsiders do not know who was asked"


def test_the_server_solves_with_the_noise_of_the_mean_and_clients_are_not_told_it() -> None:
    nobody: Any = None  # nothing is measured
    ready = stages(protect(gather(small(**merged(ONCE, {"privacy": PRIVACY})))))[TRAINING].server_side(nobody)
    told = ready.enrolment.scheme

    assert isinstance(ready.server.scheme, Once) and isinstance(told, Once) and ready.plan is not None
    assert ready.server.scheme.noise == ready.plan.stddev() / 20
    assert told.noise == 0


def test_a_norm_measured_on_public_records_is_that_of_messages(tmp_path: Path) -> None:
    table = {**PRIVACY, "clipping": "public", "unsafe_public": True}
    tables = merged(ONCE, {"privacy": table, "scheme": {"public_samples": 60}})
    summary = run(small(**tables), tmp_path / "run")

    assert 1 / 8 < summary["privacy"]["clip_norm"] < 1.0, "an honest message is at least 1/8 long"


def test_a_run_killed_between_charge_and_release_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    tables = merged(ONCE, {"privacy": PRIVACY})
    whole = run(small(**tables), tmp_path / "whole")
    killed(tables, tmp_path / "cut", 1)
    assert ledger(tmp_path / "cut")[-1] == ("charge", 1), "on disk before the sum could be opened"

    cut = run(small(**tables), tmp_path / "cut", resume=True)

    assert np.array_equal(model(tmp_path / "whole"), model(tmp_path / "cut"))
    assert cut == whole
    assert ledger(tmp_path / "cut") == ledger(tmp_path / "whole")


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"experiment": {"rounds": 2}}, r"fl-once takes one round, but \[experiment\] rounds is 2; set it to 1"),
        ({"server": {"lr": 0.5}}, r"fl-once solves for its model, and \[server\] lr changes steps; remove it"),
        ({"privacy": {**PRIVACY, "clipping": "adaptive"}}, "finds nothing; remove it"),
        ({"threat": {"attack": "random-update", "fraction": 0.1}}, "fl-once does not train"),
        ({"scheme": {"name": "fl-once", "warm_start": "fl-once"}}, "fl-once does not; remove it"),
        ({"scheme": {"name": "fl-once", "downlink_bits": 16}}, "fl-once sends no weights down"),
    ],
)
def test_tables_about_training_are_refused_in_one_sentence(tables: Tables, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small(**merged(ONCE, tables))


def test_a_model_with_a_hidden_layer_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'one linear layer.*set \[model\] name = "logistic"'):
        run(small(**merged(ONCE, {"model": {"name": "mlp"}})), tmp_path / "run")
    assert not (tmp_path / "run").exists()
