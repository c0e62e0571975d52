"""Sites that play one virtual client for each of their records."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.assembly.parts import gather
from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.errors import InputError, SottovoceError
from sottovoce.core.target import Target
from sottovoce.federation.units import drawn_units, most_drawn, padding, sum_of_units, unit_lr
from sottovoce.models import LocalTraining, Shard, make_trainer
from sottovoce.models.task import USUAL, TaskKeys
from sottovoce.models.units import Units, clipped_centres
from sottovoce.models.zoo import network
from sottovoce.privacy import PrivacyPlan
from sottovoce.runs.loop import run as play
from sottovoce.schemes import make
from sottovoce.schemes.base import Task

TABLES: dict[str, dict[str, Any]] = {
    "experiment": {"rounds": 3, "evaluate_every": 3},
    "data": {"source": "digits", "clients": 5},
    "model": {"name": "logistic"},
    "client": {"local_steps": 1, "client_lr": 0.1},
    "privacy": {"unit": "record", "epsilon_server": 8.0, "clip_norm": 0.5, "delta": 1e-5},
    "aggregation": {"threshold": 4},
    "engine": {"workers": 1},
}


def experiment(**changes: Any) -> Experiment:
    """Return five sites with the digits, with keys `table__key` changed."""
    tables = {name: dict(table) for name, table in TABLES.items()}
    for place, value in changes.items():
        table, _, key = place.partition("__")
        tables.setdefault(table, {})[key] = value
    return parse(tables)


def plan(length: int, **changes: Any) -> PrivacyPlan:
    keys = {
        "clients": 5,
        "sample_rate": 1,
        "rounds": 4,
        "delta": 1e-5,
        "length": length,
        "clip_norm": 0.3,
        "threshold": 0.75,
        "unit": "record",
        "units": 60,
        "noise_multiplier": 8.0,
    }
    return PrivacyPlan.solve(**{**keys, **changes})


def records(count: int = 60) -> Shard:
    rng = np.random.default_rng(5)
    return Shard(rng.normal(size=(count, 12)).astype(np.float32), rng.integers(0, 3, count))


def totals(name: str, shards: list[Shard], task: TaskKeys = USUAL, **changes: Any) -> np.ndarray[Any, Any]:
    """Return the sums of the centres of some sites, added up."""
    target = Target("number", -3.0, 3.0) if task.task == "regression" else Target()
    model = network("linear" if target.kind == "number" else "logistic", (12,), 3, task=task, target=target)
    start = model.initialise(np.random.default_rng(1))
    scheme = make(name).fit(model.layout).bind(model.dim, seed=3, start=start, importance=np.abs(start))
    solved = plan(scheme.length, form=scheme.form, **({"clip_norm": 0.0} if scheme.form == "signs" else {}), **changes)
    trainer = make_trainer(model, LocalTraining(local_steps=2, batch_size=None, client_lr=0.2), "auto", "cpu")
    sums = [
        sum_of_units(
            solved,
            scheme,
            trainer,
            Task(start, 3, {}),
            shard,
            coins=np.random.default_rng(site),
            choices=np.random.default_rng(site + 20),
        )
        for site, shard in enumerate(shards)
    ]
    return np.sum(sums, axis=0)


def divided(shard: Shard, sites: int) -> list[Shard]:
    return [Shard(x, y) for x, y in zip(np.array_split(shard.x, sites), np.array_split(shard.y, sites), strict=True)]


@pytest.mark.parametrize("name", ["fl-std", "fl-top", "fl-rnd", "fl-cs", "fl-basic", "fl-freq"])
def test_five_sites_add_up_bit_for_bit_to_one_site_with_all_records(name: str) -> None:
    whole = records()

    assert (totals(name, divided(whole, 5)) == totals(name, [whole])).all()
    assert totals(name, [whole]).any()


@pytest.mark.parametrize(
    "task",
    [TaskKeys(class_weights=(0.1, 1.0, 0.5)), TaskKeys("regression"), TaskKeys("regression", loss="huber")],
    ids=["weights", "squared", "huber"],
)
def test_weights_of_classes_and_numbers_add_up_over_sites_too(task: TaskKeys) -> None:
    whole = records()
    if task.task == "regression":
        whole = whole._replace(y=whole.x[:, 0].copy())

    assert (totals("fl-std", divided(whole, 5), task) == totals("fl-std", [whole], task)).all()
    assert totals("fl-std", [whole], task).any()


def test_a_class_with_a_tenth_of_the_weight_adds_about_a_tenth() -> None:
    """Nobody is clipped here, so that only the second step, from a nearer model, and rounding make a difference."""
    whole = records()
    one = Shard(whole.x[whole.y == 1], whole.y[whole.y == 1])
    plain, weighted = (
        np.linalg.norm(totals("fl-std", [one], TaskKeys(class_weights=weights), clip_norm=3.0, noise_multiplier=0.5))
        for weights in ((1.0, 1.0, 1.0), (1.0, 0.1, 1.0))
    )

    assert weighted / plain == pytest.approx(0.1, abs=0.1)


def test_the_sum_is_that_of_a_slow_twin_that_trains_one_record_after_another() -> None:
    """The twin clips in floats and knows no grid: each record may differ by half a step in a coordinate."""
    model, whole = network("logistic", (12,), 3), records()
    start = model.initialise(np.random.default_rng(1))
    trainer = make_trainer(model, LocalTraining(local_steps=2, batch_size=None, client_lr=0.2), "auto", "cpu")
    twin = np.zeros(model.dim)
    for x, y in zip(whole.x, whole.y, strict=True):
        (update,) = trainer.updates(start, [Shard(x[None], np.array([y]))], [np.random.default_rng(0)])
        values = update.astype(np.float64)
        twin += values * min(1.0, 0.3 / np.linalg.norm(values))
    solved = plan(model.dim)
    grid = solved.grid
    assert grid is not None

    summed = totals("fl-std", [whole]) / 2**grid.precision * solved.step()

    assert np.abs(summed - twin).max() <= 60 * solved.step() * 2.0**-grid.precision
    assert np.abs(twin).max() > 100 * solved.step() * 2.0**-grid.precision


def test_one_record_moves_the_sum_by_at_most_the_clip_norm() -> None:
    whole = records()
    solved = plan(network("logistic", (12,), 3).dim)
    grid = solved.grid
    assert grid is not None

    for absent in (0, 17, 59):
        rest = Shard(np.delete(whole.x, absent, axis=0), np.delete(whole.y, absent))
        moved = totals("fl-std", [whole]) - totals("fl-std", [rest])
        assert np.linalg.norm(moved.astype(float)) <= grid.radius * 2**grid.precision * (1 + 1e-12)


def test_a_site_of_which_nobody_is_drawn_still_has_a_sum() -> None:
    empty = Shard(np.zeros((0, 12), np.float32), np.zeros(0, np.int64))

    assert (totals("fl-std", [empty]) == 0).all()


def test_coins_are_fair_and_new_in_every_round() -> None:
    draws = [drawn_units(10_000, 0.25, np.random.default_rng(round_)) for round_ in range(2)]

    assert all(abs(len(drawn) - 2500) < 6 * 44 for drawn in draws)
    assert set(draws[0].tolist()) != set(draws[1].tolist())
    assert (drawn_units(7, 1.0, np.random.default_rng(0)) == np.arange(7)).all()


def test_every_site_and_round_has_coins_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sottovoce.federation import client

    first: list[float] = []

    def spied(*arguments: Any, coins: np.random.Generator, **keys: Any) -> Any:
        first.append(float(np.random.Generator(copy.deepcopy(coins.bit_generator)).random()))
        return sum_of_units(*arguments, coins=coins, **keys)

    monkeypatch.setattr(client, "sum_of_units", spied)
    play(experiment(privacy__unit_rate="1/2", aggregation__threshold=5), tmp_path / "run")

    assert len(first) == len(set(first)) == 15


@pytest.mark.parametrize("largest", [1, 5])
def test_work_is_padded_to_the_same_number_of_units_and_rows(largest: int) -> None:
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, largest + 1, 400)
    units = Units(np.arange(int(sizes.sum())), sizes)
    seen = set()
    for _ in range(200):
        taking = drawn_units(400, 0.1, rng)
        more = padding(units, taking, 0.1)
        seen.add((len(taking) + len(more.sizes), int(sizes[taking].sum() + more.sizes.sum())))
        assert more.sizes.min() >= 1
        assert len(more.rows) == more.sizes.sum()

    assert len(seen) == 1
    assert seen.pop()[0] == most_drawn(400, 0.1) < 200
    assert not len(padding(units, np.arange(400), 1.0).sizes)


def test_a_site_computes_as_many_units_whatever_it_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def counted(*arguments: Any, **keys: Any) -> Any:
        computed.append(len(arguments[3].sizes))
        return clipped_centres(*arguments, **keys)

    monkeypatch.setattr("sottovoce.federation.units.clipped_centres", counted)
    for site in range(4):
        totals(
            "fl-std", [Shard(np.zeros((0, 12), np.float32), np.zeros(0, np.int64))] * site + [records()], unit_rate=0.3
        )
        drawn = [units for units in computed if units]

        assert sum(drawn) == most_drawn(60, 0.3)
        computed.clear()


def test_padding_changes_no_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    padded = totals("fl-std", [records()], unit_rate=0.3)
    monkeypatch.setattr("sottovoce.federation.units.padding", lambda units, taking, rate: units.some(taking[:0]))

    assert (padded == totals("fl-std", [records()], unit_rate=0.3)).all()
    assert padded.any()


def test_a_run_of_a_torch_module_trains_each_record_by_itself(tmp_path: Path) -> None:
    from torch import nn

    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    x = (rng.normal(size=(300, 6)) + 2 * np.eye(6)[y]).astype(np.float32)
    keys: dict[str, Any] = {
        "clients": 3,
        "rounds": 4,
        "classes": 3,
        "workers": 1,
        "test": (x[:60], y[:60]),
        "privacy": sv.Privacy(unit="record", epsilon_server=8.0, min_units=10, unsafe_test=True),
    }
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    summaries = [sv.simulate((x, y), model=model, secure=secure, **keys).summary for secure in ("ideal", "real")]

    assert summaries[0]["unit"] == "record"
    assert summaries[0]["accuracy_final"] == summaries[1]["accuracy_final"]
    for layer, name in ((nn.Dropout(), "Dropout"), (nn.BatchNorm1d(6, track_running_stats=False), "BatchNorm1d")):
        with pytest.raises(SottovoceError, match=name):
            sv.simulate((x, y), model=nn.Sequential(layer, nn.Linear(6, 3)), **keys)


def test_a_cnn_with_all_its_weights_is_trained_record_by_record(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60)
    x = (rng.integers(0, 100, (60, 28, 28, 1)) + 100 * y[:, None, None, None]).astype(np.uint8)
    result = sv.simulate(
        (x, y),
        model="cnn",
        clients=2,
        rounds=1,
        classes=2,
        workers=1,
        privacy=sv.Privacy(unit="record", epsilon_server=8.0, min_units=10, delta=1e-3),
        test=(x[:20], y[:20]),
        evaluation="none",
    )

    assert result.summary["units"] == 60
    assert result.summary["epsilon_server"] <= 8


@pytest.mark.parametrize("name", ["fl-std", "fl-sign"])
def test_ideal_and_real_sums_give_the_same_model(name: str, tmp_path: Path) -> None:
    models = []
    for secure in ("ideal", "real"):
        changes: dict[str, Any] = {"aggregation__secure": secure, "scheme__name": name}
        if name == "fl-sign":
            changes["privacy__clip_norm"] = None
        play(experiment(**changes), tmp_path / secure)
        models.append((tmp_path / secure / "model.npz").read_bytes())

    assert models[0] == models[1]


def test_a_run_tells_whom_it_protects_and_from_whom(tmp_path: Path) -> None:
    summary = play(experiment(privacy__unit_rate="1/2", aggregation__colluders=1), tmp_path / "run")

    assert summary["unit"] == "record"
    assert summary["units"] == summary["privacy"]["units"] > 1000
    assert summary["unit_rate"] == 0.5
    assert summary["epsilon"] < summary["epsilon_server"] <= 8
    assert summary["epsilon_site"] == summary["privacy"]["epsilon_site"]
    assert "one record replaced by nothing" in summary["privacy"]["adjacency"]


def test_with_all_other_sites_colluding_a_real_sum_is_played(tmp_path: Path) -> None:
    summary = play(experiment(aggregation__colluders=4, aggregation__secure="real"), tmp_path / "run")

    assert summary["epsilon_server"] <= 8
    assert summary["privacy"]["noise_by"] == "each site by itself"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"aggregation__secure": "ballot"}, "ballot is one bit a site"),
        ({"scheme__name": "sign-sgd"}, "sign-sgd"),
        ({"client__momentum": 0.5}, r"\[client\] momentum"),
        ({"client__balanced": "weighted-loss"}, r"\[client\] balanced"),
        ({"privacy__clipping": "adaptive"}, r"\[privacy\] clipping"),
        ({"privacy__unit_rate": 0}, "unit_rate"),
        ({"privacy__unit_rate": 1.5}, "unit_rate"),
        ({"privacy__unit": "person", "data__partition": "shards"}, "would tear persons apart"),
        ({"privacy__unit": "person", "data__source": "a.csv", "data__label": "y"}, r"\[data\] person"),
        ({"privacy__max_rows": 4}, r'max_rows is for unit = "person"'),
        ({"data__partition": "virtual"}, "two sites may hold one record"),
        ({"privacy__unit": "client", "privacy__unit_rate": 0.5}, 'unit_rate is for unit = "record"'),
    ],
)
def test_what_is_no_sum_over_records_is_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SottovoceError, match=sentence) as error:
        experiment(**changes)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"data__clients": 100}, "min_units is 100, but site 0 holds"),
        ({"privacy__unit": "person"}, "does not say whose a row is"),
        ({"privacy__delta": 1e-3}, "delta must be below 1 / units"),
        ({"aggregation__colluders": 3}, "colluders"),
    ],
)
def test_what_does_not_fit_the_records_is_refused_and_nothing_is_written(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(SottovoceError, match=sentence):
        play(experiment(**changes), tmp_path / "run")

    assert not (tmp_path / "run").exists()


def test_what_a_file_leaves_out_suits_records() -> None:
    tables = {"privacy": {"unit": "record", "epsilon_server": 1.0}, "data": {"source": "digits", "clients": 5}}

    made = parse(tables)

    assert (made.client.local_steps, made.client.client_lr, made.client.batch_size) == (1, 1.0, "all")
    assert (made.server.lr, made.server.momentum) == ("auto", 0.9)
    assert made.data.centred
    assert made.privacy is not None
    assert made.privacy.clip_norm == 1
    assert parse(made.tables()).tables() == made.tables()
    kept = parse({**tables, "server": {"lr": 3.0, "momentum": 0.5}, "data": {**tables["data"], "centred": False}})
    assert (kept.server.lr, kept.server.momentum, kept.data.centred) == (3.0, 0.5, False)


def test_noise_moves_a_weight_by_as_much_whatever_the_plan_is() -> None:
    for changes in ({}, {"rounds": 30}, {"units": 400}, {"clip_norm": 2.0}):
        solved = plan(40, noise_multiplier=80.0, **changes)
        lr = unit_lr(solved, momentum=0.9, deep=False)
        moved = lr / (1 - 0.9) * math.sqrt(solved.rounds) * solved.noise_multiplier * solved.request.clip_norm

        assert moved / solved.request.batch == pytest.approx(0.4)


def test_steps_have_a_longest_and_networks_with_hidden_layers_take_shorter_ones() -> None:
    solved = plan(40, noise_multiplier=1.0, units=100_000, delta=1e-6, clip_norm=2.0)

    assert unit_lr(solved, momentum=0.0, deep=False) == 25
    assert unit_lr(solved, momentum=0.5, deep=True) == pytest.approx(0.5)


def test_a_step_that_follows_from_the_plan_is_for_records() -> None:
    with pytest.raises(SottovoceError, match="set a number"):
        parse({"server": {"lr": "auto"}})


def test_what_a_record_adds_depends_on_no_other_record() -> None:
    """Exact: with and without a record of any label the sums differ by what the record gives alone, rounded finely."""
    whole, scale = records(), np.float32(0.1)
    whole = Shard(whole.x * scale, whole.y)  # below the clip norm, where weights and roundings would show
    for place in (0, 17, 59):
        rest = Shard(np.delete(whole.x, place, axis=0), np.delete(whole.y, place))
        alone = Shard(whole.x[place : place + 1], whole.y[place : place + 1])
        moved = totals("fl-std", [whole]) - totals("fl-std", [rest])

        assert (moved == totals("fl-std", [alone])).all()
        assert np.count_nonzero(moved % 16), "finer than the grid of the noise"


@pytest.mark.parametrize("number", [1437, 14_370, [288, 288, 287, 287, 286]])
def test_declared_units_are_compared_with_the_records_of_a_simulation(number: Any, tmp_path: Path) -> None:
    """A number ten times too large would shrink every step, and with delta pass for a smaller one."""
    held = gather(experiment()).units

    play(experiment(privacy__units=held, experiment__rounds=1), tmp_path / "right")
    with pytest.raises(InputError, match=rf"\[privacy\] units (is {number}, but|says that).* hold.* \d+ records.*;"):
        play(experiment(privacy__units=number), tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()
