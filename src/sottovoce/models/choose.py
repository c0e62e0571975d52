"""Choose who trains: the fast path where it can, torch elsewhere, numpy where there is no torch."""

from __future__ import annotations

from typing import Literal, NamedTuple

from sottovoce.core.errors import InputError
from sottovoce.core.validate import one_of
from sottovoce.models import fast, plain
from sottovoce.models.base import Model
from sottovoce.models.network import Network
from sottovoce.models.trainer import LocalTraining, Trainer
from sottovoce.models.with_torch import has_torch, needs_torch

__all__ = ["Choice", "Kind", "choose_trainer", "make_trainer"]

Kind = Literal["auto", "torch", "fast"]


class Choice(NamedTuple):
    """Which trainer is taken, and why."""

    trainer: Literal["fast", "torch", "plain"]
    reason: str

    def __str__(self) -> str:
        return f"{self.trainer} ({self.reason})"


def choose_trainer(network: Model, training: LocalTraining, kind: Kind = "auto", device: str = "cpu") -> Choice:
    """Tell which trainer `make_trainer` returns for the same arguments, without making it.

    "auto" takes the fast one when it knows every layer and option, and torch otherwise; without torch, networks of
    dense layers have the plain one. Refuse where torch is taken and not installed: a run should not begin that nobody
    can train.
    """
    choice = _choose(network, training, kind, device)
    if choice.trainer == "torch" and kind == "auto" and device == "cpu" and not has_torch():
        dense = _ran(network.trained)
        if isinstance(dense, Network) and plain.unsupported(dense) is None:
            return Choice("plain", f"{choice.reason}, and torch is not installed")
    if choice.trainer == "torch":
        needs_torch(f"trainer 'torch' ({choice.reason})")
    return choice


def _choose(network: Model, training: LocalTraining, kind: Kind, device: str) -> Choice:
    one_of("trainer", kind, ("auto", "torch", "fast"))
    network = _ran(network.trained)
    if kind == "fast" and device != "cpu":
        raise InputError(f"trainer 'fast' runs on device 'cpu', got {device!r}; use 'torch'")
    if not isinstance(network, Network):
        if kind == "fast":
            raise InputError(f"trainer 'fast' knows no torch modules, and {network.name} is one; use 'torch'")
        return Choice("torch", "the model is a torch module")
    if kind != "auto":
        return Choice(kind, "the experiment asks for it")
    if device != "cpu":
        return Choice("torch", f"the device is {device!r}, and the C kernels run on 'cpu'")
    obstacle = fast.unsupported(network, training)
    if obstacle is not None:
        return Choice("torch", obstacle)
    return Choice("fast", "the C kernels know every layer and option of this experiment")


def make_trainer(network: Model, training: LocalTraining, kind: Kind = "auto", device: str = "cpu") -> Trainer:
    """Return the trainer that `choose_trainer` names; it reads stored records, whatever front the model has.

    Torch is imported here and not before: whoever only plans or reports need not wait three seconds for it.
    """
    if (part := network.trained) is not network:
        from sottovoce.models.fronted import FrontTrainer

        return FrontTrainer(network, make_trainer(part, training, kind, device))
    if (whole := _ran(network)) is not network:
        from sottovoce.models.partial import Partial, PartTrainer

        if isinstance(network, Partial):
            return PartTrainer(network, make_trainer(whole, training, kind, device))
    chosen = choose_trainer(network, training, kind, device).trainer
    if chosen != "torch" and isinstance(network, Network):
        return fast.FastTrainer(network, training) if chosen == "fast" else plain.PlainTrainer(network, training)

    from sottovoce.models.torch_trainer import TorchTrainer

    return TorchTrainer(network, training, device)


def _ran(model: Model) -> Model:
    """Return the network that is really run: the whole one, if only some of its layers train."""
    if isinstance(model, Network):
        return model
    from sottovoce.models.partial import Partial

    return model.network if isinstance(model, Partial) else model
