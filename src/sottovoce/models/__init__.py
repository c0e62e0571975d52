"""Describe networks as data and train them; torch is imported only when a trainer needs it."""

from __future__ import annotations

from sottovoce.models.choose import choose_trainer, make_trainer
from sottovoce.models.metrics import evaluate
from sottovoce.models.network import Network
from sottovoce.models.trainer import LocalTraining, Shard, Trainer, batches
from sottovoce.models.zoo import NAMES, network

__all__ = [
    "NAMES",
    "LocalTraining",
    "Network",
    "Shard",
    "Trainer",
    "batches",
    "choose_trainer",
    "evaluate",
    "make_trainer",
    "network",
]
