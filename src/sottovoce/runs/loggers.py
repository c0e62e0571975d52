"""Loggers show a run in TensorBoard, Weights & Biases or MLflow: by name in `[experiment] loggers`, or as callbacks.

A callback has the methods `on_start(config)`, `on_round(record)` and `on_end(summary)`. Each logger needs a package of
its own, which is imported when the logger is made: `pip install 'sottovoce[tensorboard]'`, `[wandb]` or `[mlflow]`.

Guarantee: of a private run only what may be published is logged: the records of `rounds.jsonl` and the summary, never
what belongs in `operator.jsonl`. Such a run is logged when it has ended, all at once, because loggers store the time of
every value, and the time that a round takes tells how many clients were in it. The seed is left out of its
configuration: whoever knows the seed of a simulation can take the noise away.
"""

from __future__ import annotations

import importlib
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sottovoce.config.experiment import Experiment
from sottovoce.core.packages import unusable
from sottovoce.core.registry import Registry
from sottovoce.runs.records import OPERATOR_ONLY, Record

# Of the cohort in a record that the operator sees; a published one has expected values under these names, or none.
_REAL = ("bytes_up", "bytes_down", "seconds_simulated", "joules_per_client", "private")


class Logger(ABC):
    """Callback that hands a run to another program; a subclass says how that program is spoken to."""

    def __init__(self) -> None:
        self._config: Record | None = None
        self._held: list[Record] = []  # rounds of a private run, until it has ended

    # Without a configuration it is not known whether a run is private, so it is treated as if it were.

    @property
    def _private(self) -> bool:
        return self._config is None or self._config.get("privacy") is not None

    def on_start(self, config: Record) -> None:
        """Take the tables of the experiment."""
        self._config, self._held = config, []
        if not self._private:
            self._open(config)

    def on_round(self, record: Record, state: object = None) -> None:
        """Take the record of a round; the model is not logged."""
        if self._private:
            self._held.append(_publishable(record))
        else:
            self._log(record)

    def on_end(self, summary: Record) -> None:
        """Take the summary, and close what was opened."""
        if self._private:
            summary = _publishable(summary)
            self._open(_without_seed(self._config or {}))
            for record in self._held:
                self._log(record)
        self._close(summary)
        self._config, self._held = None, []

    @abstractmethod
    def _open(self, config: Record) -> None:
        """Start a run of the other program."""

    @abstractmethod
    def _log(self, record: Record) -> None:
        """Write the numbers of a round."""

    @abstractmethod
    def _close(self, summary: Record) -> None:
        """Write the summary and end the run of the other program."""


class TensorBoard(Logger):
    """Event files for TensorBoard, in `folder/<name of the run>`; see them with `tensorboard --logdir folder`."""

    def __init__(self, folder: Path | str = "runs/tensorboard") -> None:
        super().__init__()
        self._folder = Path(folder)
        self._files = _package("tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._events = _package("tensorboard.compat.proto.event_pb2", "tensorboard")
        self._summaries = _package("tensorboard.compat.proto.summary_pb2", "tensorboard")
        self._texts = _package("tensorboard.plugins.text.summary_v2", "tensorboard")
        self._writer: Any = None
        self._last = 0

    def _open(self, config: Record) -> None:
        self._writer = self._files.EventFileWriter(str(self._folder / _name(config)))
        self._last = 0
        self._add(self._text("config", config), 0)

    def _log(self, record: Record) -> None:
        self._last = int(record["round"])
        self._add(self._scalars(record), self._last)
        self._writer.flush()  # seen at once, and kept if the run is killed

    def _close(self, summary: Record) -> None:
        self._add(self._scalars(summary, "summary/"), self._last)
        self._add(self._text("summary", summary), self._last)
        self._writer.close()

    def _scalars(self, values: Record, prefix: str = "") -> Any:
        scalar = self._summaries.Summary.Value
        return self._summaries.Summary(
            value=[scalar(tag=prefix + name, simple_value=value) for name, value in _numbers(values)]
        )

    def _text(self, tag: str, document: Record) -> Any:
        lines = json.dumps(document, indent=2, default=str).splitlines()
        return self._texts.text_pb(tag, "\n".join(f"    {line}" for line in lines))  # indented: Markdown's code

    def _add(self, summary: Any, step: int) -> None:
        self._writer.add_event(self._events.Event(wall_time=time.time(), step=step, summary=summary))


class WandB(Logger):
    """A run of Weights & Biases; `options` go to `wandb.init`, and WANDB_MODE=offline keeps it on this machine."""

    def __init__(self, project: str = "sottovoce", **options: Any) -> None:
        super().__init__()
        self._project, self._options = project, options
        self._wandb = _package("wandb", "wandb")
        self._run: Any = None

    def _open(self, config: Record) -> None:
        # What a terminal shows of a private run is for the operator.
        quiet = self._wandb.Settings(console="off")
        options = {"name": _name(config), "settings": quiet, **self._options}
        self._run = self._wandb.init(project=self._project, config=config, **options)

    def _log(self, record: Record) -> None:
        self._run.log(dict(_numbers(record)), step=int(record["round"]))

    def _close(self, summary: Record) -> None:
        self._run.summary.update(summary)
        self._run.finish()


class MLflow(Logger):
    """A run of MLflow in an experiment of that name; `uri` is the tracking store, else MLflow's own default."""

    def __init__(self, experiment: str = "sottovoce", uri: str | None = None) -> None:
        super().__init__()
        self._experiment = experiment
        self._entities = _package("mlflow.entities", "mlflow")
        # A client of its own: a run that the user has opened is left alone.
        self._client = _package("mlflow", "mlflow").MlflowClient(tracking_uri=uri)
        self._run = ""
        self._last = 0

    def _open(self, config: Record) -> None:
        found = self._client.get_experiment_by_name(self._experiment)
        place = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        self._run = self._client.create_run(place, run_name=_name(config)).info.run_id
        self._last = 0
        settings = [self._entities.Param(name, str(value)) for name, value in _flat(config)]
        for start in range(0, len(settings), 100):  # as many as MLflow takes at once
            self._client.log_batch(self._run, params=settings[start : start + 100])

    def _log(self, record: Record) -> None:
        self._last = int(record["round"])
        self._metrics(record)

    def _close(self, summary: Record) -> None:
        self._metrics(summary, "summary/")
        self._client.log_dict(self._run, summary, "summary.json")
        self._client.set_terminated(self._run)

    def _metrics(self, values: Record, prefix: str = "") -> None:
        now = int(1000 * time.time())
        metric = self._entities.Metric
        metrics = [metric(prefix + name, value, now, self._last) for name, value in _numbers(values)]
        self._client.log_batch(self._run, metrics=metrics)


LOGGERS: Final[Registry[type[Logger]]] = Registry(
    "logger",
    "sottovoce.loggers",
    {
        "tensorboard": f"{__name__}:TensorBoard",
        "wandb": f"{__name__}:WandB",
        "mlflow": f"{__name__}:MLflow",
    },
    base=Logger,
    key="[experiment] loggers",
)
"""Every logger by its name; one is made without arguments."""


def make_loggers(experiment: Experiment) -> list[Logger]:
    """Return the loggers that an experiment names; raise InputError if one is not known or lacks its package."""
    return [LOGGERS[name]() for name in experiment.experiment.loggers]


def _package(name: str, extra: str) -> Any:
    """Import a module of an optional package, or say how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise unusable(f"the {extra} logger", extra, f"the package {extra} ({error})") from None


def _publishable(record: Record) -> Record:
    """Return what anybody may read of a private run's record, also where the operator's record was handed over.

    Guarantee: keys of `OPERATOR_ONLY` are left out, and with them bytes, simulated seconds and joules, which
    are then real and not expected ones.
    """
    secret = {key for key in OPERATOR_ONLY if record.get(key) is not None}  # the summary says "seconds": null
    if secret:
        secret |= set(_REAL)
    return {key: value for key, value in record.items() if key not in secret}


def _without_seed(config: Record) -> Record:
    general = {key: value for key, value in config.get("experiment", {}).items() if key != "seed"}
    return {**config, "experiment": general}


def _name(config: Record) -> str:
    return str(config.get("experiment", {}).get("name", "experiment"))


def _numbers(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the finite numbers of a record by name, except the number of the round."""
    for name, value in _flat(record):
        if isinstance(value, int | float) and math.isfinite(value) and name != "round":
            yield name, float(value)


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables as `outer/inner`."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value
