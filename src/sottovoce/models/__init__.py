"""Describe networks as data and train them; torch is imported only when a trainer needs it."""

from __future__ import annotations

from sottovoce.models.base import Model
from sottovoce.models.build import make_model
from sottovoce.models.choose import choose_trainer, make_trainer
from sottovoce.models.features import all_features, keeping_features
from sottovoce.models.flops import training_gflop, training_memory_mb, training_seconds
from sottovoce.models.fronts import Front, make_front
from sottovoce.models.metrics import answered, evaluate, guessed
from sottovoce.models.network import Network
from sottovoce.models.trainer import LocalTraining, Shard, Trainer, batches
from sottovoce.models.zoo import NAMES, network

__all__ = [
    "NAMES",
    "Front",
    "LocalTraining",
    "Model",
    "Network",
    "Shard",
    "Trainer",
    "all_features",
    "answered",
    "batches",
    "choose_trainer",
    "evaluate",
    "guessed",
    "keeping_features",
    "make_front",
    "make_model",
    "make_trainer",
    "network",
    "training_gflop",
    "training_memory_mb",
    "training_seconds",
]
