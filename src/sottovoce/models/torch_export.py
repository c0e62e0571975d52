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

from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Vector
from sottovoce.models.base import Exported
from sottovoce.models.module import TorchNetwork
from sottovoce.models.network import Embedding, Network
from sottovoce.models.task import shape_of
from sottovoce.models.torch_fronts import FrontGraph
from sottovoce.models.torch_layers import forward


class _Module(nn.Module):
    """A network that takes stored records and returns what its task answers; several answers as a tuple."""

    def __init__(self, network: Network, params: Vector) -> None:
        super().__init__()
        self._network = network
        self._names: dict[str, str] = {}
        for name, view in network.layout.views(params).items():
            self._names[name] = "layer" + name.replace(".", "_")  # torch allows no dots
            self.register_parameter(self._names[name], nn.Parameter(torch.from_numpy(view.copy()), requires_grad=False))
        self._tokens = isinstance(network.layers[0], Embedding)

    def forward(self, records: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the answers to a batch."""
        x = records if self._tokens else records.to(torch.float32) * self._network.input_scale
        tensors = {name: getattr(self, own) for name, own in self._names.items()}
        answers = tuple(self._network.task.torch_answers(forward(self._network, x, tensors, None)).values())
        return answers if len(answers) > 1 else answers[0]


class _OwnModule(nn.Module):
    """A user's module that takes stored records and returns what its task answers; several answers as a tuple."""

    def __init__(self, network: TorchNetwork, params: Vector) -> None:
        super().__init__()
        self._network = network
        self.module = network.filled(params).requires_grad_(False)

    def forward(self, records: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the answers to a batch."""
        network = self._network
        x = records if network.tokens else records.to(torch.float32) * network.input_scale
        if network.images != "stored":
            x = x.permute(0, 3, 1, 2).contiguous()
        scores = self.module(x)
        scores = scores.reshape(-1) if network.task.flat else scores.reshape(-1, network.task.outputs)
        answers = tuple(network.task.torch_answers(scores).values())
        return answers if len(answers) > 1 else answers[0]


@dataclass(frozen=True)
class Traced:
    """A graph that takes any number of records."""

    program: Any
    example: Tensor
    outputs: list[str]

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
                output_names=self.outputs,
                dynamo=True,
                verbose=False,
            )
            if made is None:
                raise RuntimeError("torch.onnx returned no model")
            made.model.metadata_props["sottovoce"] = told
            made.save(path, external_data=False)


def traced(made: Exported, dtype: str) -> Traced:
    """Trace a model, with the front before it, on records of a numpy type; tokens are int64, as torch's indices are.

    Raises if a user's module cannot be traced: torch follows no branch that depends on the records.
    """
    network, params, front, whitening = made
    shape = network.input_shape if front is None else front.input_shape
    tokens = network.tokens if isinstance(network, TorchNetwork) else isinstance(network.layers[0], Embedding)
    kind = torch.int64 if tokens else torch.uint8 if dtype == "uint8" else torch.float32
    example = torch.zeros((3, *shape), dtype=kind)  # one record would be taken for a constant
    with _quiet(), torch.no_grad():
        records = torch.export.Dim("records", min=1)
        module: nn.Module
        module = _OwnModule(network, params) if isinstance(network, TorchNetwork) else _Module(network, params)
        if front is not None:
            module = nn.Sequential(FrontGraph(front, whitening), module)
        try:
            program = torch.export.export(module.eval(), (example,), dynamic_shapes=({0: records},))
        except Exception as error:  # whatever torch says of a user's code
            if not isinstance(network, TorchNetwork):
                raise
            told = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise InputError(
                f"torch cannot trace {network.name} for any number of records: {told}; take `.model` of the result"
            ) from error
        names = [*network.task.torch_answers(torch.zeros(shape_of(network.task, len(example))))]
        return Traced(program, example, names)


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
