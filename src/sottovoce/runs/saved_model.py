"""Use the model of a run folder: rebuild the network, treat new records as the run did, and predict."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.assembly.model import behind, named_network, plain_front, whitening_of
from sottovoce.config.experiment import Experiment, parse
from sottovoce.config.model import ModelTable
from sottovoce.core.errors import DataError, InputError, RunError, WireError
from sottovoce.core.target import Target
from sottovoce.core.validate import one_of
from sottovoce.core.vectors import Vector
from sottovoce.data import Preprocessing, read_records, read_tables, table_files
from sottovoce.data.files import read_npz
from sottovoce.data.table_files import names_table
from sottovoce.models import LearningTask, LocalTraining, Model, evaluate, make_trainer
from sottovoce.models.export import FORMS, export
from sottovoce.models.judgement import judged
from sottovoce.models.quality import verdict_at_threshold
from sottovoce.runs.folder import FRONT, WHITENING, read_front, read_whitening
from sottovoce.runs.onnx_table import add_columns, check_columns_fit


@dataclass(frozen=True)
class Prediction:
    """What a model says about some records; of a record without a label that is -1, or NaN of a number."""

    names: tuple[str, ...]
    scores: NDArray[np.float64]
    labels: NDArray[Any] | None
    task: LearningTask
    threshold: float | None = None  # of two classes: the probability from which on the second is answered

    def at(self, threshold: float) -> Prediction:
        """Return the same with another decision threshold; probabilities stay as they are."""
        if self.task.name != "classification" or self.task.classes != 2:
            raise InputError(f"a threshold is for two classes, and this model has {self.task.classes}")
        return replace(self, threshold=threshold)

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """Return the probability of each class or answer, one row a record; a number has none."""
        return self.task.probabilities(self.scores)

    @property
    def answers(self) -> NDArray[Any]:
        """Return the answer to each record, as labels are: a class number, a number, or yes-or-no answers.

        With a threshold, the second class from that probability on.
        """
        if self.threshold is not None:
            return np.asarray(self.probabilities[:, 1] >= self.threshold, np.int64)
        if self.task.name == "classification":  # also where a score is not finite
            return np.asarray(self.probabilities.argmax(1))
        return self.task.guesses(self.scores)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Tell of each record whether it has a label."""
        if self.labels is None:
            return np.zeros(len(self.scores), np.bool_)
        there = ~np.isnan(self.labels) if self.labels.dtype.kind == "f" else self.labels >= 0
        return np.asarray(there.reshape(len(there), -1).all(1))

    def metrics(self) -> dict[str, float | None]:
        """Return every metric of the labelled records that fits the task."""
        if self.labels is None or not self.known.any():
            return {}
        known = self.known
        found = evaluate(self.scores[known], self.labels[known], self.task)
        if self.threshold is not None:  # other answers; probabilities, and so the loss, are the same
            found = evaluate(self._decided[known], self.labels[known], self.task) | {"loss": found["loss"]}
        return {name: value if np.isfinite(value) else None for name, value in found.items()}

    def quality(self) -> dict[str, Any] | None:
        """Judge the model on the labelled records; None if there are none."""
        if self.labels is None or not self.known.any():
            return None
        known = self.known
        told = judged(self.scores[known], self.labels[known], self.task, self.names)
        if self.threshold is None:
            return told
        kept = {name: told[name] for name in ("calibration_error", "calibration")}
        decided = judged(self._decided[known], self.labels[known], self.task, self.names)
        return decided | kept | {"verdict": verdict_at_threshold(decided)}

    @property
    def _decided(self) -> NDArray[np.float64]:
        """Return scores whose sign, or larger one, is the answer at the threshold."""
        shift = 0.0 if self.threshold is None else math.log(self.threshold / (1 - self.threshold))
        return self.scores - shift if self.scores.ndim == 1 else self.scores - np.array([0.0, shift])


@dataclass(frozen=True)
class SavedModel:
    """The model of a run, with what it takes to give it new records."""

    network: Model
    params: Vector
    inputs: dict[str, Any]  # of preprocessing.json

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the names of the classes; their numbers, if they have none."""
        names = self.inputs.get("class_names")
        return tuple(names) if names else tuple(str(number) for number in range(self.network.classes))

    @cached_property
    def preprocessing(self) -> Preprocessing | None:
        """Return how the run's table became features; None if its data was no table."""
        described = self.inputs.get("table")
        return None if described is None else Preprocessing.of(described)

    def predict_file(self, path: Path) -> Prediction:
        """Predict the records of tables (a file, a pattern, a folder) or of an npz file.

        Labels are used to measure, and may be absent.
        """
        if not path.is_dir() and not names_table(str(path)):
            target = self.network.task.target
            x, y = read_records(path, target.kind)
            if (
                y is not None
                and len(y)
                and target.kind == "class"
                and not 0 <= y.min() <= y.max() < self.network.classes
            ):
                last = self.network.classes - 1
                raise DataError(f"{path}: labels must lie in [0, {last}], got {y.min()} to {y.max()}")
            return self.predict(x, y, where=str(path))
        if self.preprocessing is None:
            raise InputError(
                f"{path} is a table, but the run was trained on {self.inputs.get('data')}, whose records are no rows "
                f"of one; give an npz file with x of shape (records, {', '.join(map(str, self.network.input_shape))})"
            )
        table = read_tables(table_files(str(path)))
        labelled = all(name in table.columns for name in self.preprocessing.label_columns)
        y = self.preprocessing.labels(table) if labelled else None
        return self.predict(self.preprocessing.apply(table), y, where=str(path))

    def predict(self, x: NDArray[Any], y: NDArray[Any] | None = None, *, where: str = "the records") -> Prediction:
        """Predict records that are stored as the run's were: uint8 images, uint16 tokens, float32 features."""
        wanted, kind = self.network.input_shape, str(self.inputs.get("input_type", x.dtype))
        if x.shape[1:] != wanted or str(x.dtype) != kind or not len(x):
            raise InputError(
                f"{where}: the run's model reads {kind} records of shape {wanted}, got {len(x)} of {x.dtype} and shape "
                f"{x.shape[1:]}"
            )
        scores = make_trainer(self.network, LocalTraining()).scores(self.params, x).astype(np.float64)
        return Prediction(self.class_names, scores, y, self.network.task)

    def graph_columns(self, form: str, *, features: bool) -> list[str] | None:
        """Name the inputs of an exported graph that reads columns of a table; None if it reads records."""
        if form != "onnx" or self.preprocessing is None or features:
            return None
        return [column.name for column in self.preprocessing.columns]

    def export(self, path: Path, form: str, *, features: bool = False) -> None:
        """Write the model in a form that is used without sottovoce; the file appears whole or not at all.

        ONNX reads the columns of a table, one input each; with `features` what was made of them.
        """
        one_of("to", form, FORMS)
        if not path.parent.is_dir():
            raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
        table, finish = self.preprocessing, None
        if table is not None and self.graph_columns(form, features=features) is not None:
            check_columns_fit(table)
            finish = partial(add_columns, table=table)
        export(self.network, self.params, form, path, self.inputs, finish)


def read_model(run: Path, *, best: bool = False) -> SavedModel:
    """Read the final model of a run folder, or the best one."""
    if not (run / "config.toml").is_file():
        raise InputError(f"{run} holds no run: it has no config.toml")
    experiment = _experiment(run / "config.toml")
    if experiment.statistics is not None:
        raise InputError(f"{run} asked for statistics and has no model; `sottovoce statistics {run}` shows its answers")
    file = run / ("model-best.npz" if best else "model.npz")
    if not file.is_file():
        reason = "was never evaluated" if best else "is not finished; go on with it (sottovoce run ... --resume)"
        raise InputError(f"{run} has no {file.name}: the run {reason}")
    if "network" in _read_json(run / "environment.json").get("given", ()):
        raise InputError(
            f"the network of {run} was given as a Python object, which a run folder does not hold; load the arrays of "
            f"{file.name} into that object yourself"
        )
    inputs = read_inputs(run)
    net = rebuilt(run, experiment.model, inputs)
    arrays = read_npz(file, [name for name, _ in net.layout.tensors])
    for name, shape in net.layout.tensors:
        if arrays[name].shape != shape:
            raise RunError(f"{file}: tensor {name} has shape {arrays[name].shape}, the run's network {shape}")
    return SavedModel(net, net.layout.join(arrays), inputs)


def _experiment(path: Path) -> Experiment:
    try:
        return parse(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RunError(f"{path} cannot be read: {error}") from None


def read_inputs(run: Path) -> dict[str, Any]:
    """Return what the model of a run reads."""
    path = run / "preprocessing.json"
    if not path.exists():
        raise InputError(
            f"{path} does not exist: the run was made by a version of sottovoce that did not write down what its model "
            "reads; run it again"
        )
    inputs = _read_json(path)
    if inputs.get("version") != 1:
        raise RunError(f"{path} has no version that is known here (1); use the version of sottovoce that wrote it")
    return inputs


def _read_json(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    if not isinstance(read, dict):
        raise RunError(f"{path} is damaged: it holds no JSON object")
    return read


def rebuilt(run: Path, table: ModelTable, inputs: dict[str, Any]) -> Model:
    """Return the network that a run's files name, all layers of it, behind the front that its clients were sent."""
    try:
        shape, classes = tuple(int(size) for size in inputs["input_shape"]), int(inputs["classes"])
        scale, target = float(inputs["input_scale"]), Target.of(inputs.get("target"))
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{run / 'preprocessing.json'} is damaged: {type(error).__name__}: {error}") from None
    if table.front in ("none", "gabor") and not table.whiten:  # what gabor filled is in the model's file
        return named_network(table, shape, classes, scale, target)
    from sottovoce.models.fronted import Fronted

    front = plain_front(table, shape, str(inputs.get("input_type")), scale, inputs.get("table"))
    try:
        front, _ = front.told(read_front(run))
    except WireError as error:
        raise RunError(f"{run / FRONT}, the numbers of front {table.front!r}, is missing or damaged: {error}") from None
    whitening = whitening_of(table, front)
    if whitening is not None:
        try:
            whitening = whitening.known(read_whitening(run))
        except WireError as error:
            raise RunError(f"{run / WHITENING}, by which features are whitened, is damaged: {error}") from None
    return Fronted(front, behind(front, table, classes, target), whitening)
