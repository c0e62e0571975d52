"""Add shifted and mirrored copies of images to the train records, as thesis 8.3.2 does with CIFAR-10."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range
from sottovoce.data.dataset import Dataset

_FURTHEST: Final = 0.1  # of the height or the width: how far an image is shifted at most


def augmented(dataset: Dataset, times: int, rng: Generator) -> Dataset:
    """Return the data set with `times` as many train records: the originals, then their changed copies.

    Each copy is shifted up or down and to the left or the right by a whole number of pixels of at most a tenth of the
    size, where the edge is repeated, and mirrored with probability 1/2. The thesis does not print how far; a tenth is
    what the manual of its library, Keras, shows for CIFAR-10. A copy has the label and the owner of its original.
    """
    in_range("augment", times, low=1)
    if times == 1:
        return dataset
    images = dataset.x_train
    if images.ndim != 4:
        raise InputError(f"[data] augment shifts and mirrors images, and {dataset.name} has none; remove it")
    copies = [_copy(images, rng) for _ in range(times - 1)]
    return replace(
        dataset,
        x_train=np.concatenate([images, *copies]),
        y_train=np.tile(dataset.y_train, times),
        ids=None if dataset.ids is None else np.tile(dataset.ids, times),
        persons=None if dataset.persons is None else np.tile(dataset.persons, times),
        properties={
            name: known._replace(train=np.tile(known.train, times)) for name, known in dataset.properties.items()
        },
    )


def _copy(images: NDArray[Any], rng: Generator) -> NDArray[Any]:
    """Return a changed copy of each image."""
    count, height, width, _ = images.shape
    down, right = (
        rng.integers(-far, far, (count,), endpoint=True) for far in (int(_FURTHEST * height), int(_FURTHEST * width))
    )
    mirrored = rng.random((count,)) < 0.5
    changed = np.empty_like(images)
    for record in range(count):
        # Where a pixel comes from; a place beyond the edge is the edge's.
        rows = np.clip(np.arange(height) - down[record], 0, height - 1)
        columns = np.clip(np.arange(width) - right[record], 0, width - 1)
        changed[record] = images[record][rows[:, None], columns[::-1] if mirrored[record] else columns]
    return changed
