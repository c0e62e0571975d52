"""Describe networks as data and train them; torch is imported only when a trainer needs it."""

from __future__ import annotations

from sottovoce.models.base import Model
from sottovoce.models.choose import choose_trainer, make_trainer
from sottovoce.models.features import all_features, keeping_features
from sottovoce.models.fronts import Front, make_front
from sottovoce.models.metrics import METRICS, Metric, answered, better, evaluate, leading_metric
from sottovoce.models.network import Network
from sottovoce.models.task import LearningTask, TaskKeys
from sottovoce.models.trainer import (
    LocalTraining,
    Shard,
    Trainer,
    batches,
    safe_lr,
    training_gflop,
    training_memory_mb,
    training_seconds,
)
from sottovoce.models.zoo import NAMES, make_model, network

__all__ = [
    "METRICS",
    "NAMES",
    "Front",
    "LearningTask",
    "LocalTraining",
    "Metric",
    "Model",
    "Network",
    "Shard",
    "TaskKeys",
    "Trainer",
    "all_features",
    "answered",
    "batches",
    "better",
    "choose_trainer",
    "evaluate",
    "keeping_features",
    "leading_metric",
    "make_front",
    "make_model",
    "make_trainer",
    "network",
    "safe_lr",
    "training_gflop",
    "training_memory_mb",
    "training_seconds",
]
