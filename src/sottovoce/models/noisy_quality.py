"""Judge a model by noisy sums over records, and choose decision thresholds.

Sites that measure send, through a secure sum with noise, how many records of each class they set aside, how many were
answered rightly, and a histogram of the scores of each class. All that is told here follows from these sums, so it
costs nothing more; what the noise hides is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.models.quality import LEVEL, Baseline, short_share

HIDDEN: Final = 4.0  # a count of fewer deviations of its noise is hidden
_MOST: Final = 400  # thresholds that are compared
_ASTRAY: Final = 0.05  # of a class: noise of a sum over all bins from which on a law is fitted

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class NoisySums:
    """What sites told of the records that they set aside; `edges` are those of the bins of histograms, in logits."""

    counts: Numbers  # of each class
    right: Numbers
    histograms: Numbers | None  # of both classes, where there are two
    edges: Numbers
    stddev: float  # of the noise on each number

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> NoisySums:
        """Read what `describe` wrote."""
        bins = told["histograms"]
        return cls(
            counts=np.array(told["counts"], np.float64),
            right=np.array(told["right"], np.float64),
            histograms=None if bins is None else np.array(bins, np.float64),
            edges=np.array(told["edges"], np.float64),
            stddev=float(told["stddev"]),
        )

    def describe(self) -> dict[str, Any]:
        """Return plain JSON; two digits are enough beside the noise."""
        return {
            "counts": [round(float(each), 2) for each in self.counts],
            "right": [round(float(each), 2) for each in self.right],
            "histograms": None if self.histograms is None else np.round(self.histograms, 2).tolist(),
            "edges": [float(edge) for edge in self.edges],
            "stddev": float(self.stddev),
        }

    def seen(self, count: float) -> bool:
        """Tell whether a count can be told from noise."""
        return count >= max(1.0, HIDDEN * self.stddev)

    def judge(self, names: Sequence[str], accuracy: float | None, intervals: Mapping[str, Any]) -> dict[str, Any]:
        """Return what `quality.judge` tells, as far as the noise lets it be seen; `accuracy` is the one measured."""
        shares = [
            min(1.0, max(0.0, float(right / count))) if self.seen(count) else None
            for right, count in zip(self.right, self.counts, strict=True)
        ]
        known = [(share, name) for share, name in zip(shares, names, strict=True) if share is not None]
        two = self.histograms is not None
        total, most = float(self.counts.sum()), int(self.counts.argmax())
        visible = accuracy is not None and self.seen(total)
        baseline = Baseline(names[most], min(1.0, float(self.counts[most]) / total)) if visible else None
        hidden = [name for name, share in zip(names, shares, strict=True) if share is None]
        return {
            "records": max(0, round(total)),
            "accuracy": accuracy,
            "baseline": None if baseline is None else baseline._asdict(),
            "verdict": None if baseline is None else self._verdict(accuracy, baseline, intervals.get("accuracy")),
            "level": LEVEL,
            "intervals": dict(intervals),
            "classes": list(names),
            "accuracy_by_class": shares,
            "worst_class": dict(zip(("accuracy", "name"), min(known), strict=True)) if known else None,
            "confusion": self._confusion() if two and not hidden else None,
            "sensitivity": shares[1] if two else None,
            "specificity": shares[0] if two else None,
            "calibration_error": self._calibration_error() if two else None,
            "calibration": None,
            "threshold": self.threshold() if two and not hidden else None,
            "noise": f"every number was computed from sums with noise of standard deviation {self.stddev:.3g} records"
            + (f"; it hides the class {', '.join(hidden)}" if hidden else ""),
        }

    def _verdict(self, accuracy: float | None, baseline: Baseline, interval: Sequence[float] | None) -> str | None:
        """Say that the model is no better than the baseline; of both the noise is in the interval."""
        if accuracy is None or interval is None:
            return None
        share = baseline.accuracy
        noise = 1.96 * self.stddev * math.sqrt((1 - share) ** 2 + (len(self.counts) - 1) * share**2)
        if accuracy - max(accuracy - interval[0], noise / float(self.counts.sum())) > share:
            return None
        words = f"no better than always answering {baseline.answer!r} ({short_share(share)})"
        if accuracy > share:
            low, high = (short_share(bound) for bound in interval)
            words += f", as far as noise and the records set aside let it be seen (accuracy {low} to {high})"
        return words

    def _confusion(self) -> list[list[int]]:
        right, wrong = np.clip(self.right, 0, None), np.clip(self.counts - self.right, 0, None)
        rows = [[right[0], wrong[0]], [wrong[1], right[1]]]
        return [[round(float(cell)) for cell in row] for row in rows]

    def _calibration_error(self) -> float | None:
        """Return the mean distance of stated probability and share of class 1, over bins that can be seen."""
        if self.histograms is None:
            return None
        centres = (self.edges[1:] + self.edges[:-1]) / 2
        stated, both = 1 / (1 + np.exp(-centres)), self.histograms.sum(0)
        bins = np.flatnonzero(both >= max(1.0, HIDDEN * self.stddev * math.sqrt(2)))
        if not len(bins):
            return None
        shares = np.clip(self.histograms[1][bins] / both[bins], 0, 1)
        return float((both[bins] * np.abs(shares - stated[bins])).sum() / both[bins].sum())

    def threshold(self) -> dict[str, Any] | None:
        """Return the edge of a bin from which on class 1 should be answered, and what it gives; None if hidden."""
        if self.histograms is None or not all(self.seen(count) for count in self.counts):
            return None
        below, above = self._below(0), 1 - self._below(1)
        inner = slice(1, -1)  # the outermost edges answer the same for everybody
        best = 1 + int(np.argmax((below + above)[inner]))
        sensitivity, specificity = (min(1.0, max(0.0, float(each[best]))) for each in (above, below))
        return _told(float(self.edges[best]), sensitivity, specificity)

    def _below(self, label: int) -> Numbers:
        """Return the share of a class below each edge: as counted, or where noise would lead astray, of a normal law.

        The largest of many noisy sums is often the noisiest. A law with two parameters, fitted to all bins, is not; and
        where the other class is seen well, it has as wide scores, and class 1 scores higher: one parameter is left.
        """
        if self.histograms is None:
            return np.zeros(len(self.edges))
        bins, count = self.histograms[label], self.counts[label]
        if self._counted(label):
            return np.asarray(np.concatenate([[0.0], np.cumsum(bins)]) / count)
        centres, widths = self._laws(label)
        scaled = (self.edges - centres[:, None]) / (widths[:, None] * math.sqrt(2))
        laws = 0.5 * (1 + np.array([math.erf(value) for value in scaled.ravel()]).reshape(scaled.shape))
        laws[..., 0], laws[..., -1] = 0.0, 1.0  # the outermost bins have what lies beyond
        distances = np.square(np.diff(laws) - bins / count).sum(axis=-1)
        return np.asarray(laws[int(np.argmin(distances))])

    def _counted(self, label: int) -> bool:
        """Tell whether a sum over all bins of a class is seen well in its noise."""
        return self.stddev * math.sqrt(len(self.edges) - 1) <= _ASTRAY * float(self.counts[label])

    def _laws(self, label: int) -> tuple[Numbers, Numbers]:
        """Return centres and widths of the normal laws that a class may have."""
        middles = (self.edges[1:] + self.edges[:-1]) / 2
        if self.histograms is not None and self._counted(1 - label):
            seen = np.clip(self.histograms[1 - label], 0, None)
            mean = float(seen @ middles / seen.sum())
            spread = math.sqrt(float(seen @ np.square(middles - mean) / seen.sum()))
            shifts = np.linspace(0.0, 4.0, 41) * (1 if label else -1)
            return mean + spread * shifts, np.full(len(shifts), spread)
        places = np.linspace(0, len(middles), 3 * len(middles) + 1)  # as fine as the bins are
        centres = np.interp(places, np.arange(len(self.edges)), self.edges)
        widths = np.array([0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0])
        return np.repeat(centres, len(widths)), np.tile(widths, len(centres))


def choose_threshold(scores: NDArray[np.floating], labels: NDArray[Any]) -> dict[str, Any] | None:
    """Return the threshold with the best balanced accuracy on these records; None if they have one class.

    >>> choose_threshold(np.array([-3.0, -2.0, -1.0, -0.5]), np.array([0, 0, 1, 1]))["sensitivity"]
    1.0
    """
    logits, ones = np.asarray(scores, np.float64), np.asarray(labels) == 1
    if logits.ndim != 1 or not np.isfinite(logits).all() or not 0 < ones.sum() < len(ones):
        return None
    values = np.unique(logits)
    middles = (values[1:] + values[:-1]) / 2
    if len(middles) > _MOST:
        middles = middles[np.linspace(0, len(middles) - 1, _MOST).astype(int)]
    if not len(middles):
        return None
    high, low = np.sort(logits[ones]), np.sort(logits[~ones])
    sensitivity = 1 - np.searchsorted(high, middles, side="right") / len(high)
    specificity = np.searchsorted(low, middles, side="right") / len(low)
    best = int(np.argmax(sensitivity + specificity))
    return _told(float(middles[best]), float(sensitivity[best]), float(specificity[best]))


def _told(logit: float, sensitivity: float, specificity: float) -> dict[str, Any]:
    return {"probability": 1 / (1 + math.exp(-logit)), "sensitivity": sensitivity, "specificity": specificity}
