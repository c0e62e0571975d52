"""The model of an experiment: the network, the layers of it that train, and the public front before it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sottovoce.assembly.public import check_no_client, check_projection, load_public
from sottovoce.config.experiment import Experiment
from sottovoce.config.model import ModelTable
from sottovoce.core.errors import InputError
from sottovoce.core.streams import Owners, Purpose, Streams
from sottovoce.core.target import CLASSES, Target
from sottovoce.data import LEAVES, Dataset, describe_leaves
from sottovoce.data.blind import KNOTS
from sottovoce.federation.engines.local import cores
from sottovoce.models import Front, Model, Network, TaskKeys, make_front, network
from sottovoce.models.base import Shape
from sottovoce.models.fronts import is_function
from sottovoce.models.fronts.encoder import Encoder, EncoderKeys
from sottovoce.models.fronts.front import PublicNumbers
from sottovoce.models.whitening import RowsFront, Whitening

_FORMULAS = ("fourier", "hashed")  # fronts that are formulas and a seed


def make_network(
    experiment: Experiment, dataset: Dataset, seeds: Owners, given: Model | None = None, told: bytes | None = b""
) -> Model:
    """Return the model, with its front fitted on public records; `told` are numbers of an earlier fit, as they travel.

    With None nothing is fitted: that is a model as a node has it until the set-up brings the numbers (`Model.told`).

    Guarantee: in a private run no record of the clients has a part in the front.
    """
    table, words = experiment.model, experiment.scheme.train
    if given is not None:
        _check_given(given, dataset, table, words)
        if table.whiten:
            raise InputError(
                f"[model] whiten is for a model that is named, such as 'logistic', and {given.name} was given as an "
                "object; name one, or whiten the features yourself"
            )
        if given.layered is not given:
            return given
    if table.front in ("none", "gabor") and not table.whiten:
        shape, scale = dataset.shape, dataset.input_scale
        net = (given and given.layered) or named_network(table, shape, dataset.classes, scale, dataset.target)
        return _partial(experiment, net, dataset, seeds, told)
    from sottovoce.models.fronted import Fronted

    front = plain_front(table, dataset.shape, str(dataset.x_train.dtype), dataset.input_scale, dataset.preprocessing)
    inner = behind(front, table, dataset.classes, dataset.target)
    if told:
        front, _ = front.told(told)
    elif told is None:
        pass
    elif front.measured:
        public = _projection_source(experiment, dataset)
        front = front.fitted(public.x_train, public.input_scale, threads(experiment))
    return Fronted(front, _partial(experiment, inner, dataset, seeds), whitening_of(table, front))


def whitening_of(table: ModelTable, front: Front) -> Whitening | None:
    """Return the whitening that a table asks for, without its numbers; None if it asks for none."""
    return Whitening(front.width, min(front.width, table.whiten_dims)) if table.whiten else None


def named_network(
    table: ModelTable, shape: Shape, classes: int, input_scale: float, target: Target = CLASSES
) -> Network:
    """Return the network that a table names, for records of a shape with labels of a kind."""
    return network(
        table.name,
        shape,
        classes,
        input_scale=input_scale,
        hidden=table.hidden,
        width=float(table.width),
        task=task_keys(table),
        target=target,
    )


def task_keys(table: ModelTable) -> TaskKeys:
    """Return what a table says about what is learnt."""
    weights = None if table.class_weights is None else tuple(table.class_weights)
    return TaskKeys(table.task, table.loss, weights)


def plain_front(
    table: ModelTable, shape: Shape, dtype: str, input_scale: float, preprocessing: Mapping[str, Any] | None
) -> Front:
    """Return the front that a table names, for stored records; not fitted yet."""
    if table.front == "none":
        return RowsFront(shape, input_scale)
    keys: dict[str, Any] = {}
    if table.front == "fourier":
        centre, spread = _ranges(preprocessing)
        keys = {"bandwidth": table.projection.bandwidth, "centre": centre, "spread": spread}
    if table.front == "hashed":
        keys = {"ngrams": table.projection.ngrams}
    if table.front == "encoder":
        keys = {"encoder": encoder_keys(table)}
    return make_front(
        table.front,
        shape,
        dtype,
        input_scale=input_scale,
        dims=table.projection.dims,
        seed=table.projection.seed,
        **keys,
    )


def encoder_keys(table: ModelTable) -> EncoderKeys:
    """Return what a table says of a pretrained network."""
    given: dict[str, Any] = table.encoder.model_dump()
    keys: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    return EncoderKeys(**keys)


def behind(front: Front, table: ModelTable, classes: int, target: Target = CLASSES) -> Network:
    """Return the network that reads the features of a front."""
    try:
        return named_network(table, (front.width,), classes, 1.0, target)
    except InputError:
        raise InputError(
            f"front {front.name!r} gives rows of {front.width} features, which model {table.name!r} cannot read; set "
            '[model] name = "logistic" or "mlp"'
        ) from None


def threads(experiment: Experiment) -> int:
    """Count the threads that compute features: as many as there are workers on this machine."""
    table = experiment.engine
    return (table.workers if table.name == "local" else 0) or cores()


def front_numbers(experiment: Experiment, model: Model) -> bytes:
    """Return the numbers of the front as they travel in the set-up, for the run folder; empty if there are none."""
    if experiment.model.front in ("none", *_FORMULAS):
        return b""
    if model.whitening is None:
        return model.start_payload()
    return b"" if model.front is None else model.front.payload()  # the whitening has a file of its own


def describe_front(experiment: Experiment, model: Model) -> dict[str, Any]:
    """Return what a summary tells of the front: its name, what it was fitted on, and which layers train."""
    table, front = experiment.model, model.front
    return {
        "front": table.front,
        "projection": None if front is None else _describe_projection(table, front),
        "train": experiment.scheme.train,
        "parameters": model.parameters,
    }


def _describe_projection(table: ModelTable, front: PublicNumbers) -> dict[str, Any]:
    """Return what features were fitted on, if that is synthetic, and the bytes of their numbers in the set-up."""
    size, dims = len(front.payload()), front.width
    asked = table.projection
    source = asked.source or LEAVES
    if isinstance(front, Encoder):
        told = front.described
        source = f"{told['name']}, SHA-256 {told['sha256'][:16]}, licence {told['licence']}"
        return {"source": source, "synthetic": None, "dims": front.width, "bytes": size, "encoder": told}
    if not size:  # nothing was fitted
        source = "none: your own function" if is_function(table.front) else f"none: formulas, seed {asked.seed}"
    synthetic = source == LEAVES
    if synthetic:
        source = describe_leaves(asked.samples, asked.seed)
    return {"source": source, "synthetic": synthetic if size else None, "dims": dims, "bytes": size}


def _partial(experiment: Experiment, net: Network, dataset: Dataset, seeds: Owners, told: bytes | None = b"") -> Model:
    """Return a network of which the named layers train, filled by the front if that is what it does."""
    table, words = experiment.model, experiment.scheme.train
    if words == "all" and table.front != "gabor":
        return net
    from sottovoce.models.fronts.gabor import Gabor
    from sottovoce.models.partial import Partial, layers_to_train

    layers = layers_to_train(net, words)
    rng = seeds.public.get(Purpose.INIT)
    if table.front != "gabor":
        return net if len(layers) == len(net.layer_names) else Partial.start(net, layers, None, rng)
    filling = Gabor(net, table.projection.dims)
    if told:
        return Partial(net, layers, np.zeros(net.dim, np.float32), filling).told(told, rng)
    if told is None:
        return Partial(net, layers, net.initialise(rng), filling)
    public = _projection_source(experiment, dataset)
    filling = filling.fitted(public.x_train, public.input_scale, threads(experiment))
    return Partial.start(net, layers, filling, rng)


def _projection_source(experiment: Experiment, dataset: Dataset) -> Dataset:
    """Return the public records that a projection is measured on."""
    check_projection(experiment)
    table = experiment.model.projection
    source = table.source or LEAVES
    public = load_public(source, experiment, dataset, table.samples, table.seed)
    check_no_client(experiment, "[model] projection.source", source, public, dataset)
    if public.shape != dataset.shape:
        raise InputError(
            f"[model] projection.source = {source!r} has records of shape {public.shape}, but "
            f"{experiment.data.source!r} has {dataset.shape}; they must match"
            + (f", as those of {LEAVES!r} always do" if len(dataset.shape) == 3 else "")
        )
    if table.samples < public.records:
        _, public = public.split(table.samples, Streams(table.seed).get(Purpose.SPLIT))
    return public


def _check_given(given: Model, dataset: Dataset, table: ModelTable, words: str) -> None:
    if table.front != "none":
        raise InputError(
            f"[model] front = {table.front!r} is for a model that is named, such as 'logistic', and {given.name} was "
            "given as an object; name one, or give the features as data"
        )
    if words != "all" and given.layered is not given:
        raise InputError(
            f"[scheme] train is for networks of layers, and {given.name} is a torch module; call requires_grad_(False) "
            "on the parameters that should not train"
        )
    if (given.input_shape, given.classes) != (dataset.shape, dataset.classes):
        raise InputError(
            f"the given network reads records of shape {given.input_shape} in {given.classes} classes, but the data "
            f"has {dataset.shape} and {dataset.classes}"
        )


def _ranges(preprocessing: Mapping[str, Any] | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return centre and spread of each feature of a table whose columns were scaled to [0, 1] by public ranges."""
    centre: list[float] = []
    spread: list[float] = []
    for column in () if preprocessing is None else preprocessing["columns"]:
        scaled = column["kind"] == "number" and column["low"] is not None and column["high"] is not None
        scaled = scaled and math.isclose(column["scale"], column["high"] - column["low"])
        sizes = {"category": len(column.get("categories", ())), "buckets": column.get("buckets"), "octaves": len(KNOTS)}
        features = sizes.get(column["kind"], 1)
        features += column["missing"] == "category"
        centre += [0.5 if scaled else 0.0, *[0.0] * (features - 1)]
        spread += [1 / math.sqrt(12) if scaled else 1.0, *[1.0] * (features - 1)]
    return tuple(centre), tuple(spread)
