"""Dead leaves: synthetic images from a seed, for whatever needs public images and has none.

An image is a black ground on which 1 to 8 leaves fall, each covering what lies below: an ellipse or a rectangle, at
any place and angle, with half-axes log-uniform from 1.5 to 12 pixels of a 28 x 28 image (in proportion for other
sizes), and a uniform grey (where there are several channels, half of it grey and half a colour). Half of the leaves
have a sine wave across. Occlusion, and sizes without a scale of their own, are what photographs have in common (Lee,
Mumford and Huang 2001, "Occlusion models for natural images"), so edges and their neighbours are distributed much as
there.

What is public, and why: there is no photograph, no person and no record behind these images. They are a function of
the seed and of what this file says, so whatever is measured on them costs no privacy.

All numbers come from the raw words of the bit generator, whose stream numpy never changes.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.core.streams import Purpose, Streams
from sottovoce.core.validate import in_range
from sottovoce.data.dataset import Dataset

LEAVES: Final = "leaves"  # the name as a source
SEED: Final = 1

_MOST: Final = 8  # leaves of an image
_HALF_AXES: Final = (1.5, 12.0)  # of an image of 28 x 28
_WAVES: Final = (0.2 * math.pi, math.pi)  # radians a pixel
_CHUNK: Final = 500  # images that are painted at once
_NUMBERS: Final = 12  # of a leaf, beside its colour

Images = NDArray[np.float32]


def leaves(
    shape: tuple[int, ...] = (28, 28, 1),
    classes: int = 10,
    *,
    records: int = 10_000,
    seed: int = SEED,
    input_scale: float = 1 / 255,
) -> Dataset:
    """Return dead leaves as a data set, with a fifth as many test images; a network sees values from 0 to 1.

    The label of an image, of which there are `classes`, decides shape and angle of its uppermost leaf.

    >>> leaves((8, 8, 3), classes=2, records=20).x_train.shape
    (20, 8, 8, 3)
    """
    if len(shape) != 3:
        raise DataError(f"{LEAVES} are images (height, width, channels), and records of shape {shape} are none")
    in_range("records", records, low=1)
    values, labels = draw_leaves(records + max(1, records // 5), shape, classes, seed)
    stored: NDArray[Any] = values / np.float32(input_scale)
    if input_scale != 1:
        stored = np.rint(stored).astype(np.uint8)
    return Dataset(
        name=LEAVES,
        x_train=stored[:records],
        y_train=labels[:records],
        x_test=stored[records:],
        y_test=labels[records:],
        classes=classes,
        input_scale=input_scale,
    )


def describe_leaves(records: int, seed: int = SEED) -> str:
    """Say in a summary what these images are.

    >>> describe_leaves(4000)
    'synthetic: dead leaves, seed 1, 4,000 images'
    """
    return f"synthetic: dead leaves, seed {seed}, {records:,} images"


def draw_leaves(images: int, shape: tuple[int, ...], classes: int, seed: int) -> tuple[Images, NDArray[np.uint8]]:
    """Return images with values in [0, 1], and their labels; the first images do not depend on how many are drawn."""
    height, width, channels = shape
    in_range("classes", classes, low=2, high=256)
    raw = Streams(seed).get(Purpose.SETUP).bit_generator.random_raw
    painted = np.zeros((images, height, width, channels), np.float32)
    labels = np.empty(images, np.uint8)
    each = 2 + _MOST * (_NUMBERS + channels)
    for start in range(0, images, _CHUNK):
        part = painted[start : start + _CHUNK]
        words = np.asarray(raw(len(part) * each)).reshape(len(part), each)
        uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        counts = 1 + (uniform[:, 0] * _MOST).astype(np.int64)
        labels[start : start + _CHUNK] = (uniform[:, 1] * classes).astype(np.uint8)
        leaf = uniform[:, 2:].reshape(len(part), _MOST, -1)
        _mark(leaf, counts, labels[start : start + _CHUNK], classes)
        for layer in range(_MOST):
            falls = np.flatnonzero(layer < counts)
            part[falls] = _painted(part[falls], leaf[falls, layer])
    return painted, labels


def _mark(leaf: NDArray[np.float64], counts: NDArray[np.int64], labels: NDArray[np.uint8], classes: int) -> None:
    """Let the label decide kind and angle of the uppermost leaf."""
    top = np.arange(len(leaf)), counts - 1
    leaf[(*top, 4)] = (labels // 2) / math.ceil(classes / 2)
    leaf[(*top, 5)] = (labels % 2) / 2


def _painted(ground: Images, leaf: NDArray[np.float64]) -> Images:
    """Return the images with one more leaf each; `leaf` are its uniform numbers."""
    _, height, width, channels = ground.shape
    # In double precision: processors that differ in the last bit of a sine still paint the same pixels.
    numbers = np.moveaxis(leaf, 1, 0)[:, :, None, None]
    low, high = (math.log(axis * math.sqrt(height * width) / 28) for axis in _HALF_AXES)
    first, second = (np.exp(low + (high - low) * numbers[which]) for which in (2, 3))
    rows, columns = np.mgrid[0:height, 0:width]
    down, right = rows + 0.5 - numbers[0] * height, columns + 0.5 - numbers[1] * width
    angle = math.pi * numbers[4]
    along = (right * np.cos(angle) + down * np.sin(angle)) / first
    across = (down * np.cos(angle) - right * np.sin(angle)) / second
    ellipse = along**2 + across**2 <= 1
    rectangle = (np.abs(along) <= 1) & (np.abs(across) <= 1)
    covered = np.where(numbers[5] < 0.5, ellipse, rectangle)
    # A wave of its own direction; of every second leaf its height is 0.
    slowest, fastest = _WAVES
    direction = math.pi * numbers[8]
    phase = (slowest + (fastest - slowest) * numbers[7]) * (columns * np.cos(direction) + rows * np.sin(direction))
    wave = 0.5 * numbers[10] * np.sin(phase + 2 * math.pi * numbers[9])
    wave = np.where(numbers[6] < 0.5, wave, 0)
    colour = np.moveaxis(numbers[_NUMBERS : _NUMBERS + channels], 0, 3)
    colour = numbers[11][..., None] if channels == 1 else (numbers[11][..., None] + colour) / 2
    return np.where(covered[..., None], np.clip(colour + wave[..., None], 0, 1), ground).astype(np.float32)
