"""Loggers get what may be published, and the real packages can read it back; a missing package skips its tests."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sottovoce.config.experiment import parse
from sottovoce.core.errors import InputError
from sottovoce.runs.folder import read_rounds, read_summary
from sottovoce.runs.loggers import Logger, MLflow, TensorBoard, WandB
from sottovoce.runs.loop import run
from sottovoce.runs.records import OPERATOR_ONLY

PLAIN: dict[str, Any] = {
    "experiment": {"name": "small", "rounds": 2, "evaluate_every": 1, "seed": 12345},
    "data": {"clients": 20},
    "model": {"name": "logistic"},
    "cohort": {"sample_rate": "1/2"},
    "engine": {"workers": 1},
}
PRIVATE: dict[str, Any] = {**PLAIN, "privacy": {"epsilon": 8.0, "delta": 1e-2, "clipping": "adaptive"}}


class Memory(Logger):
    """A logger that keeps what it is told to write, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def _open(self, config: dict[str, Any]) -> None:
        self.told.append(config)

    def _log(self, record: dict[str, Any]) -> None:
        self.told.append(record)

    def _close(self, summary: dict[str, Any]) -> None:
        self.told.append(summary)


def play(tables: dict[str, Any], out: Path, logger: Logger, *, published: bool = True) -> Path:
    """Run an experiment with a logger; not `published`, the logger is handed the operator's records by mistake."""
    experiment = parse(tables)
    logger.on_start(experiment.tables())
    summary = run(experiment, out, observe=(lambda record: None) if published else logger.on_round)
    for record in read_rounds(out) if published else ():
        logger.on_round(record)
    logger.on_end(summary)
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(PLAIN, tmp_path_factory.mktemp("plain") / "run", Memory())


def replay(folder: Path, logger: Logger) -> None:
    logger.on_start(tomllib.loads((folder / "config.toml").read_text()))
    for record in read_rounds(folder):
        logger.on_round(record)
    logger.on_end(read_summary(folder) or {})


def test_a_run_that_is_not_private_is_logged_whole_and_at_once(folder: Path) -> None:
    memory = Memory()
    memory.on_start({"experiment": {"seed": 1}})
    memory.on_round(read_rounds(folder)[0])

    assert memory.told == [{"experiment": {"seed": 1}}, read_rounds(folder)[0]]


def test_a_private_run_logs_exactly_what_is_published_and_only_at_its_end(tmp_path: Path) -> None:
    memory = Memory()
    folder = play(PRIVATE, tmp_path / "run", memory)

    config, *records, summary = memory.told
    assert "seed" not in config["experiment"] and "12345" not in json.dumps(memory.told)
    assert config["privacy"]["epsilon"] == 8.0
    assert records == read_rounds(folder)
    assert summary == read_summary(folder)
    early = Memory()
    early.on_start(parse(PRIVATE).tables())
    early.on_round(records[0])
    assert early.told == []


def test_operator_data_is_not_logged_even_if_it_is_handed_over(tmp_path: Path) -> None:
    memory = Memory()
    folder = play(PRIVATE, tmp_path / "run", memory, published=False)

    _, *records, _ = memory.told
    assert len(records) == 2
    for record, published in zip(records, read_rounds(folder), strict=True):
        assert not set(record) & {*OPERATOR_ONLY, "bytes_up", "bytes_down"}
        assert record.items() <= published.items()


def test_simulated_time_and_energy_of_a_cohort_are_not_logged() -> None:
    memory = Memory()
    memory.on_start({"privacy": {}, "experiment": {}})
    memory.on_round(
        {"round": 1, "cohort": 7, "dropouts": {"link": 1}, "seconds_simulated": 2.0, "joules_per_client": {}}
    )
    memory.on_round({"round": 2, "seconds_simulated": 3.0})
    memory.on_end({})

    assert memory.told[1:3] == [{"round": 1}, {"round": 2, "seconds_simulated": 3.0}]


def test_a_run_that_never_said_what_it_is_counts_as_private() -> None:
    memory = Memory()
    memory.on_round({"round": 1, "cohort": 7, "bytes_up": 9, "accuracy": 0.5})
    memory.on_end({"accuracy_final": 0.5})

    assert memory.told == [{"experiment": {}}, {"round": 1, "accuracy": 0.5}, {"accuracy_final": 0.5}]


@pytest.mark.parametrize(("kind", "extra"), [(TensorBoard, "tensorboard"), (WandB, "wandb"), (MLflow, "mlflow")])
def test_a_missing_package_is_one_sentence_that_names_the_extra(
    kind: type[Logger], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == extra]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, extra, None)

    with pytest.raises(InputError, match=rf"pip install 'sottovoce\[{extra}\]'") as caught:
        kind()

    assert "\n" not in str(caught.value)


def test_no_logger_package_is_imported_before_it_is_used() -> None:
    code = "import sys, sottovoce.runs.loggers; print({'tensorboard', 'wandb', 'mlflow'} & sys.modules.keys())"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_tensorboard_reads_back_every_number_of_every_round(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the package tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    replay(folder, TensorBoard(tmp_path))

    read = EventAccumulator(str(tmp_path / "small"))
    read.Reload()
    records, summary = read_rounds(folder), read_summary(folder) or {}
    accuracies = [(event.step, pytest.approx(event.value)) for event in read.Scalars("accuracy")]
    assert [(record["round"], record["accuracy"]) for record in records] == accuracies
    (final,) = read.Scalars("summary/accuracy_final")
    assert (final.step, final.value) == (2, pytest.approx(summary["accuracy_final"]))
    assert {"config", "summary"} <= set(read.Tags()["tensors"])


def test_wandb_keeps_the_rounds_and_the_summary_offline(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb", reason="the package wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")

    replay(folder, WandB(dir=str(tmp_path)))
    wandb.teardown()  # the process that writes the file has ended

    (written,) = tmp_path.rglob("*.wandb")
    told = written.read_bytes()
    assert b"accuracy_final" in told and str(read_rounds(folder)[0]["accuracy"]).encode() in told


def test_mlflow_keeps_the_rounds_the_keys_and_the_summary(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="the package mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the default, a database, needs more packages
    uri = (tmp_path / "store").as_uri()

    replay(folder, MLflow("trial", uri))

    client = mlflow.MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("trial").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["experiment/rounds"] == "2"
    history = client.get_metric_history(found.info.run_id, "accuracy")
    assert [(point.step, point.value) for point in history] == [
        (record["round"], record["accuracy"]) for record in read_rounds(folder)
    ]
    assert found.data.metrics["summary/accuracy_final"] == (read_summary(folder) or {})["accuracy_final"]
