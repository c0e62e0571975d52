from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.errors import ConfigError, InputError, PrivacyError
from sottovoce.core.wire import Traffic
from sottovoce.federation.aggregation.aggregator import Costs
from sottovoce.federation.round import costs_of
from sottovoce.runs.devices import Timing, make_timing
from sottovoce.runs.folder import read_operator, read_rounds, read_summary
from sottovoce.runs.loop import run
from tests.runs.played import ONE, model
from tests.runs.small import small

PRIVATE = {"epsilon": 8.0, "delta": 1e-3, "clip_norm": 1.0}
REAL = {"aggregation": {"secure": "real"}}


def on(
    profile: Any = "phone-lte", *, private: bool = False, tables: dict[str, Any] | None = None, **keys: Any
) -> Experiment:
    more: dict[str, Any] = {"engine": ONE, **(tables or {})}
    if private:
        more["privacy"] = PRIVATE
    return small(devices={"profile": profile, **keys}, **more)


def timing_of(experiment: Experiment) -> Timing:
    """Return the clock of an experiment; nobody trains."""
    parts = gather(experiment)
    ready = stages(protect(parts))[TRAINING].server_side(None)  # type: ignore[arg-type]
    timing = make_timing(parts, costs_of(ready.server, ready.server.init(parts.start)))
    assert timing is not None
    return timing


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Play the runs that several tests look at: they are what costs time here."""
    folder = tmp_path_factory.mktemp("runs")
    run(small(engine=ONE), folder / "plain")
    run(on(), folder / "lte")
    run(on(private=True, tables=REAL), folder / "private")
    return folder


def test_without_a_profile_nothing_is_told_of_devices(runs: Path) -> None:
    summary = read_summary(runs / "plain")

    assert summary is not None
    assert summary["joules_per_client"] is None
    assert not {"seconds_simulated", "dropouts", "devices"} & summary.keys()
    assert not {"seconds_simulated", "joules_per_client", "dropouts"} & read_rounds(runs / "plain")[0].keys()


def test_a_profile_without_failures_gives_the_same_model(runs: Path, tmp_path: Path) -> None:
    run(on(failures=False), tmp_path / "run")

    assert np.array_equal(model(runs / "plain"), model(tmp_path / "run"))
    assert not np.array_equal(model(runs / "plain"), model(runs / "lte"))


def test_lost_clients_are_missing_from_the_sum_and_named_with_their_cause(runs: Path) -> None:
    summary, records = read_summary(runs / "lte"), read_rounds(runs / "lte")

    assert summary is not None
    lost = sum(sum(record["dropouts"].values()) for record in records)
    assert lost == summary["failures"] == sum(summary["dropouts"].values()) > 0
    for record in records:
        assert record["cohort"] - record["senders"] == sum(record["dropouts"].values())
        assert all("lost before train: " in reason for reason in record.get("failures", {}).values())


def test_a_round_tells_its_seconds_and_joules_and_the_summary_adds_them_up(runs: Path) -> None:
    summary, records = read_summary(runs / "lte"), read_rounds(runs / "lte")

    assert summary is not None
    whole = sum(record["seconds_simulated"] for record in records)
    assert summary["seconds_simulated"] == pytest.approx(whole, rel=1e-5)
    one = records[0]["joules_per_client"]
    for bound in ("low", "default", "high"):
        parts = sum(one[part][bound] for part in ("radio_bytes", "radio_sessions", "training"))
        assert one[bound] == pytest.approx(parts, rel=1e-4)
    mean = np.mean([record["joules_per_client"]["default"] for record in records])
    assert summary["joules_per_client"]["default"] == pytest.approx(mean, rel=1e-4)
    setup = 2.1  # a session of the radio of its own; its bytes are few
    assert summary["joules_per_client_run"]["default"] == pytest.approx(mean * 6 / 2 + setup, rel=1e-4)


def test_a_resumed_run_tells_the_same_time_and_energy(runs: Path, tmp_path: Path) -> None:
    class Enough(Exception):  # noqa: N818
        pass

    def stop(record: dict[str, Any]) -> None:
        if record["round"] == 5:
            raise Enough

    with pytest.raises(Enough):
        run(on(), tmp_path / "run", observe=stop)
    resumed, whole = run(on(), tmp_path / "run", resume=True), read_summary(runs / "lte")

    assert whole is not None
    for key in ("seconds_simulated", "joules_per_client", "dropouts"):
        assert resumed[key] == whole[key]


def test_over_selection_invites_more_and_keeps_the_fastest(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"failures": False, "over_select": 1.4}
    run(on(tables={"cohort": {"sampling": "fixed"}}, **keys), tmp_path / "run")

    for record in read_rounds(tmp_path / "run"):
        assert (record["cohort"], record["senders"], record["dropouts"]) == (14, 10, {"surplus": 4})


def test_dropouts_of_devices_pass_a_private_round(runs: Path) -> None:
    summary = read_summary(runs / "private")

    assert summary is not None
    assert summary["rounds"] == 6
    assert summary["aborted_rounds"] < 3
    assert any(record["dropouts"] for record in read_operator(runs / "private"))
    assert summary["seconds_simulated"] > 6 * 5 * 0.09  # five phases, one after the other


def test_a_private_run_publishes_expected_values_that_tell_nothing_of_a_cohort(runs: Path) -> None:
    summary, published, operator = (
        read(runs / "private")
        for read in (read_summary, read_rounds, read_operator)  # type: ignore[operator]
    )

    keys = ("seconds_simulated", "joules_per_client")
    assert len({json.dumps([record[key] for key in keys]) for record in published}) == 1
    assert len({record["seconds_simulated"] for record in operator}) > 1
    assert all("dropouts" not in record for record in published)
    assert "dropouts" not in summary
    assert summary["seconds_simulated"] == pytest.approx(6 * published[0]["seconds_simulated"], rel=1e-5)


def test_a_private_run_does_not_tell_how_many_records_clients_have() -> None:
    data = {"source": "digits", "clients": 20, "partition": "dirichlet", "concentration": 0.05}
    uneven = on(private=True, rates="median", tables={"data": data, "client": {"batch_size": 50}})
    even = on(private=True, rates="median", tables={"client": {"batch_size": 50}})

    assert timing_of(uneven).promised() == timing_of(even).promised()
    clear = (on(rates="median", tables=table) for table in ({"data": data}, {}))
    first, second = (timing_of(experiment).expected.joules.training.default for experiment in clear)
    assert first != second  # where nothing is private, a client without a full batch counts as it is


def test_sensors_on_lorawan_take_minutes_for_kilobytes() -> None:
    # 2,624 bytes: 11 frames up at 40 s, 11 down at 4.6 s; a round trip of 1 s
    assert timing_of(on("sensor-lorawan", failures=False)).expected.seconds == pytest.approx(
        11 * 39.96 + 11 * 4.63 + 1, rel=0.01
    )


def test_a_larger_model_takes_more_work() -> None:
    small_one = timing_of(on()).expected.joules.training.default
    larger = timing_of(on(tables={"model": {"name": "mlp"}})).expected.joules.training.default

    assert larger > 10 * small_one


def test_rounds_that_follow_each_other_slowly_reach_another_hour_of_the_day() -> None:
    clock = timing_of(on(availability="daily", round_every=3600.0)).clock

    assert [clock.hour(round_) for round_ in (1, 2, 26)] == [0, 1, 1]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"profile": "phone-lt"}, r"\[devices\] profile has no 'phone-lt'; did you mean 'phone-lte'\?"),
        (
            {"profile": {"phone-lte": 0.5, "phone-wifi": 0.4}},
            r"must sum to 1, got 0.9 \(phone-lte 0.5, phone-wifi 0.4\)",
        ),
        ({"deadline": 10.0}, r"\[devices\] deadline is about devices, and none are named"),
        ({"latency": [[0, "server", 1.0]]}, r"\[devices\] latency is about devices"),
        ({"profile": "phone-lte", "latency": [[0, 1, 0.1]]}, "between two clients"),
        ({"profile": "phone-lte", "latency": [[0, "servant", 0.1]]}, 'wants \\[client, "server", seconds\\]'),
        ({"profile": "phone-lte", "latency": [[0, "server", -1]]}, "at least 0 seconds"),
        ({"profile": "phone-lte", "over_select": 2.5}, "invites 1.25 of all clients"),
        ({"profile": "phone-lte", "deadline": -1.0}, "must be above 0"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        small(devices=keys)


def test_over_selection_that_no_secure_sum_survives_is_refused() -> None:
    with pytest.raises(InputError, match=r"needs more than 0.67 of them to stay"):
        on(over_select=1.6, tables={"aggregation": {"secure": "ideal"}})


def test_over_selection_is_refused_in_a_private_run() -> None:
    with pytest.raises(PrivacyError, match="not the random sampling that epsilon counts on"):
        on(private=True, over_select=1.3)


@pytest.mark.parametrize(
    ("experiment", "words"),
    [
        (
            {"devices": {"profile": "sensor-nbiot"}, "model": {"name": "cnn"}},
            r"the model does not fit sensor-nbiot \(\d+\.?\d* MB needed, 0.26 MB there\)",
        ),
        (
            {"devices": {"profile": "sensor-lorawan", "deadline": 300.0}},
            r"deadline is 300 s, but phase train takes sensor-lorawan at least 8.2 minutes at the 1% duty cycle",
        ),
    ],
)
def test_what_a_device_cannot_do_is_refused_before_a_folder_is_made(
    tmp_path: Path, experiment: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        run(small(engine=ONE, **experiment), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_latencies_of_single_clients_slow_a_round_down() -> None:
    everyone = {"cohort": {"sample_rate": 1}}
    slow = on(failures=False, latency=[[3, "server", 5.0]], tables=everyone)

    assert timing_of(slow).expected.seconds == pytest.approx(5, abs=0.1)


def test_a_private_round_does_not_depend_on_how_many_records_a_client_has() -> None:
    """A client that is late drops out, and that a round was aborted is published without noise."""
    private = {"epsilon": 8.0, "delta": 1e-3, "clip_norm": 0.5}
    base = {"data": {"source": "digits", "clients": 50, "partition": "dirichlet", "concentration": 0.2}}
    parts = gather(parse(base | {"privacy": private, "devices": {"profile": "phone-lte"}}))
    timing = make_timing(parts, Costs(10.0, {"train": Traffic(100, 100)}))

    assert timing is not None
    assert len({parts.partition.size(client) for client in range(50)}) > 3
    assert len(set(timing.clock.gflop(np.arange(50)).tolist())) == 1


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"devices": {"profile": "phone-lte"}, "switches": {"servers": 2}}, "clock of .devices. profile is for rounds"),
        ({"devices": {"profile": "phone-lte"}, "switches": {"servers": 0}}, "clock of .devices. profile is for rounds"),
        ({"devices": {"profile": "phone-lte", "failures": False, "availability": "daily"}}, "none is lost"),
        ({"devices": {"profile": "phone-lte", "latency": [[100, "server", 1.0]]}}, "names client 100, but clients"),
    ],
)
def test_what_the_clock_cannot_play_is_refused(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse({"data": {"clients": 100}} | tables)


def test_a_plan_and_a_run_tell_the_same_seconds_and_joules_of_all_rounds() -> None:
    timing = timing_of(on(private=True, round_every=1000.0))
    records = [{**timing.promised(), "round": round_} for round_ in (1, 2, 3)]
    told = timing.summarise(records, 1.5, (0.0, 50_000.0))

    assert told["seconds_simulated"] == 3000, "rounds begin so far apart"
    spent = timing.expected.joules * 1.5 + timing.before(0.0, 50_000.0)
    assert told["joules_per_client_run"]["default"] == pytest.approx(spent.total.default, rel=1e-4)
    assert spent.total.default > 1.5 * timing.expected.joules.total.default + 2


def test_a_private_run_in_which_everyone_diverges_says_so_to_its_operator_and_names_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    diverging = small(engine=ONE, privacy=PRIVATE, model={"name": "mlp"}, client={"client_lr": 1e30})

    for times in (1, 2):  # also the second run of a process says so
        summary = run(diverging, tmp_path / f"run-{times}")

        assert summary["aborted_rounds"] == 0
        assert caplog.text.count("training diverged on a client, which sends noise around zero") == times
