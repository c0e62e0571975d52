"""Features that are whitened by one message before round 1: what is released, charged, kept and used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from tests.assembly.test_deployed_fronts import SCATTERING
from tests.runs.played import ONE, Tables, killed, ledger, merged, model
from tests.runs.small import small

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, WHITEN, stages
from sottovoce.core.errors import ConfigError, RunError, SottovoceError, WireError
from sottovoce.federation.client import read_setup
from sottovoce.federation.stages.whiten import MEANS, Whiten
from sottovoce.models.fronts.projection import LENGTH, unit
from sottovoce.models.whitening import Whitening
from sottovoce.planning.plan import plan
from sottovoce.runs.folder import read_operator, read_whitening
from sottovoce.runs.loop import run
from sottovoce.runs.saved_model import read_model

TABLES: Tables = {
    "model": {"whiten": True},
    "experiment": {"rounds": 3},
    "cohort": {"sample_rate": 1},
    "privacy": {"epsilon": 8.0, "epsilon_server": 9.0, "delta": 1e-2, "clip_norm": 0.5},
    "engine": ONE,
}
RECORDS: Tables = {
    **TABLES,
    "privacy": {"unit": "record", "epsilon_server": 4.0, "delta": 1e-4, "min_units": 1},
    "cohort": {},
}


@pytest.fixture(scope="module")
def whitened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    path = tmp_path_factory.mktemp("whitened") / "run"
    return path, run(small(**TABLES), path)


def test_the_message_is_round_0_charged_before_round_1_and_paid_from_the_budget(
    whitened: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    path, summary = whitened
    plain = run(small(**merged(TABLES, {"model": {"whiten": False}})), tmp_path / "plain")

    assert ledger(path)[:5] == [("open", None), ("draws", 0), ("charge", 0), ("draws", 1), ("charge", 1)]
    assert [line["round"] for line in read_operator(path)] == [0, 1, 2, 3]
    assert summary["epsilon"] <= 8.0
    assert summary["epsilon_server"] <= 9.0
    assert summary["noise_multiplier"] > plain["noise_multiplier"], "the rounds get what it leaves"
    assert summary["epsilon_server"] > summary["whitening"]["epsilon_server"] > 0
    assert plain["whitening"] is None
    assert plan(small(**TABLES))["whitening"] == summary["whitening"]
    assert plan(small(**TABLES))["bytes_setup_per_client"] == summary["bytes_setup_per_client"]


@pytest.mark.parametrize("tables", [TABLES, RECORDS], ids=["clients", "records"])
def test_epsilon_is_that_of_both_stages_composed_by_dp_accounting(tables: Tables) -> None:
    known = protect(gather(small(**tables)))
    training, before = known.plan, known.whiten_plan
    assert training is not None
    assert before is not None
    part = training.shares.server_part
    own = [dp_event.GaussianDpEvent(before.noise_multiplier * before.shares.server_part**0.5)]
    own += [dp_event.GaussianDpEvent(training.noise_multiplier * part**0.5)] * 3
    accountant = pld_privacy_accountant.PLDAccountant()
    accountant.compose(dp_event.ComposedDpEvent(own))

    assert training.epsilon_server == pytest.approx(accountant.get_epsilon(training.request.delta), rel=0.02)
    least = {key: value for key, value in tables["privacy"].items() if key.startswith("epsilon")}
    assert all(getattr(training, key) <= value for key, value in least.items())


def test_records_that_are_set_aside_have_no_part_in_it() -> None:
    aside: Tables = {"client": {"held_out": 0.2}, "experiment": {"evaluation": "federated"}}
    found = stages(protect(gather(small(**merged(RECORDS, aside)))))[WHITEN]

    assert found.records == "train"
    assert not found.server_side().enrolment.measures


def test_half_of_a_share_is_half_of_the_inverse_variance() -> None:
    noises = []
    for share in (0.12, 0.06):
        known = protect(gather(small(**merged(TABLES, {"privacy": {"whiten_share": share}}))))
        assert known.whiten_plan is not None
        noises.append(known.whiten_plan.noise_multiplier)
    assert (noises[1] / noises[0]) ** 2 == pytest.approx(2)


def test_a_message_is_clipped_and_depends_on_directions_alone() -> None:
    known = protect(gather(small(**TABLES)))
    stage = stages(known)[WHITEN]
    scheme = stage.bind()
    assert known.whiten_plan is not None
    rng = np.random.default_rng(1)
    for records in (1, 3, 50):
        x = unit(rng.normal(size=(records, scheme.width)).astype(np.float32) ** 2)  # type: ignore[attr-defined]
        message = scheme.statistics(x, np.zeros(records))
        assert np.linalg.norm(message) >= scheme.public_norm  # type: ignore[operator]
    assert known.whiten_plan.request.clip_norm == scheme.public_norm
    assert not scheme.statistics(x[:0], np.zeros(0)).any()


def twin(u: np.ndarray[Any, Any], dims: int) -> np.ndarray[Any, Any]:
    """Whiten rows of norm 1 by their own moments, without noise: the slow, obvious way."""
    mean = u.mean(axis=0)
    centred = u - mean
    width, left = u.shape[1], 1 - mean @ mean
    ridge = 0.3 * left / width
    values, vectors = np.linalg.eigh((centred[:, :dims].T @ centred[:, :dims]) / len(u))
    matrix = vectors @ np.diag((np.maximum(values, 0) + ridge) ** -0.5) @ vectors.T
    rest = (centred[:, dims:] ** 2).sum() / len(u) / max(1, width - dims)
    found = np.hstack([centred[:, :dims] @ matrix, centred[:, dims:] * (rest + ridge) ** -0.5])
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.mark.parametrize("dims", [5, 8])
def test_whitened_features_are_those_of_the_slow_twin(dims: int) -> None:
    rng = np.random.default_rng(3)
    u = unit((rng.normal(size=(200, 8)) * np.arange(1, 9) + 2).astype(np.float32))
    scheme = Whiten(width=8, dims=dims).bind(9)
    # Clients whose messages are equally long weigh the same, as they do when all are clipped.
    messages = np.stack([scheme.statistics(u[k : k + 1], np.zeros(1)) for k in range(200)]).astype(np.float64)
    numbers = scheme.decode(messages.mean(axis=0).astype(np.float32), {"params": np.zeros(9)}, 0, rng)["whitening"]

    found = Whitening(8, dims).known(numbers).refined(u)

    assert found == pytest.approx(twin(u.astype(np.float64) / LENGTH, dims) * LENGTH, abs=2e-3)
    assert messages[:, :8] == pytest.approx(MEANS * u / LENGTH, abs=1e-6)


def test_a_record_is_whitened_the_same_in_any_company() -> None:
    rng = np.random.default_rng(4)
    whitening = Whitening(30, 20)
    whitening = whitening.known(rng.normal(size=whitening.length).astype(np.float32))
    u = unit(rng.normal(size=(64, 30)).astype(np.float32))

    assert all(np.array_equal(whitening.refined(u[k : k + 1])[0], row) for k, row in enumerate(whitening.refined(u)))


def test_numbers_travel_in_the_set_up_and_other_numbers_are_refused() -> None:
    parts = gather(small(**TABLES))
    ready = stages(protect(parts))[TRAINING]
    whitening = parts.network.whitening
    assert whitening is not None
    numbers = np.random.default_rng(5).normal(size=whitening.length).astype(np.float32)
    network = parts.network.with_numbers(numbers)
    mine = parts.network.told(network.start_payload(), np.random.default_rng(0))
    assert mine.whitening is not None
    assert np.array_equal(mine.whitening.numbers, numbers)  # type: ignore[arg-type]

    other = parts.network.with_numbers(numbers + 1)
    setup = (
        replace(ready, protection=replace(ready.protection, parts=replace(parts, network=other))).server_side().setup
    )
    with pytest.raises(WireError, match="another front"):
        read_setup(ready.scheme, network, setup)
    with pytest.raises(WireError, match="finite"):
        parts.network.with_numbers(numbers * np.float32(np.nan))
    with pytest.raises(WireError):
        parts.network.told(network.start_payload()[:-4], np.random.default_rng(0))


@pytest.mark.parametrize("round_", [0, 2])
def test_a_killed_run_does_not_pay_for_its_whitening_twice(
    whitened: tuple[Path, dict[str, Any]], tmp_path: Path, round_: int
) -> None:
    path, summary = whitened
    killed(TABLES, tmp_path / "cut", round_)

    cut = run(small(**TABLES), tmp_path / "cut", resume=True)

    assert np.array_equal(model(path), model(tmp_path / "cut"))
    assert cut == summary
    assert ledger(tmp_path / "cut") == ledger(path)
    assert np.array_equal(read_whitening(path), read_whitening(tmp_path / "cut"))


def test_a_whitening_under_masks_is_that_of_the_ideal_sum(
    whitened: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    run(small(**merged(TABLES, {"aggregation": {"secure": "real"}})), tmp_path / "real")

    assert np.array_equal(model(whitened[0]), model(tmp_path / "real"))
    assert np.array_equal(read_whitening(whitened[0]), read_whitening(tmp_path / "real"))


def test_a_saved_model_whitens_as_the_run_did(tmp_path: Path) -> None:
    plain = {name: table for name, table in merged(TABLES, SCATTERING).items() if name != "privacy"}
    experiment = small(**plain)
    summary = run(experiment, tmp_path / "run")
    data = gather(experiment).dataset

    found = read_model(tmp_path / "run").predict(data.x_test, data.y_test)

    assert found.metrics()["accuracy"] == pytest.approx(summary["accuracy_final"])
    (tmp_path / "run" / "whitening.bin").unlink()
    with pytest.raises(RunError, match="whitening"):
        read_model(tmp_path / "run")


def test_an_exported_model_holds_the_numbers(whitened: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    saved = read_model(whitened[0])
    saved.export(tmp_path / "model.npz", "npz")

    with np.load(tmp_path / "model.npz") as arrays:
        assert saved.network.whitening is not None
        assert np.array_equal(arrays["whitening.matrix"], saved.network.whitening.arrays()["matrix"])


def test_records_are_units_of_the_whitening_too(tmp_path: Path) -> None:
    known = protect(gather(small(**merged(RECORDS, {"privacy": {"unit_rate": 0.5}}))))
    plan = known.whiten_plan
    assert plan is not None
    assert plan.request.unit == "record"
    assert plan.request.unit_rate == 1, "every record is in the message, whichever the rounds draw"
    _, radius, precision = plan.unit_grid
    long = np.random.default_rng(1).normal(size=(1, plan.request.length)).astype(np.float32)
    assert np.linalg.norm(plan.centres(long)) <= radius * 2**precision, "a record is clipped"
    summary = run(small(**RECORDS), tmp_path / "run")

    assert summary["unit"] == "record"
    assert summary["epsilon_server"] <= 4.0
    assert ("charge", 0) in ledger(tmp_path / "run")


def test_the_server_lr_of_a_head_follows_from_clients_and_clip_norm() -> None:
    ready = stages(protect(gather(small(**merged(TABLES, {"server": {"lr": "auto"}})))))[TRAINING].server_side()
    assert ready.server.step.lr == pytest.approx(16 * 20 / 1000 / (0.5 / 0.3))
    with pytest.raises(ConfigError, match="or on features of"):
        small(**merged(TABLES, {"server": {"lr": "auto"}, "model": {"whiten": False}}))


def test_one_message_is_solved_for_on_whitened_features(tmp_path: Path) -> None:
    once: Tables = merged(TABLES, {"scheme": {"name": "fl-once"}, "experiment": {"rounds": 1, "evaluate_every": 1}})
    once["privacy"] = {"epsilon_server": 9.0, "delta": 1e-2}
    summary = run(small(**once), tmp_path / "run")

    assert [kind for kind in ledger(tmp_path / "run") if kind[0] == "charge"] == [("charge", 0), ("charge", 1)]
    assert summary["epsilon_server"] <= 9.0


def test_a_whitening_that_too_few_stay_for_is_not_charged(tmp_path: Path) -> None:
    leaving = {"devices": {"leave": [[0, client, "mask"] for client in range(10)]}}
    with pytest.raises(RunError, match="the whitening failed: too few clients stayed"):
        run(small(**merged(TABLES, leaving)), tmp_path / "run")
    assert ("charge", 0) not in ledger(tmp_path / "run")


@pytest.mark.parametrize(
    ("tables", "error", "message"),
    [
        (
            {"scheme": {"warm_start": "fl-once"}, "privacy": {"warm_noise_multiplier": 3.0}},
            ConfigError,
            "both would be",
        ),
        ({"scheme": {"name": "fl-top"}}, ConfigError, "it chooses coordinates before"),
        ({"threat": {"attack": "random-update", "fraction": 0.1}}, ConfigError, r"not played with \[threat\]"),
        ({"privacy": {"clipping": "public", "clip_norm": None}}, ConfigError, "it is measured before"),
        ({"model": {"whiten": False}, "privacy": {"whiten_share": 0.2}}, ConfigError, "whiten_share is for"),
        ({"model": {"whiten": False, "whiten_dims": 7}}, ConfigError, "whiten_dims is for whiten"),
        ({"model": {"front": "gabor", "name": "cnn"}}, ConfigError, "it fills layers and gives no features"),
    ],
)
def test_a_whitening_that_cannot_be_is_refused(tables: Tables, error: type[SottovoceError], message: str) -> None:
    with pytest.raises(error, match=message):
        protect(gather(small(**merged(TABLES, tables))))
