"""Trace a network as a graph of torch's own operations."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sottovoce.core.vectors import Vector
from sottovoce.models.network import Embedding, Network
from sottovoce.models.torch_forward import forward

__all__ = ["Traced", "traced"]


class _Module(nn.Module):
    """A network that takes stored records and returns probabilities, one column a class."""

    def __init__(self, network: Network, params: Vector) -> None:
        super().__init__()
        self._network = network
        self._names: dict[str, str] = {}
        for name, view in network.layout.views(params).items():
            self._names[name] = "layer" + name.replace(".", "_")  # torch allows no dots
            self.register_parameter(self._names[name], nn.Parameter(torch.from_numpy(view.copy()), requires_grad=False))
        self._tokens = isinstance(network.layers[0], Embedding)

    def forward(self, records: Tensor) -> Tensor:
        """Return the probabilities of a batch."""
        x = records if self._tokens else records.to(torch.float32) * self._network.input_scale
        tensors = {name: getattr(self, own) for name, own in self._names.items()}
        logits = forward(self._network, x, tensors, None)
        if not self._network.binary:
            return torch.softmax(logits, 1)
        positive = torch.sigmoid(logits)
        return torch.stack([1 - positive, positive], 1)


@dataclass(frozen=True)
class Traced:
    """A graph that takes any number of records."""

    program: Any
    example: Tensor

    def save(self, path: Path, told: str) -> None:
        """Write a .pt2 file with the facts beside the graph, as `sottovoce.json`."""
        with _quiet():
            torch.export.save(self.program, path, extra_files={"sottovoce.json": told})

    def save_onnx(self, path: Path, told: str) -> None:
        """Write an ONNX file with the facts in its metadata, as `sottovoce`."""
        with _quiet():
            made = torch.onnx.export(
                self.program,
                (self.example,),
                input_names=["records"],
                output_names=["probabilities"],
                dynamo=True,
                verbose=False,
            )
            if made is None:
                raise RuntimeError("torch.onnx returned no model")
            made.model.metadata_props["sottovoce"] = told
            made.save(path, external_data=False)


def traced(network: Network, params: Vector, dtype: str) -> Traced:
    """Trace a network on records of a numpy type; tokens are int64, the type of torch's indices."""
    tokens = isinstance(network.layers[0], Embedding)
    kind = torch.int64 if tokens else torch.uint8 if dtype == "uint8" else torch.float32
    example = torch.zeros((3, *network.input_shape), dtype=kind)  # one record would be taken for a constant
    with _quiet(), torch.no_grad():
        records = torch.export.Dim("records", min=1)
        module = _Module(network, params).eval()
        return Traced(torch.export.export(module, (example,), dynamic_shapes=({0: records},)), example)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold back what torch says about its own insides."""
    logger = logging.getLogger("torch")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
