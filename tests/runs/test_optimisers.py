"""Optimisers as a user has them: keys in a file, runs, resumed runs, private runs, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.config.experiment import parse, to_toml
from sottovoce.config.tables import ClientTable, ServerTable
from sottovoce.core.errors import ConfigError, InputError
from sottovoce.federation.optimise import DEFAULT_LR, DEFAULTS, ServerStep
from sottovoce.runs.folder import read_rounds
from sottovoce.runs.loop import run
from tests.runs.small import small

RULES = ("adam", "yogi", "adagrad")
PRIVACY = {"epsilon": 8.0, "delta": 1e-2, "clip_norm": 0.5}
SKEWED = {
    "experiment": {"rounds": 40, "evaluate_every": 40},
    "data": {"partition": "dirichlet", "concentration": 0.1},
    "client": {"local_steps": 10, "client_lr": 0.3},
    "engine": {"workers": 1},
}


def model(path: Path) -> dict[str, Any]:
    with np.load(path / "model.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


def same_model(one: Path, other: Path) -> bool:
    first, second = model(one), model(other)
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("rule", RULES)
def test_an_optimizer_runs_with_its_name_alone_and_its_config_is_complete(rule: Any) -> None:
    experiment = parse({"server": {"optimizer": rule}})

    table = experiment.tables()["server"]
    assert {key: table[key] for key in ("beta1", "beta2", "tau") if key in table} == DEFAULTS[rule]
    assert table["lr"] == DEFAULT_LR[rule]
    assert parse(experiment.tables()).identity() == experiment.identity()
    assert ServerStep(optimizer=rule).adaptive == ServerStep(**experiment.server.step_keys).adaptive
    assert f'optimizer = "{rule}"' in to_toml(experiment.tables())


def test_a_value_that_is_given_is_taken() -> None:
    table = parse({"server": {"optimizer": "yogi", "lr": 0.5, "beta1": 0.0, "tau": 0.1}}).server

    assert (table.lr, table.beta1, table.beta2, table.tau) == (0.5, 0.0, 0.99, 0.1)


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"server": {"optimizer": "adma"}}, r'\[server\] optimizer must be .* got "adma"; did you mean "adam"\?'),
        ({"server": {"optimizer": "adagard"}}, 'did you mean "adagrad"'),
        ({"server": {"optimizer": "adam", "beta1": 1.0}}, r"\[server\] beta1 must be in \[0, 1\), got 1"),
        ({"server": {"optimizer": "adam", "beta2": -0.1}}, r"\[server\] beta2 must be in \[0, 1\), got -0.1"),
        ({"server": {"optimizer": "adam", "tau": 0.0}}, r"\[server\] tau must be above 0, got 0"),
        ({"server": {"optimizer": "adam", "tau": float("inf")}}, r"\[server\] tau must be finite"),
        ({"server": {"beta1": 0.0}}, r'\[server\] optimizer = "sgd" does nothing with beta1; remove it'),
        ({"server": {"tau": 1e-3}}, '"sgd" does nothing with tau; remove it .this optimizer has momentum'),
        ({"server": {"optimizer": "adagrad", "beta2": 0.9}}, '"adagrad" does nothing with beta2'),
        ({"server": {"optimizer": "adam", "momentum": 0.9}}, '"adam" does nothing with momentum; .* beta1, beta2, tau'),
        (
            {"server": {"optimizer": "adam"}, "scheme": {"name": "fl-sign"}},
            "sends signs, .* one size, server_lr",
        ),
        (
            {"server": {"optimizer": "adam"}, "scheme": {"name": "sign-sgd"}, "cohort": {"sample_rate": 1}},
            "sign-sgd sends signs",
        ),
        ({"client": {"prox": -1.0}}, r"\[client\] prox must be at least 0, got -1"),
        ({"client": {"prox": float("nan")}}, r"\[client\] prox must be"),
        ({"client": {"prox": float("inf")}}, r"\[client\] prox must be finite"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(tables: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        parse(tables)

    assert "\n" not in str(caught.value)


def test_a_pull_that_would_overshoot_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"prox \* client_lr must be below 2, .* got 30 \* 0.1; lower one"):
        run(small(client={"prox": 30.0}), tmp_path / "run")

    assert not list(tmp_path.iterdir())


def test_every_new_key_says_what_it_is() -> None:
    for table, keys in ((ServerTable, ("optimizer", "lr", "beta1", "beta2", "tau")), (ClientTable, ("prox",))):
        assert all(table.model_fields[key].description for key in keys)


@pytest.mark.parametrize(
    "tables",
    [
        {"server": {"optimizer": "adam"}},
        {"server": {"optimizer": "yogi", "average": 0.9, "schedule": "cosine"}, "scheme": {"name": "fl-rnd"}},
        {"server": {"optimizer": "adagrad"}, "privacy": PRIVACY, "client": {"prox": 0.5}},
    ],
    ids=["adam", "yogi", "private"],
)
def test_a_run_that_is_interrupted_and_resumed_ends_like_an_undisturbed_one(
    tmp_path: Path, tables: dict[str, Any]
) -> None:
    experiment = small(**tables, engine={"workers": 1})
    run(experiment, tmp_path / "whole")

    class StopError(Exception):
        pass

    def stop(record: dict[str, Any]) -> None:
        if record["round"] == 5:
            raise StopError

    with pytest.raises(StopError):
        run(experiment, tmp_path / "cut", observe=stop)
    run(experiment, tmp_path / "cut", resume=True)

    assert same_model(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("scheme", ["fl-std", "fl-rnd", "fl-cs"])
def test_an_adaptive_server_costs_no_privacy(tmp_path: Path, scheme: str) -> None:
    keys = {"name": scheme, **({"chunks": 5} if scheme == "fl-cs" else {})}
    tables = {"privacy": PRIVACY, "scheme": keys, "engine": {"workers": 1}}
    plain = run(small(**tables), tmp_path / "sgd")
    adaptive = run(small(**tables, server={"optimizer": "adam"}), tmp_path / "adam")

    assert adaptive["private"]
    for key in ("epsilon", "epsilon_server", "noise_multiplier", "bytes_up_total", "bits_per_coordinate"):
        assert adaptive[key] == plain[key]
    assert [each["epsilon"] for each in read_rounds(tmp_path / "adam")] == [
        each["epsilon"] for each in read_rounds(tmp_path / "sgd")
    ]
    assert not same_model(tmp_path / "sgd", tmp_path / "adam")


def test_clients_with_few_classes_learn_with_an_adaptive_server_and_with_prox(tmp_path: Path) -> None:
    """Not a benchmark: the twenty clients have four of ten classes on average; guessing is right once in ten."""
    runs = {name: {"optimizer": name} for name in RULES}
    for name, server in runs.items():
        assert run(small(**SKEWED, server=server), tmp_path / name)["accuracy_final"] > 0.7
    held = {**SKEWED, "client": {**SKEWED["client"], "prox": 0.5}}
    assert run(small(**held), tmp_path / "prox")["accuracy_final"] > 0.7


@pytest.mark.parametrize("scheme", ["fl-rnd", "fl-basic", "fl-bas-2"])
def test_momentum_over_other_coordinates_in_every_round_is_refused(scheme: str) -> None:
    with pytest.raises(ConfigError, match=r"momentum adds up the steps .* other coordinates in every round"):
        small(scheme={"name": scheme}, server={"momentum": 0.9})
