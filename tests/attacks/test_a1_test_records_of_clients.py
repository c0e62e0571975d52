"""What is measured on the clients' own records leaves a private run through the plan, or not at all.

Accuracy and loss with sixteen digits on test records that were cut from the clients told a victim's label, while the
summary printed epsilon 1 and nothing unsafe.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.assembly.parts import gather
from sottovoce.core.errors import PrivacyError
from sottovoce.core.provenance import Owned, Public
from sottovoce.data import Dataset, load
from sottovoce.privacy.release import Boundary
from tests.api.small import blobs
from tests.runs.small import small

X, Y = blobs(60)
PRIVACY: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-3, "accountant": "rdp", "clip_norm": 1.0}
MEASURED = ("accuracy", "loss", "balanced_accuracy", "auroc", "held_out_accuracy", "held_out_loss")
KEYS: dict[str, Any] = {"rounds": 2, "sample_rate": 1, "workers": 1, "classes": [0, 1, 2]}
SCHEMA = '[label]\nclasses = ["no", "yes"]\n[columns.age]\nkind = "number"\nminimum = 0\nmaximum = 100\n'


def clients(flipped: bool = False, count: int = 12) -> list[tuple[Any, Any]]:
    """Return five records for each client; `flipped` gives client 0 other labels."""
    labels = Y.copy()
    labels[::count] = (labels[::count] + flipped) % 3
    return [(X[client::count], labels[client::count]) for client in range(count)]


def simulated(data: Any, **keys: Any) -> sv.Result:
    privacy = {**PRIVACY, **keys.pop("privacy", {})}
    return sv.simulate(data, "logistic", privacy=privacy, **{**KEYS, **keys})


def table(folder: Path, owners: int = 12, split: bool = False) -> Path:
    rng = np.random.default_rng(3)
    rows = ["age,who,part,sick"]
    for number in range(8 * owners):
        part = "test" if number % 8 == 0 else "train"
        owner = f"q{number}" if split and part == "test" else f"p{number % owners}"
        rows.append(f"{rng.integers(1, 10**6) / 10**4},{owner},{part},{'yes' if rng.random() < 0.5 else 'no'}")
    (folder / "own.csv").write_text("\n".join(rows) + "\n")
    (folder / "schema.toml").write_text(SCHEMA + '[columns.who]\nkind = "ignore"\n[columns.part]\nkind = "ignore"\n')
    return folder / "own.csv"


def experiment(source: Path, *, data: dict[str, Any] | None = None, **tables: Any) -> Any:
    keys = {"source": str(source), "label": "sick", "id": "who", "partition": "by-id", "clients": 9}
    schema = {"schema": str(source.parent / "schema.toml")}
    private = {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 1.0, **tables.pop("privacy", {})}
    return small(data={**keys, **schema, **(data or {})}, privacy=private, **tables)


def published(folder: Path) -> dict[str, Any]:
    """Return every number that was measured, as far as it stands in a file that may be published."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return {
        f"{number}.{name}": record[name] for number, record in enumerate(lines) for name in MEASURED if name in record
    }


def test_a_list_of_clients_without_test_records_tells_no_label_of_a_victim(tmp_path: Path) -> None:
    told = [simulated(clients(flipped), out=tmp_path / str(flipped)).summary for flipped in (False, True)]

    for number, flipped in enumerate((False, True)):
        assert not published(tmp_path / str(flipped))
        assert told[number]["accuracy_final"] is None
        assert told[number]["privacy"]["unsafe"] == []
        assert told[number]["test_data"].startswith("none: nothing was measured")


def test_all_records_of_the_clients_train_where_none_is_measured_on(tmp_path: Path) -> None:
    simulated(clients(), out=tmp_path / "run")
    config = (tmp_path / "run" / "config.toml").read_text()
    assert 'evaluation = "none"' in config

    parts = [(X[client::12], Y[client::12]) for client in range(12)]
    read = sv.simulate(parts, "logistic", **KEYS)
    assert "a fifth of the records" in read["test_data"]  # without privacy nothing has changed


def test_enough_clients_measure_by_themselves_through_the_plan(tmp_path: Path) -> None:
    x, y = blobs(600)
    many = [(x[client::100], y[client::100]) for client in range(100)]

    told = simulated(many, out=tmp_path / "run", rounds=2).summary

    assert told["measurements"]["most"] == 1
    assert 0 < told["measurements"]["epsilon"] <= 2 and told["epsilon"] <= 8
    assert told["measurements"]["accuracy_stddev"] <= 0.1
    assert "each client's own records, by a secure sum with noise" in told["test_data"]
    ledger = (tmp_path / "run" / "ledger.jsonl").read_text()
    assert '"round":-2' in ledger.replace(" ", "")


@pytest.mark.parametrize("how", ["owners", "arrays", "frame"])
def test_other_forms_of_owned_records_are_not_measured_on_either(tmp_path: Path, how: str) -> None:
    owners = np.arange(60) % 12
    if how == "owners":
        result = simulated((X, Y), id=owners, partition="by-id", out=tmp_path / "run")
    elif how == "arrays":
        result = simulated((X, Y), clients=12, out=tmp_path / "run")
    else:
        frame = {"age": (10 * X[:, 0]).tolist(), "sick": np.array(["no", "yes"])[Y % 2].tolist()}
        keys = {key: value for key, value in KEYS.items() if key != "classes"}
        private = {**PRIVACY}
        schema = {
            "label": {"classes": ["no", "yes"]},
            "columns": {"age": {"kind": "number", "minimum": 0, "maximum": 99}},
        }
        result = sv.simulate(
            frame, "logistic", privacy=private, label="sick", schema=schema, clients=12, out=tmp_path / "run", **keys
        )
    assert not published(tmp_path / "run")
    assert result["accuracy_final"] is None


@pytest.mark.parametrize("owners", [12, 40])
def test_a_table_of_few_or_many_owners_is_not_measured_on_unasked(tmp_path: Path, owners: int) -> None:
    summary = sv.run(experiment(table(tmp_path, owners)), tmp_path / "run").summary

    assert not published(tmp_path / "run")
    assert summary["test_data"].startswith("none: nothing was measured")
    assert summary["privacy"]["unsafe"] == []


@pytest.mark.parametrize(
    "changed",
    [
        {"experiment": {"evaluation": "server"}},
        {"data": {"held_out": 0.1}, "experiment": {"evaluation": "server"}},
        {"data": {"split": "part"}},
        {"threat": {"attack": "random-update", "fraction": 0.1}},
    ],
    ids=["server", "held out", "owners on both sides", "attack"],
)
def test_whoever_asks_for_a_measurement_on_clients_is_refused_before_anything_is_written(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    with pytest.raises(PrivacyError, match=r"are the clients' own.*unsafe_test"):
        sv.run(experiment(table(tmp_path), **changed), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_held_out_records_of_any_data_set_are_the_clients(tmp_path: Path) -> None:
    private = {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 1.0}
    with pytest.raises(PrivacyError, match="held_out are the clients' own"):
        sv.run(small(data={"held_out": 0.1}, experiment={"patience": 2}, privacy=private), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_those_who_insist_are_measured_on_and_it_is_printed(tmp_path: Path) -> None:
    told = simulated(clients(), privacy={"unsafe_test": True}, out=tmp_path / "run").summary

    assert told["privacy"]["unsafe"] == ["unsafe_test"]
    assert told["accuracy_final"] is not None
    assert "which epsilon does not cover (unsafe_test)" in told["test_data"]


def test_test_records_in_a_file_of_their_own_are_measured_on_unless_one_is_a_clients(tmp_path: Path) -> None:
    own = table(tmp_path)
    lines = own.read_text().splitlines()
    (tmp_path / "others.csv").write_text("\n".join([lines[0], "31.25,z,test,yes", "77.5,z,test,no"]) + "\n")
    (tmp_path / "victim.csv").write_text("\n".join([lines[0], "31.25,z,test,yes", lines[5]]) + "\n")

    told = sv.run(experiment(own, data={"test": str(tmp_path / "others.csv")}), tmp_path / "run").summary

    assert told["accuracy_final"] is not None
    assert told["test_data"].startswith("2 records of others.csv")
    assert "no client owns them, and epsilon does not cover them" in told["test_data"]
    (tmp_path / "link.csv").symlink_to(own)
    for name in ("victim.csv", "own.csv", "link.csv"):
        with pytest.raises(PrivacyError, match="are the clients' own"):
            sv.run(experiment(own, data={"test": str(tmp_path / name)}), tmp_path / "no")


def test_given_test_records_are_compared_with_the_clients_record_by_record(tmp_path: Path) -> None:
    fresh = (X[:7] + 1, Y[:7])
    assert simulated((X, Y), clients=12, test=fresh)["accuracy_final"] is not None

    one = (np.concatenate([X[:7] + 1, X[40:41]]), np.concatenate([Y[:7], Y[40:41]]))
    with pytest.raises(PrivacyError, match="a test record equals one of theirs"):
        simulated((X, Y), clients=12, test=one, out=tmp_path / "run")
    with pytest.raises(PrivacyError, match="a test record equals one of theirs"):
        simulated(clients(), test=one, out=tmp_path / "run")


def test_declared_public_owners_are_whole_owners(tmp_path: Path) -> None:
    parts = gather(experiment(table(tmp_path), data={"test_public": True}))

    assert isinstance(parts.dataset.test_from, Public)
    assert len(parts.dataset.y_test) == 16  # two of twelve owners, eight records each
    ids = parts.dataset.ids
    assert ids is not None and np.bincount(ids)[np.bincount(ids) > 0].tolist() == [8] * 10
    told = sv.run(experiment(table(tmp_path), data={"test_public": True}), tmp_path / "run").summary
    assert "declared public" in told["test_data"] and told["accuracy_final"] is not None


@pytest.mark.parametrize("private", [False, True])
def test_every_summary_says_on_which_records_it_measured(tmp_path: Path, private: bool) -> None:
    table = {"privacy": {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 1.0}} if private else {}
    told = sv.run(small(**table), tmp_path / "run").summary
    assert told["test_data"].startswith("the test records of digits (359)")


def test_patience_may_end_on_what_clients_measured_through_the_plan(tmp_path: Path) -> None:
    found = sv.run(
        small(
            experiment={"evaluation": "federated", "evaluate_every": 1, "patience": 1, "rounds": 30},
            client={"held_out": 0.2, "client_lr": 1e-6},
            privacy={"noise_multiplier": 4.0, "delta": 1e-3, "clip_norm": 1.0, "evaluation_noise_multiplier": 4.0},
        ),
        tmp_path / "run",
    )
    assert found["stopped_early"] and found["rounds"] < 30


def test_the_boundary_lets_nothing_of_clients_pass_but_without_privacy_or_under_the_unsafe_key() -> None:
    clients, nobody = Owned(), Public("mnist")
    private = Boundary(private=True)

    assert private.release(1, nobody, "x") == 1
    assert Boundary(private=False).release(1, clients, "x") == 1
    assert Boundary(private=True, unsafe_test=True).release(1, clients, "x") == 1
    with pytest.raises(PrivacyError, match="x are the clients' own"):
        private.release(1, clients, "x")
    assert not Boundary(private=True, unsafe_test=True).passes(clients)  # no client's accuracy, no count of records


def test_a_measurement_is_stopped_at_the_boundary_also_if_no_check_came_before() -> None:
    from dataclasses import replace

    from sottovoce.runs.evaluation import evaluate_model

    parts = gather(small(privacy={"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 1.0}))
    owned = replace(parts, dataset=replace(parts.dataset, test_from=Owned()))

    class Scores:
        def scores(self, params: object, split: str) -> Any:
            return np.zeros((len(parts.dataset.y_test), 10), np.float32)

    state = {"params": parts.start}
    assert "accuracy" in evaluate_model(parts, Scores(), state)  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="the test records are the clients' own"):
        evaluate_model(owned, Scores(), state)  # type: ignore[arg-type]


def test_a_data_set_without_test_records_holds_none_of_anybody() -> None:
    empty = load("digits").untested()
    assert isinstance(empty, Dataset) and isinstance(empty.test_from, Owned)
    assert not empty.x_test.any() and empty.y_test.tolist() == list(range(10))
