from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.played import ONE, model
from tests.runs.small import small

from sottovoce.config.experiment import Experiment, load, parse
from sottovoce.core.errors import ConfigError, InputError, PrivacyError
from sottovoce.planning.plan import plan
from sottovoce.runs.loop import run

FEW: dict[str, Any] = {
    "experiment": {"rounds": 3, "evaluate_every": 3},
    "data": {"clients": 4, "partition": "iid"},
    "cohort": {"sample_rate": 1, "sampling": "fixed"},
    "aggregation": {"weighting": "equal"},
    "engine": ONE,
}
PRIVATE = {"epsilon": 5.0, "delta": 1e-5, "clip_norm": 1.0}
FILES = Path(__file__).parents[2] / "experiments" / "privacyfl"


def few(**tables: dict[str, Any]) -> Experiment:
    return small(**{name: {**FEW.get(name, {}), **tables.get(name, {})} for name in FEW | tables})


def rounds(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "run"
    run(few(), path)
    return path


def test_switches_that_are_off_change_no_bit(plain: Path, tmp_path: Path) -> None:
    run(few(switches={"leave_within": 1e-30}), tmp_path / "off")

    assert np.array_equal(model(tmp_path / "off"), model(plain))


def test_without_a_server_the_model_is_the_same_and_every_message_is_sent_to_every_other(
    plain: Path, tmp_path: Path
) -> None:
    experiment = few(switches={"servers": 0})
    summary = run(experiment, tmp_path / "none")
    size = rounds(plain)[0]["bytes_up"] // 4

    assert np.array_equal(model(tmp_path / "none"), model(plain))
    for record in rounds(tmp_path / "none"):
        assert record["bytes_up"] == record["bytes_down"] == 4 * 3 * size
    assert summary["bytes_up_per_client_round"] == summary["bytes_down_per_client_round"] == 3 * size
    assert plan(experiment)["bytes_up_per_client_round"] == 3 * size
    assert plan(experiment)["bytes_down_per_client_round"] == 3 * size


def test_several_servers_find_the_same_model_and_tell_each_other_their_sums(plain: Path, tmp_path: Path) -> None:
    summary = run(few(switches={"servers": 3}), tmp_path / "three")

    assert np.array_equal(model(tmp_path / "three"), model(plain))
    for record, before in zip(rounds(tmp_path / "three"), rounds(plain), strict=True):
        assert (record["bytes_up"], record["bytes_down"]) == (before["bytes_up"], before["bytes_down"])
        assert record["bytes_between_servers"] == 3 * 2 * 8 * 650
    assert summary["bytes_between_servers_total"] == 3 * 3 * 2 * 8 * 650


@pytest.mark.parametrize("servers", [0, 2])
def test_sums_are_secure_without_a_server_and_with_two(servers: int, tmp_path: Path) -> None:
    """Each server's sum is a secure one of its own four clients; the model is the ideal one within rounding."""
    tables: dict[str, Any] = {"data": {"clients": 8}, "experiment": {"rounds": 1}, "switches": {"servers": servers}}
    real = few(**tables, aggregation={"secure": "real", "colluders": 1})
    run(real, tmp_path / "real")
    run(few(**tables, aggregation={"secure": "ideal"}), tmp_path / "ideal")

    assert np.array_equal(model(tmp_path / "real"), model(tmp_path / "ideal"))
    (record,) = rounds(tmp_path / "real")
    assert set(record["phases"]) == {"advertise", "share", "mask", "consistency", "unmask"}
    if servers == 0:
        assert record["phases"]["mask"]["up"] == record["phases"]["mask"]["down"] > 8 * 7 * 4 * 650
        assert record["phases"]["share"]["up"] < 8 * 7 * 400  # each peer gets its own shares, not everybody's
        planned = plan(real)
        assert planned["bytes_up_per_client_round"] * 8 == record["bytes_up"]
        assert planned["bytes_down_per_client_round"] * 8 == record["bytes_down"]


def test_records_come_round_by_round(plain: Path, tmp_path: Path) -> None:
    for name, switches in {
        "kept": {"new_records": 7},
        "fresh": {"new_records": 7, "cumulative": False},
        "all": {"new_records": 10_000},
    }.items():
        run(few(switches=switches), tmp_path / name)
    kept, fresh, everything = (model(tmp_path / name) for name in ("kept", "fresh", "all"))

    assert np.array_equal(everything, model(plain))
    assert not np.array_equal(kept, model(plain))
    assert not np.array_equal(kept, fresh)


def test_a_private_run_may_have_records_that_come_round_by_round(tmp_path: Path) -> None:
    summary = run(
        few(experiment={"rounds": 2}, privacy=PRIVATE, switches={"new_records": 50}, aggregation={"secure": "ideal"}),
        tmp_path / "private",
    )

    assert summary["private"]
    assert summary["epsilon"] <= 5


def test_clients_that_have_converged_leave_and_the_run_ends_when_nobody_is_left(tmp_path: Path) -> None:
    summary = run(few(switches={"leave_within": 1e6}), tmp_path / "gone")

    (record,) = rounds(tmp_path / "gone")
    assert record["left_for_good"] == summary["left_for_good"] == 4
    assert record["senders"] == 0
    assert "accuracy" in record  # the last round is measured
    assert summary["stopped_early"]
    assert all("leaves for good" in reason for reason in record["failures"].values())


@pytest.mark.parametrize(
    ("switches", "reason"),
    [
        ({"subtract_own_noise": True}, "the next sum tells of those shares"),
        ({"leave_within": 0.1}, "when a client leaves depends on its records"),
        ({"servers": 0}, "knows its own share of the noise"),
        ({"servers": 2}, "which has only their part of the noise"),
    ],
)
def test_switches_that_would_void_epsilon_are_refused(switches: dict[str, Any], reason: str) -> None:
    with pytest.raises(PrivacyError, match=reason):
        few(privacy=PRIVATE, aggregation={"secure": "ideal"}, switches=switches)


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ({"switches": {"subtract_own_noise": True}}, "clients of this run add no noise"),
        ({"switches": {"cumulative": False}}, "is about new_records, which is 0"),
        ({"switches": {"new_records": 5}, "aggregation": {"weighting": "records"}}, "as many records in a round"),
        ({"switches": {"new_records": 5}, "client": {"balanced": True}}, "before any balancing"),
        ({"switches": {"servers": 0}, "cohort": {"sample_rate": "1/2"}}, "nobody sends the model"),
        ({"switches": {"servers": 0}, "aggregation": {"secure": "real"}}, "sees what a server would see"),
        ({"switches": {"servers": 3}, "aggregation": {"secure": "ideal"}}, "the sum of one client hides nothing"),
        ({"switches": {"servers": 9}}, r"more than \[data\] clients = 4"),
        ({"switches": {"servers": 2}, "aggregation": {"defence": "median"}}, "judges the updates of all clients"),
        (
            {"switches": {"servers": 2}, "aggregation": {"secure": "real", "key_life": "session"}},
            "keys of a session are for one server",
        ),
        (
            {"switches": {"leave_within": 0.1}, "aggregation": {"secure": "real", "key_life": "session"}},
            "a session needs every client",
        ),
        ({"switches": {"leaves_within": 0.1}}, "did you mean 'leave_within'"),
        ({"switches": {"servers": -1}}, r"servers must be at least 0, got -1"),
    ],
)
def test_switches_that_cannot_be_played_are_refused(tables: dict[str, dict[str, Any]], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        few(**tables)


def test_fresh_records_must_last_for_all_rounds(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without cumulative needs more than 400 records of every client in 3 rounds"):
        run(few(switches={"new_records": 200, "cumulative": False}), tmp_path / "short")


@pytest.mark.parametrize("file", sorted(FILES.glob("*.toml")), ids=lambda file: file.stem)
def test_the_examples_of_privacyfl_are_whole_experiments(file: Path) -> None:
    experiment = load(file)

    assert experiment.switches is not None
    assert parse(experiment.tables()).identity() == experiment.identity()
