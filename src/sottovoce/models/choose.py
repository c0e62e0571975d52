"""Choose who trains: the fast path where it can, torch elsewhere, numpy where there is no torch."""

from __future__ import annotations

from typing import Literal, NamedTuple

from sottovoce.core.errors import InputError
from sottovoce.core.packages import installed, require
from sottovoce.core.validate import one_of
from sottovoce.models import fast, plain
from sottovoce.models.base import Model
from sottovoce.models.partial import PartTrainer
from sottovoce.models.trainer import LocalTraining, Trainer

Kind = Literal["auto", "torch", "fast"]


class TrainerChoice(NamedTuple):
    """Which trainer is taken, and why."""

    trainer: Literal["fast", "compiled", "torch", "plain"]
    reason: str

    def __str__(self) -> str:
        return f"{self.trainer} ({self.reason})"


def choose_trainer(network: Model, training: LocalTraining, kind: Kind = "auto", device: str = "cpu") -> TrainerChoice:
    """Tell which trainer `make_trainer` returns for the same arguments, without making it.

    "auto" takes the fast one when it knows every layer and option, and torch otherwise; a torch module that is made of
    such layers is "compiled": trained by the fast one too. Without torch, networks of dense layers have the plain one.
    Refuse where torch is taken and not installed: a run should not begin that nobody can train.
    """
    choice = _choose(network, training, kind, device)
    if choice.trainer == "torch" and kind == "auto" and device == "cpu" and not installed("torch"):
        dense = network.trained.layered
        if dense is not None and plain.unsupported(dense, training) is None:
            return TrainerChoice("plain", f"{choice.reason}, and torch is not installed")
    if choice.trainer == "torch":
        require(f"trainer 'torch' ({choice.reason})", "torch")
    return choice


def _choose(network: Model, training: LocalTraining, kind: Kind, device: str) -> TrainerChoice:
    one_of("trainer", kind, ("auto", "torch", "fast"))
    layers = network.trained.layered
    if kind == "fast" and device != "cpu":
        raise InputError(f"trainer 'fast' runs on device 'cpu', got {device!r}; use 'torch'")
    if layers is None:
        return _choose_for_module(network, training, kind, device)
    if kind != "auto":
        return TrainerChoice(kind, "the experiment asks for it")
    if device != "cpu":
        return TrainerChoice("torch", f"the device is {device!r}, and the C kernels run on 'cpu'")
    obstacle = fast.unsupported(layers, training)
    if obstacle is not None:
        return TrainerChoice("torch", obstacle)
    return TrainerChoice("fast", "the C kernels know every layer and option of this experiment")


def _choose_for_module(network: Model, training: LocalTraining, kind: Kind, device: str) -> TrainerChoice:
    """Take the kernels where a torch module is nothing but layers that they know, and torch otherwise."""
    compiled = network.trained.compiled
    obstacle = "not all that it does is known to the C kernels"
    if compiled is not None:
        obstacle = fast.unsupported(compiled.network, training) or ""
    if kind == "torch":
        return TrainerChoice("torch", "the experiment asks for it")
    if kind == "fast" and obstacle:
        raise InputError(f"trainer 'fast' cannot train the torch module {network.name}: {obstacle}; use 'torch'")
    if device != "cpu":
        return TrainerChoice("torch", f"the device is {device!r}, and the C kernels run on 'cpu'")
    if obstacle:
        return TrainerChoice("torch", f"the model is a torch module, and {obstacle}")
    return TrainerChoice("compiled", "the torch module is made of layers that the C kernels know")


def make_trainer(network: Model, training: LocalTraining, kind: Kind = "auto", device: str = "cpu") -> Trainer:
    """Return the trainer that `choose_trainer` names; it reads stored records, whatever front the model has.

    Torch is imported here and not before: whoever only plans or reports need not wait three seconds for it.
    """
    if (inner := network.runs) is not network:
        return network.adapt(make_trainer(inner, training, kind, device))
    chosen, layers = choose_trainer(network, training, kind, device).trainer, network.layered
    if chosen == "compiled" and (compiled := network.compiled) is not None:
        return PartTrainer(compiled, fast.FastTrainer(compiled.network, training))
    if chosen != "torch" and layers is not None:
        return fast.FastTrainer(layers, training) if chosen == "fast" else plain.PlainTrainer(layers, training)

    from sottovoce.models.torch_trainer import TorchTrainer

    return TorchTrainer(network, training, device)
