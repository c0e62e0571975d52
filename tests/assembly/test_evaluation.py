"""The model measured by clients, through the secure sum: right, noised, charged, and the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runs.machines import ONE, REAL, federation, private
from tests.runs.played import ledger, merged, model
from tests.runs.small import small

from sottovoce.assembly.elsewhere import node_records
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import ConfigError, SottovoceError
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.federation.engine import Request
from sottovoce.federation.stages.evaluation import EVALUATION, NORM, Measure, charged_round, evaluations
from sottovoce.models import Shard, make_trainer
from sottovoce.models.task import ClassTask
from sottovoce.privacy import Ledger
from sottovoce.runs.folder import read_operator, read_rounds
from sottovoce.runs.loop import run

FEDERATED: dict[str, Any] = {"experiment": {"evaluation": "federated"}, "client": {"held_out": 0.25}}
EQUAL = {**REAL, "weighting": "equal"}
NOISE = {"privacy": {"evaluation_noise_multiplier": 2.0}}


def plain(**tables: dict[str, Any]) -> Experiment:
    base = {
        "experiment": {"rounds": 2, "evaluate_every": 1},
        "data": {"clients": 6},
        "cohort": {"sample_rate": 1},
        **ONE,
    }
    return small(**merged(base, FEDERATED, tables))


@pytest.mark.parametrize("aggregation", [{"secure": "none"}, {"secure": "ideal"}, {"secure": "real"}])
def test_without_privacy_it_is_the_mean_of_the_clients_own_accuracies(aggregation: Any, tmp_path: Path) -> None:
    experiment = plain(aggregation=aggregation)
    run(experiment, tmp_path / "run")
    parts = gather(experiment)
    with np.load(tmp_path / "run" / "checkpoint" / "state.npz") as state:
        params = state["params"]
    trainer = make_trainer(parts.network, parts.training(), "auto", "cpu")
    accuracies = []
    for client in range(6):
        mine = parts.partition.records(client)
        owned = Shard(parts.dataset.x_train[mine], parts.dataset.y_train[mine])
        aside = node_records(parts, client, owned).held_out
        accuracies.append(np.mean(trainer.scores(params, aside.x).argmax(1) == aside.y))

    assert read_rounds(tmp_path / "run")[-1]["accuracy"] == pytest.approx(np.mean(accuracies), abs=1e-5)


@pytest.mark.parametrize("kind", ["plain", "private"])
def test_machines_measure_what_a_simulation_measures_bit_for_bit(kind: str, tmp_path: Path) -> None:
    experiment = private(**merged(FEDERATED, NOISE)) if kind == "private" else plain(aggregation=EQUAL)
    alone = run(experiment, tmp_path / "alone")
    together = run(experiment, tmp_path / "together", parties=federation(experiment, simulated=True)[0])
    for key in ("accuracy", "loss"):
        assert [record[key] for record in read_rounds(tmp_path / "alone")] == [
            record[key] for record in read_rounds(tmp_path / "together")
        ]

    assert np.array_equal(model(tmp_path / "alone"), model(tmp_path / "together"))
    assert alone["measurements"] == together["measurements"]
    assert alone["selected_by"] == "accuracy"


def test_every_measurement_of_a_deployed_run_is_charged_beside_its_round(tmp_path: Path) -> None:
    experiment = private(**merged(FEDERATED, NOISE, {"experiment": {"evaluate_every": 2}}))
    deployed, engines = federation(experiment)
    summary = run(experiment, tmp_path / "run", parties=deployed)
    asked = [round_ - EVALUATION for round_, phase, _ in engines[0].requests if phase == "unmask" and round_ > 99]

    assert asked == [2, 3]
    assert [number for kind, number in ledger(tmp_path / "run") if kind == "charge"] == [1, 2, -2, 3, -3]
    assert summary["measurements"]["most"] == 2
    assert summary["epsilon"] is not None
    assert "evaluation" in read_operator(tmp_path / "run")[1]
    assert all("evaluation" not in record for record in read_rounds(tmp_path / "run"))


def test_measurements_are_in_both_epsilons_and_a_node_may_charge_them_all() -> None:
    with_noise = protect(gather(private(**merged(FEDERATED, NOISE)))).plan
    without = protect(gather(private())).plan
    assert with_noise is not None
    assert without is not None

    assert with_noise.epsilon > without.epsilon
    assert with_noise.epsilon_server > without.epsilon_server
    assert sum(event.rounds for event in with_noise.request.spent) == 3


def test_a_ledger_grants_as_many_measurements_as_were_paid_for(tmp_path: Path) -> None:
    plan = protect(gather(private(**merged(FEDERATED, NOISE)))).plan
    assert plan is not None
    with Ledger.of_client(tmp_path / "ledger.jsonl", plan) as mine:
        for round_ in (1, 2, 3):
            mine.charge(charged_round(EVALUATION + round_))
        assert mine.spent == 0
        with pytest.raises(SottovoceError, match="3 of 3 are spent"):
            mine.charge(-4)
        mine.charge(1)


def test_a_measurement_without_quorum_is_missing_and_epsilon_is_null_from_then_on(tmp_path: Path) -> None:
    def lost(request: Request, client: int) -> bool:
        return request.round == EVALUATION + 2

    # So little noise that the count of six clients stays above one, at 9 standard deviations.
    experiment = private(**merged(FEDERATED, {"privacy": {"evaluation_noise_multiplier": 0.3}}))
    summary = run(experiment, tmp_path / "run", parties=federation(experiment, lost=lost)[0])
    rounds = read_rounds(tmp_path / "run")

    assert [record["accuracy"] is None for record in rounds] == [False, True, False]
    assert [record["epsilon"] is None for record in rounds] == [False, False, True]
    assert "a measurement by clients had too few answers" in summary["epsilon_reason"]


def test_the_noise_of_a_measurement_is_that_of_its_plan(tmp_path: Path) -> None:
    """Two-sided at 1e-6 each: 400 measurements of nobody's records, accuracy 1/2 and loss at its middle."""
    plan = protect(gather(private(**merged(FEDERATED, NOISE)))).evaluation_plan
    assert plan is not None
    from sottovoce.federation.coding import Private, Terms

    sums = []
    for round_ in range(400):
        coding = Private(plan, Seeds(round_))
        sums.append(coding.open(np.zeros(3, np.uint32), Terms(0, NORM), 0, EVALUATION + 1).values)
    found = float(np.std(sums))

    assert plan.stddev() == pytest.approx(2.0 * NORM, rel=0.05)
    assert abs(found / plan.stddev() - 1) < 4.9 / np.sqrt(2 * 1200)


@given(
    scores=st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), max_size=5),
    wanted=st.lists(st.integers(0, 2), min_size=5, max_size=5),
)
def test_no_record_moves_a_message_past_its_norm(scores: list[list[float]], wanted: list[int]) -> None:
    scheme = Measure(task=ClassTask(3))
    sent = scheme.of(np.array(scores, np.float32).reshape(-1, 3), np.array(wanted[: len(scores)], np.int64))
    message = scheme.encode(sent, 0, Seeds(1).public.get(Purpose.SETUP))

    assert np.isfinite(message).all()
    assert float(np.linalg.norm(message)) <= NORM * (1 + 1e-6)


def test_means_do_not_swing_with_the_size_of_the_cohort() -> None:
    scheme = Measure(task=ClassTask(2))
    one = scheme.of(np.array([[9.0, 0.0], [9.0, 0.0]], np.float32), np.array([0, 1]))
    few, many = (scheme.metrics(one * clients / 10, 10) for clients in (4, 16))

    assert few == pytest.approx(many)
    assert few["accuracy"] == pytest.approx(0.5)
    assert scheme.metrics(np.zeros(3, np.float32), 10) == {"accuracy": None, "loss": None}


def test_measurements_are_counted_with_the_last_round() -> None:
    assert [evaluations(rounds, 3) for rounds in (1, 3, 4, 6, 7)] == [1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"client": {"held_out": 0.0}}, r"\[client\] held_out is 0"),
        ({"aggregation": {"defence": "median"}}, "cannot be played with"),
        ({"privacy": {"noise_multiplier": 1.0, "delta": 1e-2, "clip_norm": 1.0}}, "needs noise of its own"),
        (
            {
                "experiment": {"evaluation": "server"},
                "privacy": {
                    "noise_multiplier": 1.0,
                    "delta": 1e-2,
                    "clip_norm": 1.0,
                    "evaluation_noise_multiplier": 1.0,
                },
            },
            "evaluation_noise_multiplier is for",
        ),
    ],
)
def test_what_a_measurement_by_clients_cannot_do_is_refused(tables: Any, message: str) -> None:
    with pytest.raises((ConfigError, SottovoceError), match=message):
        plain(**tables)
