"""Votes, warm starts, fl-once and measurements as sums over the records or persons of sites."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import MEASUREMENT, VOTE, stages
from sottovoce.core.errors import InputError, PrivacyError, SottovoceError
from sottovoce.federation.stages.local_evaluation import split_shard
from sottovoce.federation.stages.statistics import trainer_for
from sottovoce.federation.stages.unit_evaluation import BINS, MeasureUnits
from sottovoce.federation.stages.vote import Vote
from sottovoce.federation.units import sum_of_units
from sottovoce.models import LocalTraining, Shard, evaluate, make_trainer
from sottovoce.models.task import ClassTask
from sottovoce.models.zoo import network
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.plan.request import read_request, request_record
from sottovoce.runs.loop import run as play
from sottovoce.schemes import Scheme, make
from sottovoce.schemes.base import Task
from tests.federation.test_units import experiment

FEDERATED: dict[str, Any] = {"experiment__evaluation": "federated", "client__held_out": 0.3}


def plan(**changes: Any) -> PrivacyPlan:
    keys = {
        "clients": 5,
        "sample_rate": 1,
        "rounds": 20,
        "delta": 1e-5,
        "length": 40,
        "clip_norm": 1.0,
        "threshold": 0.75,
        "unit": "record",
        "units": 3000,
    }
    return PrivacyPlan.solve(**{**keys, **changes})


def scored(count: int, seed: int = 0, shift: float = 1.5) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < 0.2).astype(np.int64)
    return (rng.normal(size=count) + shift * labels - 1).astype(np.float32), labels


@pytest.mark.parametrize("binary", [True, False])
def test_metrics_of_sums_without_noise_are_those_of_the_records(binary: bool) -> None:
    if binary:
        scores, labels = scored(20_000)
    else:
        rng = np.random.default_rng(1)
        labels = rng.integers(0, 4, 5000)
        scores = (rng.normal(size=(5000, 4)) + 2 * np.eye(4)[labels]).astype(np.float32)
    scheme = MeasureUnits(binary=binary, classes=2 if binary else 4, loss_bound=20.0)
    sums = scheme.of_records(scores, labels).sum(axis=0, dtype=np.float64)

    metrics = scheme.metrics((sums / 100).astype(np.float32), 100.0, 0.0)
    true = evaluate(scores, labels, ClassTask(2, single=True) if binary else ClassTask(4))

    assert metrics["accuracy"] == pytest.approx(true["accuracy"], abs=1e-5)
    assert metrics["loss"] == pytest.approx(true["loss"], rel=1e-4)
    if binary:
        assert metrics["balanced_accuracy"] == pytest.approx(true["balanced_accuracy"], abs=1e-5)
        assert metrics["auroc"] == pytest.approx(true["auroc"], abs=4e-3)  # scores of one bin are ties
    assert set(metrics["intervals"]) == set(metrics) - {"intervals", "sums"}
    for name, (low, high) in metrics["intervals"].items():
        assert low < metrics[name] < high


@pytest.mark.parametrize("binary", [True, False])
def test_no_message_of_a_unit_is_longer_than_the_clip_norm(binary: bool) -> None:
    scheme = MeasureUnits(binary=binary, classes=2 if binary else 3, loss_bound=2.0)
    strange = np.array([0, 1e30, -1e30, np.nan, np.inf, -np.inf, 8, -8], np.float32)
    scores = strange if binary else np.stack([strange, strange[::-1], np.zeros(8, np.float32)], axis=1)

    messages = scheme.of_records(scores, np.arange(8) % 2)

    assert np.isfinite(messages).all()
    assert np.linalg.norm(messages, axis=1).max() <= scheme.public_norm * (1 + 1e-6)
    assert scheme.length == messages.shape[1] == (5 + 2 * BINS if binary else 7)


def test_intervals_hold_what_they_should_in_nineteen_of_twenty_cases() -> None:
    """400 draws of records and noise; with fewer than 360 hits, or all of them, the width is wrong (chance 1e-6)."""
    scheme, rng, stddev = MeasureUnits(binary=True, classes=2, loss_bound=5.0), np.random.default_rng(2), 12.0
    large, truth = scored(200_000, seed=9), {}
    truth = evaluate(large[0], large[1], ClassTask(2, single=True))
    hits = dict.fromkeys(("accuracy", "balanced_accuracy", "auroc"), 0)
    for draw in range(400):
        sums = scheme.of_records(*scored(3000, seed=100 + draw)).sum(axis=0, dtype=np.float64)
        noisy = (sums + stddev * rng.normal(size=len(sums))) / 3000
        intervals = scheme.metrics(noisy.astype(np.float32), 3000.0, stddev)["intervals"]
        for name in hits:
            hits[name] += intervals[name][0] <= truth[name] <= intervals[name][1]

    assert all(360 <= count <= 398 for count in hits.values()), hits


@pytest.mark.parametrize(("centre", "near"), [(-14.0, 0.012), (-9.0, 4e-3), (-3.0, 4e-3), (40.0, 1.0)])
def test_scores_far_from_zero_have_an_interval_that_holds_the_truth(centre: float, near: float) -> None:
    """Of a rare class all scores may be far below zero; beyond the last bin nothing is known, and that is said."""
    scheme = MeasureUnits(binary=True, classes=2, loss_bound=20.0)
    scores, labels = scored(20_000, shift=1.2)
    scores = (2 * scores + centre).astype(np.float32)
    sums = scheme.of_records(scores, labels).sum(axis=0, dtype=np.float64)

    metrics = scheme.metrics((sums / 100).astype(np.float32), 100.0, 0.0)
    low, high = metrics["intervals"]["auroc"]
    true = evaluate(scores, labels, ClassTask(2, single=True))["auroc"]

    assert low < true < high
    assert metrics["auroc"] == pytest.approx(true, abs=near)
    assert (high - low > 0.9) == (near == 1.0)


def test_what_the_noise_hides_is_not_told() -> None:
    scheme = MeasureUnits(binary=True, classes=2, loss_bound=5.0)
    scores, labels = scored(500)
    sums = scheme.of_records(scores, labels).sum(axis=0, dtype=np.float64)

    told = scheme.metrics((sums / 500).astype(np.float32), 500.0, 60.0)

    assert told["auroc"] is None
    assert told["balanced_accuracy"] is None
    assert told["accuracy"] is not None
    assert scheme.metrics((sums / 500).astype(np.float32), 500.0, 600.0)["accuracy"] is None


def test_a_person_with_many_rows_counts_once_in_a_measurement() -> None:
    model, rng = network("logistic", (4,), 2), np.random.default_rng(0)
    start = model.initialise(rng) + rng.normal(size=model.dim).astype(np.float32)
    scheme = MeasureUnits(binary=model.binary, classes=2, loss_bound=2.0).bind(model.dim)
    shard = Shard(rng.normal(size=(9, 4)).astype(np.float32), rng.integers(0, 2, 9), persons=np.array([0] * 7 + [1, 2]))
    solved = plan(unit="person", length=scheme.length, clip_norm=scheme.public_norm, noise_multiplier=5.0)
    trainer = scheme.measurer(make_trainer(model, LocalTraining(), "auto", "cpu"))

    total = sum_of_units(
        solved,
        scheme,
        trainer,
        Task(start, 0, {}),
        shard,
        coins=np.random.default_rng(0),
        choices=np.random.default_rng(0),
    )

    grid = solved.grid
    assert grid is not None
    sums = total / 2**grid.precision * solved.step()
    assert sums[:2].sum() == pytest.approx(3, abs=0.02)


def test_persons_are_set_aside_as_a_whole_and_by_nobodys_values() -> None:
    rng = np.random.default_rng(0)
    persons = rng.integers(0, 50, 300)
    shard = Shard(rng.normal(size=(300, 2)).astype(np.float32), rng.integers(0, 2, 300), persons=persons)
    other = Shard(shard.x + 1, 1 - shard.y, persons=persons)
    first, second = (split_shard(one, 0.2, np.random.default_rng(3)) for one in (shard, other))

    assert first.held_out.persons is not None
    assert first.train.persons is not None
    assert len(set(first.held_out.persons.tolist())) == 10
    assert not set(first.held_out.persons.tolist()) & set(first.train.persons.tolist())
    assert (first.held_out.persons == second.held_out.persons).all()


def test_those_who_are_measured_on_have_their_own_account() -> None:
    """The larger cost is the run's: nobody pays for both. Between targets the smaller one changes nothing."""
    alone = plan(noise_multiplier=20.0)
    cheap, dear = plan(rounds=4, noise_multiplier=30.0, length=9), plan(rounds=4, noise_multiplier=2.0, length=9)

    both = plan(noise_multiplier=20.0, apart=tuple(cheap.events()))
    larger = plan(noise_multiplier=20.0, apart=tuple(dear.events()))

    assert (both.epsilon, both.epsilon_server, both.epsilon_site) == (
        alone.epsilon,
        alone.epsilon_server,
        alone.epsilon_site,
    )
    assert larger.epsilon_server == pytest.approx(dear.epsilon_server, rel=1e-6)
    assert larger.epsilon == pytest.approx(dear.epsilon, rel=1e-6)
    assert larger.epsilon_site == pytest.approx(dear.epsilon_site, rel=1e-6)
    assert read_request(json.loads(json.dumps(request_record(larger.request)))) == larger.request
    with pytest.raises(PrivacyError, match="set aside costs epsilon_server"):
        plan(epsilon_server=1.0, apart=tuple(dear.events()))
    with pytest.raises(InputError, match="apart is of units"):
        plan(unit="client", units=None, noise_multiplier=2.0, clients=5000, apart=tuple(cheap.events()))


def test_a_vote_and_a_warm_start_are_composed_with_the_rounds_as_one_event() -> None:
    """Full batches of Gaussians compose to one Gaussian: dp-accounting, called directly, says what it costs."""
    from dp_accounting import get_epsilon_gaussian

    vote = plan(rounds=1, noise_multiplier=12.0)
    solved = plan(noise_multiplier=30.0, spent=tuple(vote.events()), threshold=1.0)
    whole = math.sqrt(1 / (1 / 12.0**2 + 20 / 30.0**2))

    assert solved.epsilon == pytest.approx(float(get_epsilon_gaussian(whole, 1e-5)), rel=1e-3)
    assert solved.epsilon < plan(noise_multiplier=30.0, threshold=1.0).epsilon + vote.epsilon


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ({"scheme__name": "fl-top", "scheme__ratio": 0.3, "privacy__vote_noise_multiplier": 20.0}, 0.0),
        ({"scheme__name": "fl-once", "experiment__rounds": 1, "privacy__clip_norm": None}, 0.85),
        ({"scheme__warm_start": "fl-once", "privacy__warm_noise_multiplier": 20.0}, 0.0),
        ({**FEDERATED, "server__lr": 20.0}, 0.3),
    ],
)
def test_stages_are_played_alike_with_real_sums_and_charged(
    changes: dict[str, Any], least: float, tmp_path: Path
) -> None:
    models, summaries = [], []
    for secure in ("ideal", "real"):
        summaries.append(play(experiment(aggregation__secure=secure, **changes), tmp_path / secure))
        models.append((tmp_path / secure / "model.npz").read_bytes())

    assert models[0] == models[1]
    assert summaries[0]["epsilon_server"] <= 8
    assert summaries[0]["accuracy_final"] == summaries[1]["accuracy_final"]
    assert summaries[0]["accuracy_final"] >= least


def test_a_measurement_tells_intervals_and_whose_account_it_is(tmp_path: Path) -> None:
    summary = play(experiment(**FEDERATED, server__lr=20.0, experiment__evaluate_every=1), tmp_path / "run")
    told, rounds = summary["measurements"], (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()

    assert told["most"] == 3
    assert told["units"] + summary["units"] == 1438
    assert told["epsilon_server"] <= 8
    low, high = told["intervals"]["accuracy"]
    assert low < summary["accuracy_final"] < high
    assert all("intervals" in json.loads(line) for line in rounds)
    ledger = (tmp_path / "run" / "ledger.jsonl").read_text()
    assert all(f'"round":{-number}' in ledger.replace(" ", "") for number in (1, 2, 3))


def test_the_noise_of_measurements_follows_from_the_targets() -> None:
    protection = protect(gather(experiment(**FEDERATED)))
    own = protection.evaluation_plan
    assert own is not None
    assert protection.plan is not None

    assert 7.9 < own.epsilon_server <= 8
    assert 7.9 < protection.plan.epsilon_server <= 8
    assert own.request.units == 430
    assert protection.plan.request.apart == tuple(own.events())
    assert stages(protection)[MEASUREMENT].plan is own


def test_a_vote_that_costs_more_than_the_budget_is_refused() -> None:
    changes = {"scheme__name": "fl-top", "scheme__ratio": 0.3, "privacy__vote_noise_multiplier": 0.5}

    with pytest.raises(PrivacyError, match="the vote alone costs epsilon_server"):
        protect(gather(experiment(**changes)))
    assert VOTE in stages(protect(gather(experiment(**{**changes, "privacy__vote_noise_multiplier": 20.0}))))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"client__held_out": 0.2}, "set aside needs noise"),
        ({"scheme__name": "fl-once", "experiment__rounds": 1, "scheme__record_norm": 1.0}, "adds nothing"),
        ({**FEDERATED, "client__personal_steps": 3}, "personal_steps"),
        ({"experiment__evaluation": "federated"}, "held_out is 0"),
        ({**FEDERATED, "aggregation__defence": "median"}, "defence"),
        ({"aggregation__weighting": "records"}, "weigh"),
    ],
)
def test_what_would_look_at_a_site_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SottovoceError, match=sentence) as error:
        experiment(**changes)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize("stage", ["vote", "once", "measure"])
def test_in_every_stage_five_sites_add_up_bit_for_bit_to_one(stage: str) -> None:
    """Each unit votes, sums up or measures by itself, so that it does not matter where it is."""
    model, rng = network("logistic", (6,), 3), np.random.default_rng(4)
    start = (model.initialise(rng) + rng.normal(size=model.dim)).astype(np.float32)
    training = LocalTraining(local_steps=2, batch_size=None, client_lr=0.3)
    schemes: dict[str, Scheme] = {
        "vote": Vote(kept=5, training=training),
        "once": make("fl-once").fit(model.layout),
        "measure": MeasureUnits(binary=False, classes=3, loss_bound=4.0),
    }
    scheme = schemes[stage].bind(model.dim, seed=1, start=start)
    trainer = trainer_for(scheme, model, make_trainer(model, training, "auto", "cpu"))
    norm = math.sqrt(5) if stage == "vote" else scheme.public_norm
    solved = plan(unit="person", length=scheme.length, clip_norm=norm, noise_multiplier=5.0)
    persons = rng.integers(0, 50, 120)
    whole = Shard(rng.normal(size=(120, 6)).astype(np.float32), rng.integers(0, 3, 120), persons=persons)

    def total(chosen: Any) -> Any:
        shard = Shard(whole.x[chosen], whole.y[chosen], persons=persons[chosen])
        coins, choices = np.random.default_rng(0), np.random.default_rng(0)
        return sum_of_units(solved, scheme, trainer, Task(start, 0, {}), shard, coins=coins, choices=choices)

    assert np.array_equal(sum(total(persons % 5 == site) for site in range(5)), total(np.ones(120, np.bool_)))
    assert total(persons % 5 == 0).any()
