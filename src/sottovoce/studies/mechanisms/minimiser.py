"""The minimiser of regularised softmax regression, found closely enough that its sensitivity is known.

    F(W; D) = 1/n sum_i loss(W; x_i, y_i) + regulariser / 2 ||W||^2,    loss = -log softmax(W x)_y,    ||x|| <= 1

Sensitivity (after Chaudhuri, Monteleoni and Sarwate 2011, whose two classes become many). The gradient of a record's
loss is (p - e_y) x^T with p = softmax(W x), and ||p - e_y||_2 <= sqrt(2), because both are probability vectors; so its
norm is at most sqrt(2). Let W_1, W_2 minimise F for data sets that differ in one record z, z' of n. F is strongly
convex, so regulariser ||W_1 - W_2|| <= ||grad F(W_2; D_1)|| = ||grad F(W_2; D_1) - grad F(W_2; D_2)|| =
1/n ||grad loss(W_2; z) - grad loss(W_2; z')|| <= 2 sqrt(2) / n.

What is released is not W_1 but V_1 with ||grad F(V_1; D_1)|| <= tolerance, hence ||V_1 - W_1|| <= tolerance /
regulariser, and the same for the neighbour. Together

    ||V_1 - V_2||_2 <= (2 sqrt(2) / n + 2 tolerance) / regulariser.

The intercepts are the weights of a constant feature within ||x|| <= 1: regularised, counted and noised like all others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import RunError
from sottovoce.core.validate import in_range

Values = NDArray[np.float64]
Labels = NDArray[np.integer[Any]]


def l2_sensitivity(records: int, regulariser: float, tolerance: float) -> float:
    """Return how far one record can move the released minimiser in L2 norm.

    >>> round(l2_sensitivity(1000, 0.1, 0.0), 6) == round(2 * 2**0.5 / 100, 6)
    True
    """
    in_range("records", records, low=1)
    in_range("regulariser", regulariser, low=0, open_low=True)
    in_range("tolerance", tolerance, low=0)
    return (2 * math.sqrt(2) / records + 2 * tolerance) / regulariser


def l1_sensitivity(records: int, regulariser: float, tolerance: float, dim: int) -> float:
    """Return how far one record can move the released minimiser in L1 norm: ||v||_1 <= sqrt(dim) ||v||_2."""
    in_range("dim", dim, low=1)
    return math.sqrt(dim) * l2_sensitivity(records, regulariser, tolerance)


def minimise(
    x: Values, y: Labels, classes: int, regulariser: float, tolerance: float, start: Values | None = None
) -> Values:
    """Return weights (classes, features) at which the gradient of F has norm at most `tolerance`, or raise.

    Guarantee: the sensitivity formula holds whatever `start` is, because the norm of the gradient is checked.
    """
    from scipy.optimize import minimize

    length = float(np.sqrt((x * x).sum(1).max(initial=0.0)))
    if length > 1 + 1e-9:
        raise RunError(f"a record has length {length:.6g}, and the sensitivity holds for lengths of at most 1")
    shape = (classes, x.shape[1])
    hot = np.eye(classes)[y]

    def objective(flat: Values) -> tuple[float, Values]:
        value, gradient = _objective(flat.reshape(shape), x, hot, regulariser)
        return value, gradient.reshape(-1)

    flat = np.zeros(shape).reshape(-1) if start is None else np.array(start, np.float64).reshape(-1)
    for _ in range(5):  # a line search that gives up for lack of digits is started anew
        limit = 0.5 * tolerance / math.sqrt(flat.size)
        found = minimize(
            objective,
            flat,
            jac=True,
            method="L-BFGS-B",
            options={"gtol": limit, "ftol": 0.0, "maxiter": 5000, "maxfun": 10000, "maxcor": 20},
        )
        flat = found.x
        if gradient_norm(flat.reshape(shape), x, y, regulariser) <= tolerance:
            return np.asarray(flat.reshape(shape))
    raise RunError(
        f"the minimiser was not found to a gradient of {tolerance:g}; raise tolerance or regulariser, the noise follows"
    )


def gradient_norm(weights: Values, x: Values, y: Labels, regulariser: float) -> float:
    """Return the L2 norm of the gradient of F."""
    return float(np.linalg.norm(_objective(weights, x, np.eye(len(weights))[y], regulariser)[1]))


def _objective(weights: Values, x: Values, hot: Values, regulariser: float) -> tuple[float, Values]:
    scores = x @ weights.T
    scores -= scores.max(1, keepdims=True)
    exponents = np.exp(scores)
    totals = exponents.sum(1, keepdims=True)
    loss = float((np.log(totals[:, 0]) - (scores * hot).sum(1)).mean())
    gradient = (exponents / totals - hot).T @ x / len(x) + regulariser * weights
    return loss + 0.5 * regulariser * float((weights * weights).sum()), gradient
