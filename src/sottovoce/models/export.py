"""Write a trained network in forms that other programs load without sottovoce.

torch  a .pt2 file of `torch.export`: `torch.export.load(file).module()(records)` gives probabilities
onnx   the same graph in ONNX, by torch; needs the packages of the extra [onnx]
npz    the tensors by name, and the architecture as JSON

All take records as they are stored (uint8 images, float32 features, token ids as int64); the scaling is inside. Torch
and ONNX return one row of probabilities a record, a column for each class.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from sottovoce.core.errors import InputError
from sottovoce.core.files import replacing
from sottovoce.core.vectors import Vector
from sottovoce.models.base import Model
from sottovoce.models.fronts import Front
from sottovoce.models.network import Network
from sottovoce.models.with_torch import needs_torch

__all__ = ["FORMS", "SUFFIX", "architecture", "export"]

SUFFIX: Final = {"torch": ".pt2", "onnx": ".onnx", "npz": ".npz"}
FORMS: Final = tuple(SUFFIX)
VERSION: Final = 1
_ONNX: Final = ("onnx", "onnxscript", "torch")


def export(network: Model, params: Vector, form: str, path: Path, facts: Mapping[str, Any]) -> None:
    """Write a network with its parameters; `facts` (what it reads, the names of the classes) go into the file as JSON.

    The file appears whole or not at all.
    """
    front: Front | None = None
    if not isinstance(network, Network):
        front, network = _behind(network, form)
    whole = {**architecture(network), "inputs": dict(facts)}
    if front is not None:
        whole["front"] = {"name": front.name, "input_shape": list(front.input_shape), "input_scale": front.input_scale}
    told = json.dumps(whole)
    with replacing(path, suffix=SUFFIX[form]) as draft:
        if form == "npz":
            with draft.open("wb") as file:
                arrays: dict[str, Any] = dict(network.layout.views(params))
                arrays |= {f"front.{name}": array for name, array in (front.arrays() if front else {}).items()}
                np.savez(file, allow_pickle=False, architecture=np.array(told.encode()), **arrays)
        elif form == "torch":
            _torch(network, params, draft, told, str(facts.get("input_type", "float32")))
        else:
            _onnx(network, params, draft, told, str(facts.get("input_type", "float32")))


def _behind(model: Model, form: str) -> tuple[Front, Network]:
    """Return the front of a model and the network behind it, or say why the model cannot be written in this form."""
    from sottovoce.models.fronted import Fronted

    if not isinstance(model, Fronted) or not isinstance(model.model, Network):
        raise InputError(f"{model.name} is a torch module, which torch itself exports: take `.model` of the result")
    if form != "npz":
        raise InputError(
            f"--to {form} writes a graph of layers, and front {model.front.name!r} before this model is none; use --to "
            "npz, which holds the front's numbers too, or sottovoce predict"
        )
    return model.front, model.model


def architecture(network: Network) -> dict[str, Any]:
    """Return a network as JSON: its layers in order, with the names that its tensors have in an npz file."""
    layers = [
        {
            "layer": type(layer).__name__,
            **asdict(layer),
            "tensors": {name: f"{index}.{name}" for name in layer.tensors(network.shapes[index])},
        }
        for index, layer in enumerate(network.layers)
    ]
    return {
        "format": "sottovoce-network",
        "version": VERSION,
        "name": network.name,
        "input_shape": list(network.input_shape),
        "input_scale": network.input_scale,
        "classes": network.classes,
        "output": "one logit, of class 1 against class 0" if network.binary else "one logit a class",
        "orientation": "Keras: images (height, width, channels), dense kernels (in, out), gates input forget cell out",
        "layers": layers,
    }


def _torch(network: Network, params: Vector, path: Path, told: str, dtype: str) -> None:
    needs_torch("--to torch")
    # Torch takes seconds to import, and the other rooms may not.
    from sottovoce.models.torch_export import traced

    traced(network, params, dtype).save(path, told)


def _onnx(network: Network, params: Vector, path: Path, told: str, dtype: str) -> None:
    lacking = [name for name in _ONNX if importlib.util.find_spec(name) is None]
    if lacking:
        raise InputError(
            f"--to onnx needs {' and '.join(lacking)}, not installed here; install with: pip install 'sottovoce[onnx]'"
        )
    from sottovoce.models.torch_export import traced

    traced(network, params, dtype).save_onnx(path, told)
