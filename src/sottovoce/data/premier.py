"""Synthetic hospital records in the shape of the papers' closed ones: nobody's, drawn from a seed.

The papers train on the Premier data base, which cannot be had. What they print of it is kept: 1,271,733 admissions, of
which 80 % train, 7,280 features that are 0 or 1 (drugs and diagnoses of the first day), 3.16 % deaths, 415 hospitals.
All else is ours and plainly simpler: features occur by Zipf's law and independently of each other, and the chance of
death is logistic in them. Its weights are drawn once and scaled so that no model can have an AUROC above 0.83.

    an admission has 8 to 40 draws from p(j) ~ 1 / (j + 20); drawn twice counts once
    P[death | x] = 1 / (1 + exp(-(OFFSET + SCALE sum_j w_j x_j))),  w_j standard normal

Figures on these records say how schemes compare at this size and rarity. They say nothing about patients.
All numbers come from the raw words of the bit generator, whose stream numpy never changes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.streams import Purpose, Streams
from sottovoce.core.validate import in_range
from sottovoce.data.compact import CompactColumn, CompactFeatures
from sottovoce.data.dataset import Dataset

PREMIER: Final = "premier-synthetic"  # the name as a source
TRAIN, TEST = 1_017_386, 254_347
FEATURES: Final = 7_280
HOSPITALS: Final = 415
FEWEST, MOST = 8, 40  # draws of an admission
SEED: Final = 1
# Found by bisection over a million admissions: 3.16 % deaths, and an AUROC of 0.83 for the chance itself.
SCALE: Final = 0.2904
OFFSET: Final = -4.2222

_SHIFT: Final = 20  # of Zipf's law
_BLOCK: Final = 1 << 16  # admissions that are drawn at once

Floats = NDArray[np.float64]


def premier(train: int = TRAIN, test: int = TEST, seed: int = SEED) -> Dataset:
    """Return so many synthetic admissions; the first ones are the same however many there are.

    >>> premier(100, 20).x_train.shape
    (100, 7280)
    """
    from scipy.special import ndtri  # a node that lists the data sets needs no scipy

    in_range("train", train, low=1)
    in_range("test", test, low=1)
    streams = Streams(seed)
    weights = SCALE * ndtri(_uniform(streams.get(Purpose.INIT, 0), FEATURES))
    sizes = np.exp(ndtri(_uniform(streams.get(Purpose.INIT, 1), HOSPITALS)))  # log-normal
    parts = [_admissions(streams, part, count, weights, sizes) for part, count in enumerate((train, test))]
    (x_train, y_train, ids), (x_test, y_test, _) = parts
    return Dataset(PREMIER, x_train, y_train, x_test, y_test, classes=2, ids=ids)  # type: ignore[arg-type]


def _admissions(
    streams: Streams, part: int, count: int, weights: Floats, sizes: Floats
) -> tuple[CompactFeatures, NDArray[np.uint8], NDArray[np.int64]]:
    """Return the features, deaths and hospitals of one part of the admissions."""
    from scipy.special import expit

    zipf = np.cumsum(1 / (np.arange(FEATURES) + 1 + _SHIFT))
    weights = np.append(weights, 0.0)  # the last: no feature
    shares = np.cumsum(sizes)
    places = np.full((count, MOST), FEATURES, np.uint16)
    died, hospital = np.empty(count, np.uint8), np.empty(count, np.int64)
    for block, start in enumerate(range(0, count, _BLOCK)):
        rng = streams.get(Purpose.PARTITION, part, block)
        rows = slice(start, min(start + _BLOCK, count))
        coins = _uniform(rng, _BLOCK * (MOST + 3)).reshape(_BLOCK, MOST + 3)[: rows.stop - start]
        drawn = np.searchsorted(zipf, coins[:, :MOST] * zipf[-1], side="right")
        many = FEWEST + np.floor(coins[:, MOST] * (MOST + 1 - FEWEST))
        drawn[np.arange(MOST) >= many[:, None]] = FEATURES
        drawn.sort(axis=1)
        drawn[:, 1:][drawn[:, 1:] == drawn[:, :-1]] = FEATURES
        died[rows] = coins[:, MOST + 1] < expit(OFFSET + weights[drawn].sum(axis=1))
        hospital[rows] = np.searchsorted(shares, coins[:, MOST + 2] * shares[-1], side="right")
        places[rows] = drawn
    column = CompactColumn(FEATURES, places, np.float32(1))
    return CompactFeatures((column,), count), died, hospital


def _uniform(rng: Generator, count: int) -> Floats:
    """Return numbers between 0 and 1, never either of them."""
    words = np.asarray(rng.bit_generator.random_raw(count), np.uint64) >> np.uint64(11)
    return words.astype(np.float64) * 2.0**-53 + 2.0**-54
