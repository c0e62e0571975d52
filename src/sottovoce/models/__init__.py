"""Describe networks as data and train them; torch is imported only when a trainer needs it."""

from __future__ import annotations

from sottovoce.models.base import Model
from sottovoce.models.build import make_model
from sottovoce.models.choose import choose_trainer, make_trainer
from sottovoce.models.metrics import answered, evaluate, guessed
from sottovoce.models.network import Network
from sottovoce.models.trainer import LocalTraining, Shard, Trainer, batches
from sottovoce.models.zoo import NAMES, network

__all__ = [
    "NAMES",
    "LocalTraining",
    "Model",
    "Network",
    "Shard",
    "Trainer",
    "answered",
    "batches",
    "choose_trainer",
    "evaluate",
    "guessed",
    "make_model",
    "make_trainer",
    "network",
]
