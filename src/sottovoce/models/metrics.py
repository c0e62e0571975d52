"""Turn scores into the numbers of a report."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError

__all__ = ["answered", "evaluate", "guessed"]


def evaluate(scores: NDArray[np.floating], y: NDArray[Any], binary: bool) -> dict[str, float]:
    """Return accuracy and mean loss; for a binary network also balanced accuracy and AUROC.

    A score that is not finite counts as a wrong answer, and makes the loss and the AUROC NaN; so does a test set of one
    class for the two binary metrics.

    >>> evaluate(np.array([[2.0, 0.0], [0.0, 0.0]]), np.array([0, 1]), binary=False)["accuracy"]
    0.5
    """
    correct = answered(scores, y, binary)
    logits, wanted = np.asarray(scores, np.float64), np.asarray(y, np.int64)
    healthy = bool(np.isfinite(logits).all())
    metrics = {"accuracy": float(correct.mean()), "loss": _loss(logits, wanted, binary) if healthy else math.nan}
    if binary:
        metrics |= _binary_metrics(logits, wanted, correct, healthy)
    return metrics


def answered(scores: NDArray[np.floating], y: NDArray[Any], binary: bool) -> NDArray[np.bool_]:
    """Tell of each record whether its class was found; a score that is not finite finds nothing."""
    logits, wanted = np.asarray(scores, np.float64), np.asarray(y, np.int64)
    if len(wanted) == 0 or logits.shape[0] != len(wanted) or logits.ndim != (1 if binary else 2):
        raise InputError(f"scores of shape {logits.shape} do not fit {len(wanted)} labels")
    return np.asarray(guessed(logits, binary) == wanted)


def guessed(scores: NDArray[np.floating], binary: bool) -> NDArray[np.int64]:
    """Return the class that each record is taken for; -1 where a score is not finite.

    >>> guessed(np.array([[2.0, 0.0], [np.nan, 0.0]]), binary=False).tolist()
    [0, -1]
    """
    finite = np.isfinite(scores).reshape(len(scores), -1).all(1)
    guesses = scores > 0 if binary else scores.argmax(1)
    return np.where(finite, guesses, -1).astype(np.int64)


def _binary_metrics(
    logits: NDArray[np.float64], wanted: NDArray[np.int64], correct: NDArray[np.bool_], healthy: bool
) -> dict[str, float]:
    # Imported here: it takes a second, and most runs never need it.
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    mixed = 0 < wanted.sum() < len(wanted)
    guesses = np.where(correct, wanted, 1 - wanted)
    return {
        "balanced_accuracy": float(balanced_accuracy_score(wanted, guesses)) if mixed else math.nan,
        "auroc": float(roc_auc_score(wanted, logits)) if mixed and healthy else math.nan,
    }


def _loss(logits: NDArray[np.float64], wanted: NDArray[np.int64], binary: bool) -> float:
    if binary:
        return float((np.logaddexp(0, logits) - wanted * logits).mean())
    shifted = logits - logits.max(1, keepdims=True)
    chosen = np.take_along_axis(shifted, wanted[:, None], 1)[:, 0]
    return float((np.log(np.exp(shifted).sum(1)) - chosen).mean())
