from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.models import Shard, Trainer


def updates_of(
    trainer: Trainer, params: NDArray[Any], shards: Sequence[Shard], rngs: Sequence[Generator], trainable: Any = None
) -> NDArray[np.float32]:
    """Return the updates of all shards at once, a row each."""
    rows = [row.copy() for row in trainer.updates(params, shards, rngs, trainable)]
    return np.array(rows, np.float32).reshape(len(shards), params.size)
