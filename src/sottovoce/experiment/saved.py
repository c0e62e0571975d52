"""Use the model of a run folder: rebuild the network, treat new records as the run did, and predict."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError, InputError, RunError, WireError
from sottovoce.core.vectors import Vector
from sottovoce.data import Preprocessing, is_table, read_csv, read_records
from sottovoce.data.files import read_npz
from sottovoce.experiment.config import Experiment, parse
from sottovoce.experiment.folder import FRONT, read_front
from sottovoce.experiment.fronts import behind, named_network, plain_front
from sottovoce.experiment.model_table import ModelTable
from sottovoce.models import LocalTraining, Model, evaluate, make_trainer

__all__ = ["Prediction", "SavedModel", "read_inputs", "read_model", "rebuilt"]


@dataclass(frozen=True)
class Prediction:
    """What a model says about some records; labels are class numbers, -1 where a record has none."""

    names: tuple[str, ...]
    scores: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    labels: NDArray[np.int64] | None

    @property
    def classes(self) -> NDArray[np.int64]:
        """Return the most likely class of each record."""
        return np.asarray(self.probabilities.argmax(1))

    def metrics(self) -> dict[str, float | None]:
        """Return accuracy, loss and, for a binary network, balanced accuracy and AUROC of the labelled records."""
        if self.labels is None or not (known := self.labels >= 0).any():
            return {}
        found = evaluate(self.scores[known], self.labels[known], self.scores.ndim == 1)
        return {name: value if np.isfinite(value) else None for name, value in found.items()}


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
        """Predict the records of a csv or npz file; labels are used to measure, and may be absent."""
        if not is_table(path.name):
            x, y = read_records(path)
            if y is not None and len(y) and not 0 <= y.min() <= y.max() < self.network.classes:
                last = self.network.classes - 1
                raise DataError(f"{path}: labels must lie in [0, {last}], got {y.min()} to {y.max()}")
            return self.predict(x, y, where=str(path))
        if self.preprocessing is None:
            raise InputError(
                f"{path} is a table, but the run was trained on {self.inputs.get('data')}, whose records are no rows "
                f"of one; give an npz file with x of shape (records, {', '.join(map(str, self.network.input_shape))})"
            )
        table = read_csv(path)
        labelled = self.preprocessing.label in table.columns
        y = self.preprocessing.class_numbers(table) if labelled else None
        return self.predict(self.preprocessing.apply(table), y, where=str(path))

    def predict(self, x: NDArray[Any], y: NDArray[np.int64] | None = None, *, where: str = "the records") -> Prediction:
        """Predict records that are stored as the run's were: uint8 images, uint16 tokens, float32 features."""
        wanted, kind = self.network.input_shape, str(self.inputs.get("input_type", x.dtype))
        if x.shape[1:] != wanted or str(x.dtype) != kind or not len(x):
            raise InputError(
                f"{where}: the run's model reads {kind} records of shape {wanted}, got {len(x)} of {x.dtype} and shape "
                f"{x.shape[1:]}"
            )
        scores = make_trainer(self.network, LocalTraining()).scores(self.params, x).astype(np.float64)
        return Prediction(self.class_names, scores, _probabilities(scores), y)


def read_model(run: Path, *, best: bool = False) -> SavedModel:
    """Read the final model of a run folder, or the best one."""
    if not (run / "config.toml").is_file():
        raise InputError(f"{run} holds no run: it has no config.toml")
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
    net = rebuilt(run, _experiment(run / "config.toml").model, inputs)
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
        scale = float(inputs["input_scale"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{run / 'preprocessing.json'} is damaged: {type(error).__name__}: {error}") from None
    if table.front in ("none", "gabor"):  # what gabor filled is in the model's file
        return named_network(table, shape, classes, scale)
    from sottovoce.models.fronted import Fronted

    front = plain_front(table, shape, str(inputs.get("input_type")), scale, inputs.get("table"))
    try:
        front, _ = front.told(read_front(run))
    except WireError as error:
        raise RunError(f"{run / FRONT}, the numbers of front {table.front!r}, is missing or damaged: {error}") from None
    return Fronted(front, behind(front, table, classes))


def _probabilities(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability of each class: (records, classes)."""
    logits = np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores
    raised = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(raised / raised.sum(1, keepdims=True))
