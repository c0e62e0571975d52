"""The defences as their papers say them: slow, obvious, in float64, one coordinate or one pair at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def median(x: Array, f: int, g: Array) -> Array:
    return np.median(x, axis=0)


def trimmed_mean(x: Array, f: int, g: Array) -> Array:
    return np.array([np.mean(sorted(column)[f : len(column) - f]) for column in x.T])


def krum_scores(x: Array, left: list[int], neighbours: int) -> dict[int, tuple[float, float]]:
    found = {}
    for i in left:
        distances = sorted(math.fsum((x[i] - x[j]) ** 2) for j in left if j != i)
        found[i] = (math.fsum(distances[:neighbours]), math.fsum(distances))
    return found


def krum(x: Array, f: int, g: Array) -> Array:
    scores = krum_scores(x, list(range(len(x))), len(x) - f - 2)
    return np.asarray(x[min(scores, key=lambda i: (*scores[i], i))])


def multi_krum(x: Array, f: int, g: Array) -> Array:
    scores = krum_scores(x, list(range(len(x))), len(x) - f - 2)
    chosen = sorted(scores, key=lambda i: (*scores[i], i))[: len(x) - f]
    return np.asarray(x[chosen].mean(axis=0))


def bulyan(x: Array, f: int, g: Array) -> Array:
    left, chosen = list(range(len(x))), []
    while len(chosen) < len(x) - 2 * f:
        scores = krum_scores(x, left, max(1, len(left) - f - 2))
        best = min(scores, key=lambda i: (*scores[i], i))
        left.remove(best)
        chosen.append(best)
    out = []
    for column in x[chosen].T:
        middle = np.median(column)
        closest = sorted(column, key=lambda value: (abs(value - middle), value))
        out.append(np.mean(closest[: len(chosen) - 2 * f]))
    return np.array(out)


def geometric_median(x: Array, f: int, g: Array) -> Array:
    v = np.median(x, axis=0)
    for _ in range(2000):
        weights = [1 / max(1e-9, float(np.linalg.norm(row - v))) for row in x]
        before, v = v, sum(weight * row for weight, row in zip(weights, x, strict=True)) / sum(weights)
        if np.array_equal(before, v) or np.linalg.norm(before - v) < 1e-12 * np.linalg.norm(v):
            break
    return np.asarray(v)


def norm_bound(x: Array, f: int, g: Array) -> Array:
    norms = [float(np.linalg.norm(row)) for row in x]
    bound = np.median(norms)
    return np.mean([row * min(1, bound / norm) for row, norm in zip(x, norms, strict=True)], axis=0)


def fltrust(x: Array, f: int, g: Array) -> Array:
    total, trusts = np.zeros(x.shape[1]), 0.0
    for row in x:
        trust = max(0, float(row @ g) / float(np.linalg.norm(row) * np.linalg.norm(g)))
        total += trust * np.linalg.norm(g) / np.linalg.norm(row) * row
        trusts += trust
    return total / trusts


TWINS: dict[str, Callable[[Array, int, Array], Array]] = {
    "median": median,
    "trimmed-mean": trimmed_mean,
    "krum": krum,
    "multi-krum": multi_krum,
    "bulyan": bulyan,
    "geometric-median": geometric_median,
    "norm-bound": norm_bound,
    "fltrust": fltrust,
}
