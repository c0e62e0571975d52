"""Write a trained network in forms that other programs load without sottovoce.

torch  a .pt2 file of `torch.export`: `torch.export.load(file).module()(records)` gives answers
onnx   the same graph in ONNX, by torch; needs the packages of the extra [onnx]
npz    the tensors by name, and the architecture as JSON
safetensors  the same in that format, the JSON in its metadata; of a torch module the weights by their names in it

All take records as they are stored (uint8 images, float32 features, token ids as int64); the scaling is inside. Torch
and ONNX return what the task answers (`LearningTask.torch_answers`): one row of probabilities a record, a column for
each class or yes-or-no answer; the values of numbers; of classes in an order also the class.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sottovoce.core.errors import InputError
from sottovoce.core.files import replacing
from sottovoce.core.packages import require
from sottovoce.core.vectors import Vector
from sottovoce.models.base import Exported, Model
from sottovoce.models.fronts.encoder import Encoder
from sottovoce.models.fronts.pipeline import save_pipeline
from sottovoce.models.module import TorchNetwork
from sottovoce.models.network import Network

if TYPE_CHECKING:
    from sottovoce.models.torch_export import Traced

SUFFIX: Final = {"torch": ".pt2", "onnx": ".onnx", "npz": ".npz", "safetensors": ".safetensors"}
FORMS: Final = tuple(SUFFIX)
VERSION: Final = 1
_ONNX: Final = ("onnx", "onnxscript", "torch")


def export(
    model: Model,
    params: Vector,
    form: str,
    path: Path,
    facts: Mapping[str, Any],
    finish: Callable[[Path], None] | None = None,
) -> None:
    """Write a model with its parameters; `facts` (what it reads, the names of the classes) go into the file as JSON.

    The file appears whole or not at all; `finish` may change it before it appears.
    """
    made = model.exported(params)
    network, params, front, whitening = made
    if isinstance(network, TorchNetwork) and form == "npz":
        raise InputError(
            f"{network.name} is a torch module, and an npz holds no code; use torch or onnx, or take `.model` of the "
            "result"
        )
    whole = {**architecture(network), "inputs": dict(facts)}
    if whitening is not None:
        whole["whitening"] = {"width": whitening.width, "dims": whitening.dims}
    if front is not None:
        whole["front"] = {"name": front.name, "input_shape": list(front.input_shape), "input_scale": front.input_scale}
    told = json.dumps(whole)
    with replacing(path, suffix=SUFFIX[form]) as draft:
        if form == "npz" and not isinstance(network, TorchNetwork):
            with draft.open("wb") as file:
                arrays: dict[str, Any] = dict(network.layout.views(params))
                arrays |= {f"front.{name}": array for name, array in (front.arrays() if front else {}).items()}
                known = {} if whitening is None else whitening.arrays()
                arrays |= {f"whitening.{name}": array for name, array in known.items()}
                np.savez(file, allow_pickle=False, architecture=np.array(told.encode()), **arrays)
        elif form == "safetensors":
            _safetensors(network, params, draft, told, front.arrays() if front else {})
        elif form == "onnx" and isinstance(front, Encoder) and isinstance(network, Network):
            require("--to onnx", "onnx")
            save_pipeline(front, whitening, network, params, draft, told)
        else:
            graph = _traced(form, made, str(facts.get("input_type", "float32")))
            save = graph.save if form == "torch" else graph.save_onnx
            save(draft, told)
        if finish is not None:
            finish(draft)


def architecture(network: Network | TorchNetwork) -> dict[str, Any]:
    """Return a network as JSON: its layers in order, with the names that its tensors have in an npz file.

    Of a torch module, whose layers are torch's, there are none.
    """
    if isinstance(network, TorchNetwork):
        return {**_head(network), "format": "sottovoce-module"}
    layers = [
        {
            "layer": type(layer).__name__,
            **asdict(layer),
            "tensors": {name: f"{index}.{name}" for name in layer.tensors(network.shapes[index])},
        }
        for index, layer in enumerate(network.layers)
    ]
    return {
        **_head(network),
        "orientation": "Keras: images (height, width, channels), dense kernels (in, out), gates input forget cell out",
        "layers": layers,
    }


def _head(network: Network | TorchNetwork) -> dict[str, Any]:
    return {
        "format": "sottovoce-network",
        "version": VERSION,
        "name": network.name,
        "input_shape": list(network.input_shape),
        "input_scale": network.input_scale,
        "classes": network.classes,
        "task": network.task.name,
        "output": network.task.reading,
    }


def _safetensors(
    network: Network | TorchNetwork, params: Vector, path: Path, told: str, front: Mapping[str, Any]
) -> None:
    require("--to safetensors", "safetensors")
    from safetensors.numpy import save_file

    arrays = {**network.layout.views(params), **{f"front.{name}": array for name, array in front.items()}}
    # The format stores memory as it lies, and a view of the flat vector need not lie alone.
    save_file({name: np.array(array, order="C") for name, array in arrays.items()}, path, {"sottovoce": told})


def _traced(form: str, model: Exported, dtype: str) -> Traced:
    require(f"--to {form}", *(_ONNX if form == "onnx" else ("torch",)), extra=form)
    # Torch takes seconds to import, and the other rooms may not.
    from sottovoce.models.torch_export import traced

    return traced(model, dtype)
