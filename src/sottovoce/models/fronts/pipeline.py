"""A whole model as one ONNX graph: pretrained network, projection, whitening and the layers that were trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Vector
from sottovoce.models.fronts.encoder import Encoder
from sottovoce.models.fronts.pretrained import OPSET, Graph
from sottovoce.models.fronts.projection import LENGTH
from sottovoce.models.network import DropoutLayer, Flatten, Linear, Network
from sottovoce.models.whitening import Whitening

_FEATURES: Final = "features.h"  # what joins the encoder and the rest


def save_pipeline(
    front: Encoder, whitening: Whitening | None, network: Network, params: Vector, path: Path, told: str
) -> None:
    """Write the graph from stored records to answers; of texts from their tokens, one text in a call.

    Input `records` as they are stored, or `tokens` (int64); output `probabilities`, or `values` of numbers. `told` goes
    into the file.
    """
    import onnx
    from onnx import compose, helper

    if not front.graphs or front.measured:
        what = "torch runs it" if not front.graphs else "its projection was measured on public records"
        raise InputError(f"--to onnx cannot write encoder {front.described['name']!r}: {what}; use sottovoce predict")
    model = _at_opset(front.graphs[0], "a.")
    for number, graph in enumerate(front.graphs[1:], 1):
        following = _at_opset(graph, f"{'abc'[number]}.")
        known = {tensor.name for tensor in following.graph.initializer}
        name = next(value.name for value in following.graph.input if value.name not in known)
        model = compose.merge_models(model, following, io_map=[(model.graph.output[0].name, name)])
    head = Graph()
    h = _one_row(head, _FEATURES, model)
    if (matrix := front.matrix) is not None:
        h = head.add("MatMul", h, head.number(matrix))
    x = _whitened(head, _unit(head, h), whitening)
    name, output = _answers(head, _layers(head, x, network, params), network)
    rank = len(model.graph.output[0].type.tensor_type.shape.dim)
    value = helper.make_tensor_value_info(_FEATURES, 1, ["n", *[None] * (rank - 1)])
    made = helper.make_graph(
        [*head.nodes, helper.make_node("Identity", [output], [name])],
        "head",
        [value],
        [helper.make_tensor_value_info(name, 1, ["n", None])],
        head.numbers,
    )
    rest = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    model = compose.merge_models(model, rest, io_map=[(model.graph.output[0].name, _FEATURES)])
    _rename_inputs(model)
    helper.set_model_props(model, {"sottovoce": told})
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def _rename_inputs(model: Any) -> None:
    """Give the inputs the names that they had before they were prefixed."""
    names = {value.name: value.name.partition(".")[2] for value in model.graph.input}
    for value in model.graph.input:
        value.name = names[value.name]
    for node in model.graph.node:
        for place, used in enumerate(node.input):
            node.input[place] = names.get(used, used)


def _at_opset(model: Any, prefix: str) -> Any:
    """Return a copy of a model at the opset of ours, its names prefixed so that two models never share one."""
    from onnx import compose, version_converter

    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    model = model if opset == OPSET else version_converter.convert_version(model, OPSET)
    model = compose.add_prefix(model, prefix)
    model.ir_version = 8
    return model


def _one_row(graph: Graph, x: str, model: Any) -> str:
    """Return the mean over places or tokens, as `encoder` takes it, where the encoder's output is not a row."""
    rank = len(model.graph.output[0].type.tensor_type.shape.dim)
    if rank <= 2:
        return x
    axes = graph.number([1] if rank == 3 else [2, 3], np.int64)
    return graph.add("ReduceMean", x, axes, keepdims=0)


def _unit(graph: Graph, x: str) -> str:
    """Return rows of length 1 / 0.3; a row of zeros stays."""
    length = graph.add("ReduceL2", x, graph.number([1], np.int64), keepdims=1)
    return graph.add("Mul", graph.add("Div", x, graph.add("Max", length, graph.number(1e-30))), graph.number(LENGTH))


def _whitened(graph: Graph, u: str, whitening: Whitening | None) -> str:
    if whitening is None:
        return u
    known = whitening.arrays()
    matrix = np.eye(whitening.width, dtype=np.float32) * known["tail"][0]
    matrix[: whitening.dims, : whitening.dims] = known["matrix"].T
    x = graph.add("Sub", u, graph.number(known["mean"]))
    return _unit(graph, graph.add("MatMul", x, graph.number(matrix)))


def _layers(graph: Graph, x: str, network: Network, params: Vector) -> str:
    """Return the scores of the layers that were trained."""
    views: dict[str, NDArray[Any]] = network.layout.views(params)
    for index, layer in enumerate(network.layers):
        if isinstance(layer, DropoutLayer | Flatten):
            continue
        if not isinstance(layer, Linear):
            raise InputError(f"--to onnx writes linear layers behind an encoder, not {type(layer).__name__}")
        kernel, bias = (views[f"{index}.{name}"] for name in ("kernel", "bias"))
        x = graph.affine(x, kernel.T, bias)
        x = graph.add("Relu", x) if layer.relu else x
    return x


def _answers(graph: Graph, scores: str, network: Network) -> tuple[str, str]:
    """Return the name and the place of the answers, as `task` gives them."""
    task = network.task.name
    if task == "regression":
        target = network.task.target
        scaled = graph.add("Mul", scores, graph.number(target.scale))
        return "values", graph.add("Add", scaled, graph.number(target.centre))
    if task == "ordinal":
        raise InputError("--to onnx behind an encoder cannot write classes in an order; use sottovoce predict")
    if task == "classification" and not network.binary:
        return "probabilities", graph.add("Softmax", scores, axis=1)
    positive = graph.add("Sigmoid", scores)
    if task == "multilabel":
        return "probabilities", positive
    return "probabilities", graph.add("Concat", graph.add("Sub", graph.number(1.0), positive), positive, axis=1)
