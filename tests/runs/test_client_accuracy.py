"""Accuracy client by client, on records that clients keep out of their training, and of personal models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.overrides import Given
from sottovoce.assembly.parts import gather
from sottovoce.checks.twin import Hosted
from sottovoce.cli import main
from sottovoce.config.experiment import Experiment, to_toml
from sottovoce.core.errors import ConfigError
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.data import Dataset, balance
from sottovoce.federation.engines.worker import Worker
from sottovoce.federation.stages.local_evaluation import split_places
from sottovoce.runs import evaluation as measuring
from sottovoce.runs.folder import read_operator, read_rounds, read_summary
from sottovoce.runs.loop import run
from sottovoce.runs.records import OPERATOR_ONLY
from tests.runs.small import small

ONE = {"workers": 1}
TRAINING = {"local_steps": 10, "client_lr": 0.5}
PRIVACY = {"noise_multiplier": 2.0, "delta": 1e-2, "clip_norm": 0.5, "accountant": "rdp"}
VOTE = {"scheme": {"name": "fl-top", "ratio": 0.1}, "privacy": {**PRIVACY, "vote_noise_multiplier": 3.0}}
KINDS = ("mean", "worst_tenth", "worst")


def judged(held_out: float = 0.25, steps: int = 3, **tables: dict[str, Any]) -> Experiment:
    client = {**TRAINING, "held_out": held_out, "personal_steps": steps}
    return small(**{"engine": ONE, **tables, "client": {**client, **tables.get("client", {})}})


def told(record: dict[str, Any]) -> dict[str, Any]:
    """Return what a record tells of single clients."""
    return {key: value for key, value in record.items() if key.startswith(("client_accuracy", "personal"))}


def test_nothing_kept_out_changes_no_bit_and_no_key(tmp_path: Path) -> None:
    ours = run(small(engine=ONE, client=TRAINING), tmp_path / "without")
    same = run(judged(0.0, 0), tmp_path / "zero")

    assert (tmp_path / "zero" / "model.npz").read_bytes() == (tmp_path / "without" / "model.npz").read_bytes()
    assert same.keys() == ours.keys()
    assert not told(same)


@pytest.mark.parametrize("tables", [{}, {"client": {"balanced": True}}, {"data": {"partition": "virtual"}}], ids=str)
def test_with_nothing_kept_out_a_client_has_the_records_it_had(tables: dict[str, Any]) -> None:
    parts = gather(small(**tables))
    worker, seeds = Worker(parts.blueprint(), parts.arrays()), Seeds(parts.seeds.seed)

    for client in range(20):
        places = parts.partition.records(client)
        if tables.get("client"):
            places = places[balance(parts.dataset.y_train[places], seeds.client(client).get(Purpose.SETUP))]
        assert np.array_equal(worker._shard(client).x, parts.dataset.x_train[places])
        assert np.array_equal(worker._shard(client).y, parts.dataset.y_train[places])


def spoilt(experiment: Experiment) -> tuple[Dataset, Dataset]:
    """Return the data, and the data with a wrong label on every record that a client keeps out."""
    parts = gather(experiment)
    aside = []
    for client in range(parts.partition.clients):
        places = parts.partition.records(client)
        rng = Seeds(parts.seeds.seed).client(client).get(Purpose.SPLIT)
        aside.extend(places[split_places(len(places), experiment.client.held_out, rng)[1]])
    labels = parts.dataset.y_train.copy()
    labels[aside] = (labels[aside] + 1) % 10
    return parts.dataset, replace(parts.dataset, y_train=labels)


def test_records_that_are_kept_out_are_never_trained_on(tmp_path: Path) -> None:
    experiment = judged()
    honest, wrong = spoilt(experiment)

    ours = run(experiment, tmp_path / "honest", given=Given(dataset=honest))
    theirs = run(experiment, tmp_path / "wrong", given=Given(dataset=wrong))

    assert (tmp_path / "honest" / "model.npz").read_bytes() == (tmp_path / "wrong" / "model.npz").read_bytes()
    assert ours["client_accuracy_mean"] > 0.5 > theirs["client_accuracy_mean"]
    assert ours["personal_accuracy_mean"] > 0.5 > theirs["personal_accuracy_mean"], "nor by personal models"


@pytest.mark.parametrize("client", [{}, {"balanced": True}], ids=str)
def test_clients_count_by_the_records_that_they_train_with(client: dict[str, Any]) -> None:
    parts = gather(judged(data={"partition": "dirichlet"}, client=client))
    worker = Worker(parts.blueprint(), parts.arrays())
    trained = [len(worker._shard(number).y) for number in range(20)]
    owned = [parts.partition.size(number) for number in range(20)]

    assert len(set(trained)) > 3
    assert parts.blueprint().mean_size == pytest.approx(np.mean(trained))
    assert all(0 < ours < size for ours, size in zip(trained, owned, strict=True))


def test_a_client_keeps_the_same_records_out_on_every_worker_and_the_two_parts_are_all_it_has() -> None:
    parts = gather(judged())
    one, other = (Worker(parts.blueprint(), parts.arrays()) for _ in range(2))

    for client in range(20):
        halves = one._records(client), one._records(client, held_out=True)
        again = other._records(client), other._records(client, held_out=True)
        assert all(np.array_equal(mine.x, theirs.x) for mine, theirs in zip(halves, again, strict=True))
        both = np.concatenate([half.x for half in halves])
        whole = parts.dataset.x_train[parts.partition.records(client)]
        assert sorted(map(bytes, both)) == sorted(map(bytes, whole))


@pytest.mark.parametrize("name", ["fl-std", "fl-rnd"])
def test_the_number_of_workers_changes_no_accuracy(tmp_path: Path, name: str) -> None:
    scheme = {"name": name}
    one = run(judged(scheme=scheme), tmp_path / "one")
    three = run(judged(scheme=scheme, engine={"workers": 3}), tmp_path / "three")

    assert told(one) == told(three)
    assert set(told(one)) == {
        *(f"{who}_accuracy_{kind}" for who in ("client", "personal") for kind in KINDS),
        "client_accuracy_clients",
    }
    assert one["client_accuracy_clients"] == 20
    assert 0 <= one["client_accuracy_worst"] <= one["client_accuracy_worst_tenth"] <= one["client_accuracy_mean"] <= 1
    assert read_summary(tmp_path / "one") == one


def test_without_personal_steps_nobody_trains_further(tmp_path: Path) -> None:
    summary = run(judged(steps=0), tmp_path / "run")

    assert not [key for key in summary if key.startswith("personal")]
    assert summary["client_accuracy_mean"] > 0


def test_personal_models_beat_the_common_one_where_clients_differ(tmp_path: Path) -> None:
    unlike = {"partition": "dirichlet", "concentration": 0.1}
    summary = run(judged(steps=30, data=unlike, experiment={"rounds": 12}), tmp_path / "run")

    assert summary["client_accuracy_mean"] > 0.5, "the common model is no straw man"
    assert summary["personal_accuracy_mean"] > summary["client_accuracy_mean"] + 0.05


@pytest.mark.parametrize("tables", [{}, {"privacy": PRIVACY}, VOTE], ids=["plain", "private", "vote"])
def test_a_resumed_run_measures_the_same_and_tells_it_once(tmp_path: Path, tables: dict[str, Any]) -> None:
    experiment = judged(**tables)
    whole = run(experiment, tmp_path / "run")
    before = read_operator(tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()  # killed after the operator was told, before the summary

    again = run(experiment, tmp_path / "run", resume=True)

    assert told(again) == told(whole)
    assert read_operator(tmp_path / "run") == before
    assert [record["round"] for record in read_rounds(tmp_path / "run")] == [1, 2, 3, 4, 5, 6]


def test_a_run_that_is_killed_in_a_round_measures_what_a_whole_one_does(tmp_path: Path) -> None:
    experiment = judged()
    whole = run(experiment, tmp_path / "whole")

    def kill(record: dict[str, Any]) -> None:
        if record["round"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "cut", observe=kill)
    resumed = run(experiment, tmp_path / "cut", resume=True)

    assert told(resumed) == told(whole)
    assert (tmp_path / "cut" / "model.npz").read_bytes() == (tmp_path / "whole" / "model.npz").read_bytes()


@pytest.mark.parametrize("tables", [{"privacy": PRIVACY}, VOTE], ids=["private", "vote"])
def test_a_private_run_tells_the_accuracy_of_clients_to_its_operator_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tables: dict[str, Any]
) -> None:
    folder, seen = tmp_path / "run", []

    class Listener:
        def on_end(self, summary: dict[str, Any]) -> None:
            seen.append(summary)

    summary = run(judged(**tables), folder, callbacks=[Listener()])
    assert main(["report", str(folder), "--json"]) == 0
    (reported,) = json.loads(capsys.readouterr().out)["runs"]

    *rounds, end = read_operator(folder)
    assert end["round"] is None
    assert {f"{who}_accuracy_{kind}" for who in ("client", "personal") for kind in KINDS} < set(end)
    assert set(end) <= {"round", *OPERATOR_ONLY}, "so that loggers drop it too"
    assert [record["round"] for record in rounds if record["round"]] == [1, 2, 3, 4, 5, 6]
    for public in (summary, read_summary(folder), reported, *seen, *read_rounds(folder)):
        assert public is not None
        assert set(told(public)) <= {"client_accuracy_note"}
    assert "not published" in summary["client_accuracy_note"]
    assert len(seen) == 1


def test_what_a_private_run_publishes_does_not_depend_on_what_clients_keep_out(tmp_path: Path) -> None:
    experiment = judged(privacy=PRIVACY)
    honest, wrong = spoilt(experiment)

    ours = run(experiment, tmp_path / "honest", given=Given(dataset=honest))
    theirs = run(experiment, tmp_path / "wrong", given=Given(dataset=wrong))

    assert ours == theirs
    assert read_operator(tmp_path / "honest")[-1] != read_operator(tmp_path / "wrong")[-1]


@pytest.mark.parametrize("private", [False, True])
def test_the_printed_table_says_what_was_measured_or_why_it_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], private: bool
) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(to_toml(judged(**({"privacy": PRIVACY} if private else {})).tables()), encoding="utf-8")

    assert main(["run", str(file), "--out", str(tmp_path / "run"), "--quiet"]) == 0

    printed = capsys.readouterr().out
    assert ("worst tenth" in printed) == (not private)
    assert ("not published" in printed) == private


def test_of_very_many_clients_some_are_drawn_and_the_summary_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "MEASURED_CLIENTS", 7)
    summary = run(judged(), tmp_path / "run")
    parts = gather(judged(data={"partition": "virtual", "clients": 10**9}))

    assert summary["client_accuracy_clients"] == 7
    assert summary["client_accuracy_note"] == "measured on 7 of 20 clients, drawn at random"
    drawn = measuring._measured(parts)
    assert len(set(drawn)) == 7
    assert max(drawn) > 10**6
    assert drawn == measuring._measured(parts)
    found = measuring.client_accuracy(parts, Hosted(parts), parts.start)
    assert found["client_accuracy_clients"] == 7


def test_clients_with_a_single_record_are_not_measured_and_still_train(tmp_path: Path) -> None:
    summary = run(judged(data={"records_per_client": 1}), tmp_path / "run")

    assert summary["client_accuracy_clients"] == 0
    assert summary["client_accuracy_mean"] is summary["personal_accuracy_worst"] is None


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5])
def test_a_share_that_leaves_nothing_to_train_with_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match=r"\[client\] held_out must be .*, got"):
        judged(share)


def test_personal_steps_need_records_to_be_judged_on() -> None:
    with pytest.raises(ConfigError, match=r"\[client\] personal_steps .* \[client\] held_out is 0; set it"):
        judged(0.0, 5)
