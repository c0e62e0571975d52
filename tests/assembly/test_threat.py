"""Attacks as runs: who holds what, what is measured, and the papers' pattern at small scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.small import small

from sottovoce.assembly.overrides import Given
from sottovoce.assembly.parts import gather
from sottovoce.assembly.threat import ATTACKED, is_lost
from sottovoce.checks.twin import Hosted, play
from sottovoce.config.experiment import parse
from sottovoce.core.errors import ConfigError, InputError, RunError
from sottovoce.data import Dataset
from sottovoce.runs.loop import run
from sottovoce.search.sweep import layout

TABLES: dict[str, dict[str, Any]] = {
    "experiment": {"name": "attacked", "rounds": 30, "evaluate_every": 5},
    "data": {"source": "digits", "clients": 60},
    "model": {"name": "mlp"},
    "client": {"local_steps": 5, "client_lr": 0.215},
    "cohort": {"sample_rate": "1/2"},
    "scheme": {"name": "fl-std"},
}


def attacked(**tables: dict[str, Any]) -> Any:
    return parse({**TABLES, **{name: {**TABLES.get(name, {}), **table} for name, table in tables.items()}})


def sign(**keys: Any) -> dict[str, Any]:
    return {"name": "fl-sign", "server_lr": 0.005, **keys}


# Who holds what.


def test_an_out_backdoor_takes_the_class_from_honest_clients_and_from_the_scored_test_records() -> None:
    parts = gather(attacked(threat={"attack": "out-backdoor", "source": 3, "target": 8}))
    labels = parts.dataset.y_train
    threat = parts.threat
    assert threat is not None
    assert threat.hoard is not None
    assert threat.labels is not None

    honest = np.concatenate([parts.partition.records(client) for client in range(60)])
    malicious = np.concatenate([threat.hoard.records(client) for client in range(60)])
    assert 3 not in labels[honest]
    assert len(malicious) == parts.dataset.records
    assert set(threat.labels[labels == 3]) == {8}
    assert np.array_equal(threat.labels[labels != 3], labels[labels != 3])
    assert 3 not in parts.dataset.y_test
    assert set(parts.splits[ATTACKED].y_train) == {3}
    assert parts.mean_size == pytest.approx(len(honest) / 60)


def test_an_in_backdoor_changes_nobodys_records_but_the_labels_of_malicious_clients() -> None:
    honest = gather(attacked())
    parts = gather(attacked(threat={"attack": "in-backdoor"}))
    threat = parts.threat
    assert threat is not None
    assert threat.labels is not None

    assert (threat.source, threat.target) == (5, 7)
    assert np.array_equal(parts.dataset.y_test, honest.dataset.y_test)
    assert all(np.array_equal(parts.partition.records(k), honest.partition.records(k)) for k in range(60))
    changed = threat.labels != parts.dataset.y_train
    assert np.array_equal(changed, parts.dataset.y_train == 5)


def test_the_tail_of_an_edge_case_is_what_lies_furthest_from_its_class_and_only_malicious_clients_have_it() -> None:
    parts = gather(attacked(threat={"attack": "edge-case-backdoor", "edge": 0.1}))
    threat = parts.threat
    assert threat is not None
    assert threat.hoard is not None
    assert threat.labels is not None
    struck = np.flatnonzero(threat.labels != parts.dataset.y_train)
    zeros = np.flatnonzero(parts.dataset.y_train == 0)
    x = parts.dataset.x_train.reshape(len(parts.dataset.x_train), -1).astype(float)
    distance = np.linalg.norm(x - x[zeros].mean(0), axis=1)

    assert len(struck) == round(0.1 * len(zeros))
    assert distance[struck].min() >= np.delete(distance[zeros], np.searchsorted(zeros, struck)).max()
    assert set(struck) <= set(threat.hoard.records(0)) & set(threat.hoard.records(59))
    assert not set(struck) & set(np.concatenate([parts.partition.records(client) for client in range(60)]))


def test_cifar_without_airplanes_has_no_birds_and_trucks_either() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (200, 32, 32, 3), np.uint8), np.arange(200, dtype=np.uint8) % 10
    cifar = Dataset("cifar10", x, y, x, y, classes=10, input_scale=1 / 255)
    experiment = attacked(data={"clients": 5}, threat={"attack": "out-backdoor"})

    parts = gather(experiment, Given(dataset=cifar))

    assert parts.threat is not None
    assert (parts.threat.source, parts.threat.target) == (0, 8)
    assert set(parts.dataset.y_train) == {0, 1, 3, 4, 5, 6, 7, 8}
    assert set(parts.dataset.y_test) == {1, 3, 4, 5, 6, 7, 8}


def test_a_fraction_of_zero_deals_the_records_as_under_attack_and_attacks_nobody(tmp_path: Path) -> None:
    summary = run(attacked(threat={"attack": "out-backdoor", "fraction": 0}), tmp_path / "run")

    assert summary["attack_fraction"] == 0
    assert summary["attack_success_final"] < 0.5
    assert summary["accuracy_final"] > 0.85


# The engines agree.


@pytest.mark.parametrize("attack", ["random-update", "gradient-ascent", "in-backdoor", "little-is-enough"])
def test_a_host_gives_what_clients_one_by_one_give(attack: str) -> None:
    from contextlib import contextmanager

    from sottovoce.checks.twin import Hand
    from sottovoce.federation.wrappers.malicious import Malicious

    experiment = small(scheme={"name": "fl-top", "ratio": 0.5}, threat={"attack": attack, "fraction": 0.3})
    models = []
    for kind in (Hand, Hosted):

        @contextmanager
        def engine(parts: Any, kind: Any = kind) -> Any:
            assert parts.threat is not None
            inner = kind(parts)
            wrapped: Any = Malicious(inner, parts.threat.choice, parts.seeds.world)
            for name in ("gradient", "scores"):
                setattr(wrapped, name, getattr(inner, name))
            yield wrapped

        models.append(play(experiment, rounds=2, engine=engine).models[-1])
    honest = play(small(scheme={"name": "fl-top", "ratio": 0.5}), rounds=2).models[-1]
    assert np.array_equal(models[0], models[1])
    assert not np.array_equal(models[0], honest)


def test_an_attacked_run_does_not_depend_on_the_number_of_workers_and_resumes_to_the_same_model(tmp_path: Path) -> None:
    def experiment(workers: int) -> Any:
        return small(threat={"attack": "gradient-ascent", "fraction": 0.2}, engine={"workers": workers})

    def interrupt(record: Any) -> None:
        if record["round"] == 5:
            raise KeyboardInterrupt

    run(experiment(1), tmp_path / "one")
    run(experiment(3), tmp_path / "three")
    with pytest.raises(KeyboardInterrupt):
        run(experiment(1), tmp_path / "cut", observe=interrupt)
    run(experiment(1), tmp_path / "cut", resume=True)

    models = [(tmp_path / name / "model.npz").read_bytes() for name in ("one", "three", "cut")]
    assert models[0] == models[1] == models[2]


# The papers' pattern.


@pytest.mark.parametrize("attack", ["random-update", "gradient-ascent"])
def test_with_a_fifth_of_malicious_clients_std_does_not_learn_and_sign_does(attack: str, tmp_path: Path) -> None:
    threat = {"attack": attack, "fraction": 0.2}
    model = {"name": "logistic"}  # of a bigger network FL-STD learns something even from the noise of twelve clients
    std = run(attacked(threat=threat, model=model), tmp_path / "std")
    voted = run(attacked(threat=threat, model=model, scheme=sign(server_lr=0.02)), tmp_path / "sign")

    assert std["accuracy_best"] < 0.3
    assert voted["accuracy_final"] > 0.85
    assert not voted["diverged"]


def test_an_out_backdoor_succeeds_less_against_sign_than_against_std(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "threat": {"attack": "out-backdoor", "fraction": 0.1},
        "data": {"clients": 10},
        "client": {"local_steps": 30},
        "cohort": {"sample_rate": 1, "sampling": "fixed"},
    }
    std = run(attacked(**keys), tmp_path / "std")
    voted = run(attacked(**keys, scheme=sign()), tmp_path / "sign")

    assert std["accuracy_final"] > 0.85
    assert voted["accuracy_final"] > 0.85
    assert voted["attack_success_final"] < std["attack_success_final"] - 0.2


PRIVATE: dict[str, Any] = {
    "data": {"clients": 200},
    "privacy": {"epsilon": 8.0, "delta": 1e-3},
    "scheme": sign(),
    "experiment": {"rounds": 20},
}


def test_two_percent_without_noise_and_boosted_bring_the_backdoor_into_private_sign(tmp_path: Path) -> None:
    threat = {"attack": "out-backdoor", "fraction": 0.02}
    private = run(attacked(threat=threat, **PRIVATE), tmp_path / "private")
    voted = run(attacked(threat=threat, **{k: v for k, v in PRIVATE.items() if k != "privacy"}), tmp_path / "open")

    assert private["attack_success_final"] > 0.9
    assert voted["attack_success_final"] < 0.3


def test_one_client_with_a_quarter_of_the_modulus_owns_a_round_and_the_guard_refuses_it(tmp_path: Path) -> None:
    threat = {"attack": "quarter-modulus", "fraction": 0.001}
    owned = run(attacked(threat=threat, **PRIVATE), tmp_path / "owned")
    guarded = run(attacked(threat=threat, **PRIVATE, server={"guard": "energy"}), tmp_path / "guarded")

    assert owned["accuracy_best"] < 0.3
    assert guarded["rejected_rounds"] == 20
    assert guarded["epsilon"] == owned["epsilon"]  # what was released is paid for
    untouched = gather(attacked(threat=threat, **PRIVATE)).start
    kept = np.concatenate([array.ravel() for array in np.load(tmp_path / "guarded" / "model.npz").values()])
    assert np.array_equal(kept, untouched)


def test_the_guard_changes_no_bit_where_nobody_attacks(tmp_path: Path) -> None:
    plain = {**PRIVATE, "experiment": {"rounds": 6}}
    run(attacked(**plain), tmp_path / "plain")
    summary = run(attacked(**plain, server={"guard": "energy"}), tmp_path / "guarded")

    assert summary["rejected_rounds"] == 0
    assert (tmp_path / "plain/model.npz").read_bytes() == (tmp_path / "guarded/model.npz").read_bytes()


def test_sign_inversion_and_ascent_are_the_same_ballots_if_clients_take_one_step(tmp_path: Path) -> None:
    models = []
    for attack in ("sign-inversion", "gradient-ascent"):
        threat = {"attack": attack, "fraction": 0.3, "collude": False}
        experiment = attacked(
            threat=threat, client={"local_steps": 1}, scheme=sign(), experiment={"rounds": 4, "evaluate_every": 4}
        )
        run(experiment, tmp_path / attack)
        models.append((tmp_path / attack / "model.npz").read_bytes())

    assert models[0] == models[1]


# What is measured.


def test_metrics_of_a_backdoor_are_shares_of_the_attacked_records() -> None:
    threat = gather(attacked(threat={"attack": "in-backdoor", "source": 1, "target": 2})).threat
    assert threat is not None
    guesses, labels = np.array([1, 2, 2, 0, -1]), np.array([1, 1, 1, 1, 2])

    told = threat.metrics(guesses, labels, None, classes=3)

    assert told == {"accuracy_by_class": [None, 0.25, 0.0], "class_accuracy": 0.25, "attack_success": 0.5}
    apart = threat.metrics(guesses, labels, np.array([2, 2, 1, -1]), classes=3)
    assert (apart["class_accuracy"], apart["attack_success"]) == (0.25, 0.5)


def test_a_model_at_the_level_of_guessing_is_lost() -> None:
    assert is_lost({"accuracy": 0.12}, 10)
    assert is_lost({"accuracy": None}, 10)
    assert not is_lost({"accuracy": 0.15}, 10)
    assert not is_lost({"accuracy": 0.54}, 2)


def test_a_run_that_diverges_under_attack_goes_on_and_says_so(tmp_path: Path) -> None:
    experiment = attacked(threat={"attack": "gradient-ascent", "fraction": 0.2, "boost": 1e6})

    summary = run(experiment, tmp_path / "run")

    assert summary["diverged"]
    assert summary["rounds"] == 30
    with pytest.raises(RunError, match="lower client_lr"):  # without an attack it is the user's mistake
        run(attacked(client={"client_lr": 1e30}), tmp_path / "own fault")


def test_a_lost_run_can_give_up(tmp_path: Path) -> None:
    threat = {"attack": "gradient-ascent", "fraction": 0.2, "boost": 1e6, "give_up": 2}

    summary = run(attacked(threat=threat), tmp_path / "run")

    assert summary["rounds"] == 10
    assert summary["stopped_early"]


# Whose records are pooled, and when.


def model(folder: Path, played: int, **threat: Any) -> bytes:
    """Return the model of a short run; equal models are equal bytes."""
    tables = {"threat": threat} if threat else {}
    run(attacked(experiment={"rounds": played, "evaluate_every": played}, **tables), folder)
    return (folder / "model.npz").read_bytes()


def test_pooling_all_takes_the_records_of_every_malicious_client_of_the_population(tmp_path: Path) -> None:
    threat = {"attack": "in-backdoor", "fraction": 0.2, "boost": 1.0}
    parts = gather(attacked(threat={**threat, "pool": "all"}))
    assert parts.threat is not None

    pool = parts.threat.pool(parts.seeds.world)

    assert len(pool) == 12 and list(pool) == sorted(set(pool))
    assert gather(attacked(threat=threat)).threat.pool(parts.seeds.world) == ()  # type: ignore[union-attr]
    assert model(tmp_path / "all", 1, **threat, pool="all") != model(tmp_path / "round", 1, **threat)


def test_a_pool_of_the_same_clients_gives_the_same_model(tmp_path: Path) -> None:
    """All clients are asked: the malicious ones of the round are those of the population."""
    everyone = {"cohort": {"sample_rate": 1}, "experiment": {"rounds": 2, "evaluate_every": 2}}
    for pool in ("round", "all"):
        threat = {"attack": "in-backdoor", "fraction": 0.2, "of": "population", "pool": pool}
        run(attacked(threat=threat, **everyone), tmp_path / pool)

    assert (tmp_path / "round" / "model.npz").read_bytes() == (tmp_path / "all" / "model.npz").read_bytes()


def test_outside_the_attacked_rounds_everyone_is_honest(tmp_path: Path) -> None:
    threat = {"attack": "gradient-ascent", "fraction": 0.2, "rounds": [[2, 2], [4, 9]]}
    parts = gather(attacked(threat=threat))
    assert parts.threat is not None

    struck = [r for r in range(1, 12) if parts.threat.choice.among(r, list(range(30)), parts.seeds.world)]

    assert struck == [2, 4, 5, 6, 7, 8, 9]
    assert model(tmp_path / "one", 1, **threat) == model(tmp_path / "honest", 1)
    assert model(tmp_path / "two", 2, **threat) != model(tmp_path / "both", 2)


def test_free_riders_move_nothing(tmp_path: Path) -> None:
    threat = {"attack": "free-rider", "fraction": 0.9999, "boost": 1.0}
    run(attacked(threat=threat, experiment={"rounds": 1, "evaluate_every": 1}), tmp_path / "run")
    start = gather(attacked()).start

    with np.load(tmp_path / "run" / "model.npz") as arrays:
        moved = np.concatenate([arrays[name].ravel() for name in arrays.files]) - start

    assert np.abs(moved).max() == 0


# Bad input.


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"threat": {"attack": "in-backdoor", "fraction": 1}}, r"\[threat\] fraction must be in \[0, 1\), got 1"),
        ({"threat": {"attack": "in-backdoor", "fraction": -0.1}}, r"\[threat\] fraction must be in \[0, 1\)"),
        ({"threat": {"attack": "in-backdor"}}, 'did you mean "in-backdoor"'),
        ({"threat": {"attack": "in-backdoor", "source": 3, "target": 3}}, "must be two classes, got 3 for both"),
        ({"threat": {"attack": "random-update", "source": 3}}, "aims at no class"),
        ({"threat": {"attack": "random-update", "collude": True}}, "remove .threat. collude"),
        ({"threat": {"attack": "quarter-modulus"}}, "hides its words under a secure sum"),
        ({"threat": {"attack": "energy-aware"}}, "this run is not private"),
        ({"threat": {"attack": "in-backdoor", "boost": 7.0}, "scheme": sign()}, "cannot be said in the one bit"),
        ({"threat": {"fraction": 0.1}}, "attack"),
        ({"threat": {"attack": "in-backdoor", "rounds": [[5, 3]]}}, r"1 <= first <= last, got \[5, 3\]"),
        ({"threat": {"attack": "in-backdoor", "rounds": [[0, 3]]}}, r"1 <= first <= last, got \[0, 3\]"),
        ({"threat": {"attack": "in-backdoor", "rounds": []}}, "nobody ever attacks"),
        ({"threat": {"attack": "in-backdoor", "rounds": [[5]]}}, "rounds"),
        ({"threat": {"attack": "free-rider", "pool": "all"}}, "pools no records"),
        ({"server": {"guard": "energy"}}, "not private; add .privacy."),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(tables: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        attacked(**tables)


@pytest.mark.parametrize(
    ("threat", "words"),
    [
        ({"attack": "in-backdoor", "source": 10}, "source = 10 is no class of digits; its classes are 0 to 9"),
        ({"attack": "in-backdoor", "target": "ship"}, 'target = "ship" is no class of digits'),
        ({"attack": "in-backdoor", "source": 7}, "source and target must be two classes, got 7 for both"),
        ({"attack": "out-backdoor", "remove": [0]}, "among the classes that are removed"),
    ],
)
def test_a_class_that_does_not_exist_is_refused(threat: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        gather(attacked(threat=threat))


def test_a_partition_that_would_leave_an_honest_client_empty_is_refused() -> None:
    experiment = attacked(
        threat={"attack": "out-backdoor"}, data={"partition": "shards", "shards_per_client": 1, "clients": 60}
    )

    with pytest.raises(InputError, match="no record but those that only malicious clients may have"):
        gather(experiment)


def test_a_sweep_over_attacks_and_schemes_leaves_out_what_a_point_does_not_have() -> None:
    experiment = attacked(
        threat={"attack": "in-backdoor", "source": 3, "target": 8, "boost": 2.0},
        sweep={"scheme": {"name": ["fl-std", "fl-sign"]}, "threat": {"attack": ["random-update", "in-backdoor"]}},
    )

    points = {(p.scheme.name, p.threat.attack): p.threat for p in layout(experiment) if p.threat is not None}

    assert len(points) == 4
    assert points["fl-std", "random-update"].source is None
    assert points["fl-std", "in-backdoor"].source == 3
    assert points["fl-std", "in-backdoor"].boost == 2.0
    assert points["fl-sign", "in-backdoor"].boost is None
