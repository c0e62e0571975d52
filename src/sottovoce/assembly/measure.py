"""Measure what must be known before round 1: which coordinates matter, and how long messages are."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.assembly.parts import Parts
from sottovoce.core.errors import InputError
from sottovoce.core.streams import Purpose, Seeds, Streams
from sottovoce.core.vectors import Vector
from sottovoce.data import balance
from sottovoce.federation.engine import Evaluator
from sottovoce.privacy.noise.clipping import public_clip_norm, unsafe_clip_norm
from sottovoce.schemes import Scheme, importance

MEASURED: Final = ("public", "private")  # the values of `[privacy] clipping` that measure S before round 1
_SETS: Final = 100  # coordinate sets that S is the median over, where every round has a set of its own


def public_choices(parts: Parts) -> Streams:
    """Return the streams by which public records are chosen: they hide nothing, and a resumed run must repeat them."""
    return Seeds(parts.seeds.seed).server


def public_records(parts: Parts) -> NDArray[np.int64]:
    """Return the places of the public records that are used: all, or a balanced part if clients balance theirs.

    Thesis 4.2.2, footnote 6: of 356 patients 12 of each class remain.
    """
    labels = parts.splits["public"].y_train
    if not parts.experiment.client.balanced:
        return np.arange(len(labels))
    return balance(labels, public_choices(parts).get(Purpose.PUBLIC, 3))


def coordinate_importance(parts: Parts, evaluator: Evaluator) -> Vector:
    """Return how much each coordinate matters on public data, by T_init steps on one batch (thesis 4.2.2).

    With `public_batch`, each step takes that many other records instead, which is beyond the papers.
    """
    table = parts.experiment.scheme
    records = public_records(parts)

    def gradient(params: Vector, step: int) -> Vector:
        batch = records
        if table.public_batch is not None:
            rng = public_choices(parts).get(Purpose.PUBLIC, 0, step)
            batch = rng.permutation(records)[: table.public_batch]
        return evaluator.gradient(params, "public", batch)

    return importance(gradient, parts.start, table.public_steps, parts.training().client_lr)


def measured_clip_norm(parts: Parts, evaluator: Evaluator, bound: Scheme) -> float | None:
    """Return S as the papers find it, at w_0; None if it is given or adapts.

    A scheme whose coordinates are new every round is measured on 100 sets (thesis 5.4.5), those of rounds 1 to 100.
    """
    table = parts.experiment.privacy
    if table is None or table.clipping not in MEASURED:
        return None
    seeds = list(dict.fromkeys(bound.round_seed(round_) for round_ in range(1, _SETS + 1)))
    if table.clipping == "public":
        norms = evaluator.public_norms(bound, parts.start, _public_shards(parts), seeds)
        return public_clip_norm(norms, quantile=table.clip_quantile)
    norms = evaluator.client_norms(bound, parts.start, _first_cohort(parts), seeds)
    return unsafe_clip_norm(norms, quantile=table.clip_quantile)


def _public_shards(parts: Parts) -> list[NDArray[np.int64]]:
    """Deal all public records to as many shards as there can be of at least a client's usual size."""
    records = public_records(parts)
    shards = max(1, len(records) // max(1, round(parts.mean_size)))
    order = public_choices(parts).get(Purpose.PUBLIC, 2).permutation(len(records))
    return np.array_split(records[order], shards)


def _first_cohort(parts: Parts) -> list[int]:
    """Draw the clients that are measured, by the same law as those of any round."""
    drawn: list[int] = parts.cohort.draw(parts.seeds.server.get(Purpose.COHORT, 0, 1)).tolist()
    if not drawn:
        raise InputError(
            '[privacy] clipping = "private" drew no client to measure; raise [cohort] sample_rate or set clip_norm '
            'with clipping = "fixed"'
        )
    return drawn
