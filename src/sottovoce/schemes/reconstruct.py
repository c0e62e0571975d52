"""Recover sparse updates from their low frequencies: the decompression D of FL-CS, for all chunks at once.

Symbols: y measured, Theta the first `kept` rows of the orthonormal DCT-II of size `length`, lambda `l1`, s the result.
Each chunk solves equation (4) of Kerkouche et al., "Compression Boosts Differentially Private Federated Learning"
(EuroS&P 2021), where the paper runs OWL-QN:

    min_s  P(s) = 1/2 ||y - Theta s||^2 + lambda ||s||_1                                             (primal)
    max_u  D(u) = y.u - 1/2 ||u||^2    such that |Theta^T u| <= lambda in every coordinate           (dual)

Any s and any feasible u satisfy D(u) <= min P <= P(s), so a chunk is done when P(s) - D(u) <= tolerance * P(s): no
solver can then be lower by more than `tolerance`, relative. Inside, all is divided by lambda: lambda is 1.

Neighbouring columns of Theta are nearly parallel, so first-order methods take many hundred steps. A few of them (ADMM:
Boyd et al., "Distributed optimization and statistical learning via ADMM", 2011, 6.4) find a start. Then an interior
point method (Mehrotra, "On the implementation of a primal-dual interior point method", 1992) keeps s = p - q and the
slacks a = 1 - Theta^T u and b = 1 + Theta^T u positive and leads p*a and q*b, all equal to mu, to 0. Its steps solve

    (I + Theta diag(p/a + q/b) Theta^T) du = y - u - Theta (m_a - m_b)

with m = 0 to predict, and with mu and the products of predicted changes in m to correct. The matrix is Toeplitz plus
Hankel: one DCT yields all its entries, and only its Cholesky factor, kept^3 / 3 multiplications, is dear. It is at
least the identity, so no pivot is below 1, which makes float32 safe. Five or six steps do, even for tiny lambda.

A chunk's result is the same to the bit whichever chunks come with it, on however many threads, and on every x86-64
processor: rows never mix, no BLAS is called, and the order and the rounding of every sum are written down here and not
left to a compiler (see `native_transforms.c`). A build of scipy for other processors may round transforms otherwise.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from sottovoce.core import native
from sottovoce.core.errors import InputError, RunError
from sottovoce.core.validate import all_finite, in_range

Array = NDArray[Any]  # float32, or float64 where float32 is too coarse

STEPS = 20  # of ADMM before a check
RELAX = 1.8  # of ADMM
INSIDE = 0.95  # how far towards the border of what is feasible a start or a step may go
CLOSE = 0.3  # the relative gap of a guess that is worth starting from
COARSE = 5e-4  # the least tolerance that float32 is asked for


def reconstruct(
    measured: NDArray[np.float32],
    length: int,
    l1: float,
    warm: NDArray[np.float32] | None = None,
    *,
    tolerance: float = 1e-3,
    max_iterations: int = 40,
) -> NDArray[np.float32]:
    """Return, for each row y of `measured`, an s of `length` values with P(s) <= (1 + tolerance) min P, or so.

    Precisely: the duality gap is at most `tolerance` times P(s), up to rounding. `warm`, a guess of the result, saves
    time where it is good and is ignored where it is not. `max_iterations` bounds the interior point steps.

    >>> spike = np.zeros((1, 64), np.float32)
    >>> spike[0, 40] = 1
    >>> found = reconstruct(fft.dct(spike, norm="ortho")[:, :16], 64, l1=1e-3)
    >>> int(found.argmax()), round(float(found.max()), 2)
    (40, 0.99)
    """
    if measured.ndim != 2 or not measured.shape[1]:
        raise InputError(f"measured must have a row of coefficients a chunk, got shape {measured.shape}")
    chunks, kept = measured.shape
    in_range("length", length, low=kept)
    in_range("l1", l1, low=0, high=np.inf, open_low=True, open_high=True)
    in_range("tolerance", tolerance, low=1e-9, high=1, open_high=True)
    in_range("max_iterations", max_iterations, low=1)
    all_finite("measured", measured)
    if warm is not None:
        if warm.shape != (chunks, length):
            raise InputError(f"warm must have shape {(chunks, length)}, got {warm.shape}")
        all_finite("warm", warm)

    result = np.zeros((chunks, length), np.float32)
    if not chunks:
        return result
    slope = _adjoint(measured, length)
    if kept == length:
        return _shrink(slope, l1)
    todo = np.flatnonzero(np.abs(slope).max(axis=1) > l1)  # for the others zero is the exact result

    def solve(rows: NDArray[np.intp]) -> None:
        for dtype in ("float32", "float64") if tolerance >= COARSE else ("float64",):
            y: Array = measured[rows].astype(dtype) / l1
            guess: Array = np.zeros((len(rows), length), dtype) if warm is None else warm[rows].astype(dtype) / l1
            with np.errstate(all="ignore"):  # what overflows has no gap, and is left over
                s, gap = _solve(y, guess, tolerance, max_iterations)
            result[rows] = s * l1
            left = ~(gap <= tolerance)
            rows, gap = rows[left], gap[left]
            if not rows.size:
                return
        raise RunError(
            f"chunk {rows[0]}: relative duality gap {gap[0]:.2g} > tolerance {tolerance:g} after {max_iterations} "
            f"iterations; raise l1 (now {l1:g}), tolerance or max_iterations"
        )

    size = max(1, min(16, 2**24 // kept**2))  # the factors of a block take 64 MB at most
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(solve, [todo[i : i + size] for i in range(0, len(todo), size)]))
    return result


def _solve(y: Array, guess: Array, tolerance: float, max_iterations: int) -> tuple[Array, Array]:
    """Return s and the relative gap of each row."""
    s, u, result, gap, relative = _approach(y, guess, tolerance)
    left = np.flatnonzero(~(relative <= tolerance))
    if left.size:
        result[left], relative[left] = _follow(y[left], s[left], u[left], gap[left], tolerance, max_iterations)
    return result, relative


def _approach(y: Array, s: Array, tolerance: float) -> tuple[Array, Array, Array, Array, Array]:
    """Return s, a feasible u, and what `_certify` says of them, after some steps of over-relaxed ADMM.

    The multiplier w of the constraint s = x has |rho w| <= 1, so that Theta (rho w) is nearly feasible.
    """
    kept, length, dtype = y.shape[1], s.shape[1], y.dtype.type
    if s.any():
        # The result for other measurements, such as those of the round before, has a gap of 0.6 to 0.9 and costs more
        # steps than it saves.
        s = np.where(_certify(y, s, np.zeros_like(y))[2][:, None] < CLOSE, s, dtype(0))
    rho = np.minimum(dtype(1), 2 / _most(np.abs(_adjoint(y, length))))
    w = np.clip(_adjoint(y - _forward(s, kept), length), -1, 1) / rho
    for _ in range(max(1, kept**3 // (2800 * length * STEPS))):  # go on while steps are cheap next to a factor
        for _ in range(STEPS):
            v = s - w
            x = v + _adjoint((y - _forward(v, kept)) / (1 + rho), length)
            x = RELAX * x + (1 - RELAX) * s + w
            w = np.clip(x, -1 / rho, 1 / rho)
            s = x - w
        u = _forward(rho * w, kept)
        u *= INSIDE / np.maximum(INSIDE, _most(np.abs(_adjoint(u, length))))
        result, gap, relative = _certify(y, s, u)
        if (relative <= tolerance).all():
            break
    return s, u, result, gap, relative


def _follow(y: Array, s: Array, u: Array, gap: Array, tolerance: float, max_iterations: int) -> tuple[Array, Array]:
    """Return s and the relative gap of each row by the interior point method; rows that are done leave the batch."""
    kept, length, dtype = y.shape[1], s.shape[1], y.dtype.type
    result, relative, rows = s.copy(), np.full(len(y), np.inf), np.arange(len(y))
    padded = -(-kept // 4) * 4
    factors = np.empty((len(y), padded, padded), dtype)
    slope = _adjoint(u, length)
    a, b = 1 - slope, 1 + slope
    mu = (0.15 / length * gap).astype(dtype)[:, None]
    p, q = np.maximum(s, 0) + mu / a, np.maximum(-s, 0) + mu / b
    for _ in range(max_iterations):
        # Predict where the step to mu = 0 leads: a part of it, `along` for p and q and `up` for u, a and b.
        _factorise(p / a + q / b, kept, factors)
        change = _adjoint(_substitute(factors, y - u), length)
        ra, rb = change / a, change / b
        along = 1 / np.maximum(1, np.maximum(1 - _least(ra), 1 + _most(rb)))
        up = 1 / np.maximum(1, np.maximum(_most(ra), -_least(rb)))
        before = _sum(p * a + q * b)
        after = _sum(p * a * (1 + along * (ra - 1)) * (1 - up * ra) + q * b * (1 - along * (rb + 1)) * (1 + up * rb))
        mu = (after / before) ** 2 * before / (2 * length)

        # Correct: aim at mu, and make up for the products of changes that the prediction left out.
        ma = mu / a + p * (ra - 1) * ra
        mb = mu / b + q * (rb + 1) * rb
        du = _substitute(factors, y - u - _forward(ma - mb, kept))
        change = _adjoint(du, length)
        dp = ma + p * (change / a - 1)
        dq = mb - q * (change / b + 1)
        along = INSIDE / np.maximum(INSIDE, -np.minimum(_least(dp / p), _least(dq / q)))
        up = INSIDE / np.maximum(INSIDE, np.maximum(_most(change / a), -_least(change / b)))
        p, q, a, b, u = p + along * dp, q + along * dq, a - up * change, b + up * change, u + up * du

        result[rows], _, relative[rows] = _certify(y, p - q, u)
        left = ~(relative[rows] <= tolerance)
        rows, y, u, p, q, a, b = (x[left] for x in (rows, y, u, p, q, a, b))
        if not rows.size:
            break
    return result, relative


def _certify(y: Array, s: Array, u: Array) -> tuple[Array, Array, Array]:
    """Return a better and sparser s, by one proximal gradient step, with its duality gap, absolute and relative.

    The gap is to the higher of two dual points: u, which must be feasible, and y - Theta s, scaled until it is.
    """
    kept, length = y.shape[1], s.shape[1]
    v = y - _forward(s, kept)
    slope = _adjoint(v, length)
    v /= np.maximum(1, _most(np.abs(slope)))
    s = _shrink(s + slope, 1)
    residual = y - _forward(s, kept)
    primal = _dot(residual, residual) / 2 + np.abs(s).sum(axis=1, dtype=np.float64)
    dual = np.maximum(_dot(y, u) - _dot(u, u) / 2, _dot(y, v) - _dot(v, v) / 2)
    return s, primal - dual, (primal - dual) / primal


def _forward(s: Array, kept: int) -> Array:
    """Return Theta s of each row."""
    return np.asarray(fft.dct(s, norm="ortho", axis=1)[:, :kept])


def _adjoint(u: Array, length: int) -> Array:
    """Return Theta^T u of each row."""
    return np.asarray(fft.idct(u, n=length, norm="ortho", axis=1))


def _shrink(values: Array, by: float) -> Array:
    """Move each value towards zero by `by`, but not past it."""
    return np.asarray(values - np.clip(values, -by, by))


def _dot(left: Array, right: Array) -> Array:
    """Return the inner product of each pair of rows, in float64: a gap is the small difference of large numbers."""
    return np.asarray((left.astype(np.float64) * right).sum(axis=1))


def _sum(values: Array) -> Array:
    return np.asarray(values.sum(axis=1, keepdims=True))


def _most(values: Array) -> Array:
    return np.asarray(values.max(axis=1, keepdims=True))


def _least(values: Array) -> Array:
    return np.asarray(values.min(axis=1, keepdims=True))


def _factorise(weights: Array, kept: int, factors: Array) -> None:
    """Write the upper Cholesky factor of I + Theta diag(d) Theta^T, padded by the identity, for each row d.

    What lies below the diagonal is left as it was. Every entry is summed in one order; neighbours of a row are summed
    side by side, as many as the processor likes, which is what makes it fast.

    With h_j = sum_i d_i cos(pi j (2i + 1) / (2 length)) / length and c_0 = sqrt(1/2), c_k = 1 for k > 0, the entry
    (i, k) of the product is c_i c_k (h_(i-k) + h_(i+k)), and h_(2 length - j) = -h_j.
    """
    rows, length = weights.shape
    h = np.zeros((rows, 2 * length), weights.dtype)
    h[:, :length] = fft.dct(weights, axis=1) * (0.5 / length)
    h[:, length + 1 :] = -h[:, length - 1 : 0 : -1]
    factor = _compiled("factor", weights.dtype)
    for row in range(rows):
        factor(native.place(h[row]), kept, native.place(factors[row]), factors.shape[1])


def _substitute(factors: Array, x: Array) -> Array:
    """Replace each row x by the solution z of M^T M z = x, M its factor."""
    substitute = _compiled("substitute", x.dtype)
    for row in range(x.shape[0]):
        substitute(native.place(factors[row]), factors.shape[1], native.place(x[row]), x.shape[1])
    return x


def _compiled(name: str, dtype: np.dtype[Any]) -> Any:
    """Return a function of the compiled library for float32 or float64."""
    kind = "float" if dtype == np.float32 else "double"
    return getattr(native.required("the reconstruction of fl-cs on the server"), f"{name}_{kind}")
