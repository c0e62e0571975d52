"""Choose who trains: the fast path where it can, torch everywhere else."""

from __future__ import annotations

from typing import Literal

from sottovoce.core.errors import InputError
from sottovoce.core.validate import one_of
from sottovoce.models import fast
from sottovoce.models.network import Network
from sottovoce.models.trainer import LocalTraining, Trainer

__all__ = ["make_trainer"]


def make_trainer(
    network: Network,
    training: LocalTraining,
    kind: Literal["auto", "torch", "fast"] = "auto",
    device: str = "cpu",
) -> Trainer:
    """Return a trainer; "auto" takes the fast one when it knows every layer and option, and torch otherwise.

    Torch is imported here and not before: whoever only plans or reports need not wait three seconds for it.
    """
    one_of("trainer", kind, ("auto", "torch", "fast"))
    if kind == "fast" and device != "cpu":
        raise InputError(f"trainer 'fast' runs on device 'cpu', got {device!r}; use 'torch'")
    if kind == "fast" or (kind == "auto" and device == "cpu" and fast.unsupported(network, training) is None):
        return fast.FastTrainer(network, training)

    from sottovoce.models.torch_trainer import TorchTrainer

    return TorchTrainer(network, training, device)
