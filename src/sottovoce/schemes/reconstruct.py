"""Recover sparse updates from their low frequencies: the decompression D of FL-CS, for all chunks.

Symbols: y measured, Theta the first `kept` rows of the orthonormal DCT-II of size `length`, lambda `l1`, s the result.
Each chunk solves equation (4) of Kerkouche et al., "Compression Boosts Differentially Private Federated Learning"
(EuroS&P 2021), where the paper runs OWL-QN:

    min_s  P(s) = 1/2 ||y - Theta s||^2 + lambda ||s||_1                                             (primal)
    max_u  D(u) = y.u - 1/2 ||u||^2    such that |Theta^T u| <= lambda in every coordinate           (dual)

Any s and any feasible u satisfy D(u) <= min P <= P(s), so a chunk is done when P(s) - D(u) <= tolerance * P(s): no
solver can then be lower by more than `tolerance`, relative. Everything below is divided by lambda (y/lambda, s/lambda).

Neighbouring columns of Theta are almost parallel, so methods of first order crawl: hundreds of steps for one per mille.
A few of them (over-relaxed ADMM; Boyd et al., 2011, section 6.4) find a start; then a primal-dual interior point (Mehrotra,
"On the implementation of a primal-dual interior point method", 1992) follows s = p - q, slacks a = 1 - Theta^T u and
b = 1 + Theta^T u, all positive, to p*a = q*b = mu -> 0. With d = p/a + q/b and 1/a, m, ... by coordinate, a step solves

    (I + Theta diag(d) Theta^T) du = y - u - Theta (m_a/a - m_b/b)

with m = 0 to predict and m_a = mu' + dp*da etc. to correct. That matrix is Toeplitz plus Hankel, so one DCT of d yields
all of it, and only its Cholesky factor costs kept^3/3. It is at least I, so its pivots are at least 1 and float32 serves.

A chunk's result does not depend, to the bit, on the other chunks or on the number of threads: no BLAS is called.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import fft

from sottovoce.core.errors import InputError, RunError
from sottovoce.core.validate import all_finite, in_range

__all__ = ["reconstruct"]

Array = NDArray[Any]  # float32; float64 where float32 is too coarse

RELAX = 1.8  # of ADMM
NEAR = 0.95  # go this part of the way to where p, q, a or b would reach zero
STEPS = 20  # of ADMM between two checks
EXACT = 1e-4  # below this tolerance float32 is too coarse

# Sums may be reordered, which is what lets them be vectorised; the order is then fixed by the compiler, not by threads.
_kernel = njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "nnan"})


def reconstruct(
    measured: NDArray[np.float32],
    length: int,
    l1: float,
    warm: NDArray[np.float32] | None = None,
    *,
    tolerance: float = 1e-3,
    max_iterations: int = 40,
) -> NDArray[np.float32]:
    """Return, for each row y of `measured`, the s of `length` values that minimises P(s) up to `tolerance`, relative.

    `warm` is a guess of the result: it saves time and changes nothing else. `max_iterations` bounds the Newton steps.

    >>> spike = np.zeros((1, 64), np.float32)
    >>> spike[0, 40] = 1
    >>> found = reconstruct(fft.dct(spike, norm="ortho")[:, :16], 64, l1=1e-3)
    >>> int(found.argmax()), round(float(found.max()), 2)
    (40, 1.0)
    """
    if measured.ndim != 2 or measured.shape[1] < 1:
        raise InputError(f"measured must have one row a chunk, got shape {measured.shape}")
    chunks, kept = measured.shape
    if kept > length:
        raise InputError(f"length must be at least the {kept} coefficients kept, got {length}")
    if warm is not None and warm.shape != (chunks, length):
        raise InputError(f"warm must have shape {(chunks, length)}, got {warm.shape}")
    in_range("l1", l1, low=0, high=np.inf, open_low=True, open_high=True)
    in_range("tolerance", tolerance, low=1e-9, high=1)
    in_range("max_iterations", max_iterations, low=1)
    all_finite("measured", measured)
    if warm is not None:
        all_finite("warm", warm)

    result = np.zeros((chunks, length), np.float32)
    peaks = np.abs(_adjoint(measured, length)).max(axis=1, initial=0)
    todo = np.flatnonzero(peaks > l1)  # below, zero is the exact result
    if kept == length:
        result[todo] = _shrink(_adjoint(measured[todo], length), l1)
        return result

    def solve(rows: NDArray[np.intp]) -> None:
        unsolved = rows
        for dtype in (np.float32, np.float64) if tolerance >= EXACT else (np.float64,):
            y = measured[unsolved].astype(dtype) / dtype(l1)
            guess = np.zeros((len(y), length), dtype) if warm is None else warm[unsolved].astype(dtype) / dtype(l1)
            s, gap = _solve(y, guess, tolerance, max_iterations)
            result[unsolved] = s * dtype(l1)
            unsolved = unsolved[~(gap <= tolerance)]  # also where the gap is NaN
            if not unsolved.size:
                return
        raise RunError(
            f"chunk {unsolved[0]}: relative gap {gap.max():.2g} > tolerance {tolerance:g} after {max_iterations} "
            f"iterations; raise l1 ({l1:g}), tolerance or max_iterations"
        )

    size = max(1, min(16, 2**24 // kept**2))  # the factors of a block take at most 64 MB
    blocks = [todo[i : i + size] for i in range(0, len(todo), size)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(solve, blocks))
    return result


def _forward(s: Array, kept: int) -> Array:
    """Return Theta s by row."""
    return np.ascontiguousarray(fft.dct(s, norm="ortho", axis=1)[:, :kept])


def _adjoint(u: Array, length: int) -> Array:
    """Return Theta^T u by row."""
    return np.asarray(fft.idct(u, n=length, norm="ortho", axis=1))


def _shrink(values: Array, by: Any) -> Array:
    """Move each value towards zero by `by`, and not past it."""
    return values - np.clip(values, -by, by)


def _column(values: Array, dtype: Any) -> Array:
    """Return one value a row, ready to multiply rows."""
    return values.astype(dtype)[:, None]


def _certify(y: Array, s: Array, u: Array) -> tuple[Array, Array, Array, Array]:
    """Return a better and sparse s (one proximal gradient step), P of it, the larger D of u and of y - Theta s, the gap."""
    kept, length = y.shape[1], s.shape[1]
    residual = y - _forward(s, kept)
    slope = _adjoint(residual, length)
    s = _shrink(s + slope, s.dtype.type(1))
    rest = y - _forward(s, kept)
    primal = 0.5 * _dot(rest, rest) + np.abs(s).sum(axis=1, dtype=np.float64)
    scale = 1 / np.maximum(1, np.abs(slope).max(axis=1)).astype(np.float64)
    dual = np.maximum(
        _dot(y, u) - 0.5 * _dot(u, u), scale * _dot(y, residual) - 0.5 * scale**2 * _dot(residual, residual)
    )
    return s, primal, dual, (primal - dual) / primal


def _dot(left: Array, right: Array) -> Array:
    """Return the inner product of each pair of rows in float64: the gap is a small difference of large sums."""
    return np.einsum("ij,ij->i", left, right, dtype=np.float64)


def _solve(y: Array, s: Array, tolerance: float, max_iterations: int) -> tuple[Array, Array]:
    """Return s and the relative gap of each row; rows leave the block once they are done."""
    (chunks, kept), length, dtype = y.shape, s.shape[1], y.dtype.type
    best, gaps = s.copy(), np.full(chunks, np.inf)
    rows = np.arange(chunks)

    # ADMM for s = z with scaled multiplier w: |rho w| <= 1, so Theta (rho w) is nearly feasible in the dual.
    peak = np.abs(_adjoint(y, length)).max(axis=1, keepdims=True)
    rho = np.minimum(dtype(1), dtype(2) / peak)
    w = np.clip(_adjoint(y - _forward(s, kept), length), dtype(-1), dtype(1)) / rho
    # As long as ADMM is cheap next to the Cholesky factors to come, it goes on.
    for _ in range(max(1, kept**3 // (350 * length * STEPS))):
        for _ in range(STEPS):
            v = s - w
            x = v + _adjoint((y - _forward(v, kept)) / (1 + rho), length)
            x = dtype(RELAX) * x + dtype(1 - RELAX) * s + w
            w = np.clip(x, -1 / rho, 1 / rho)
            s = x - w
        u = _forward(rho * w, kept)
        u *= np.minimum(dtype(1), dtype(0.9) / np.abs(_adjoint(u, length)).max(axis=1, keepdims=True))
        better, primal, dual, gap = _certify(y, s, u)
        best[rows], gaps[rows] = better, gap
        left = ~(gap <= tolerance)
        rows, y, s, w, u, rho, primal, dual = (x[left] for x in (rows, y, s, w, u, rho, primal, dual))
        if not rows.size:
            return best, gaps

    slope = _adjoint(u, length)
    a, b = 1 - slope, 1 + slope
    centre = _column(0.15 / length * (primal - dual), dtype)
    p, q = np.maximum(s, 0) + centre / a, np.maximum(-s, 0) + centre / b
    for _ in range(max_iterations):
        spectrum = fft.dct(p / a + q / b, axis=1)
        factors = np.empty((len(y), kept, kept), y.dtype)
        du = y - u
        for i in range(len(y)):
            _factor(spectrum[i], factors[i])
            _substitute(factors[i], du[i])
        push, mu = np.empty_like(p), np.empty(len(y))
        predicted = _adjoint(du, length)
        for i in range(len(y)):
            mu[i] = _correct(p[i], q[i], a[i], b[i], predicted[i], push[i])
        du = y - u - _forward(push, kept)
        for i in range(len(y)):
            _substitute(factors[i], du[i])
        change = _adjoint(du, length)
        for i in range(len(y)):
            du[i] *= _advance(p[i], q[i], a[i], b[i], predicted[i], change[i], dtype(mu[i]))
        u = u + du
        better, _, _, gap = _certify(y, p - q, u)
        best[rows], gaps[rows] = better, gap
        left = ~(gap <= tolerance)
        rows, y, u, p, q, a, b = (x[left] for x in (rows, y, u, p, q, a, b))
        if not rows.size:
            break
    return best, gaps


@_kernel
def _factor(spectrum, m):  # type: ignore[no-untyped-def]
    """Write the lower Cholesky factor of I + Theta diag(d) Theta^T; `spectrum` is the unscaled DCT of d.

    With h_j = sum_i d_i cos(pi j (2i + 1) / 2 length), entry (k, l) is c_k c_l (h_(k-l) + h_(k+l)) / 2.
    """
    n, length = m.shape[0], spectrum.shape[0]
    half, one = spectrum.dtype.type(0.5), spectrum.dtype.type(1)
    h = np.zeros(2 * n, spectrum.dtype)  # with c c / 2 and the 2 of scipy's DCT
    for j in range(min(2 * n, length)):
        h[j] = spectrum[j] * half / spectrum.dtype.type(length)
    for j in range(length + 1, 2 * n):
        h[j] = -h[2 * length - j]
    for k in range(n):
        for l in range(k + 1):
            m[k, l] = h[k - l] + h[k + l]
    for k in range(n):
        m[k, 0] *= np.sqrt(half)
    m[0, 0] *= np.sqrt(half)
    for k in range(n):
        m[k, k] += one

    zero = spectrum.dtype.type(0)
    for j in range(0, n, 4):  # four columns at a time, two rows at a time: eight sums fit in the registers
        width = min(4, n - j)
        i = j
        while i < n:
            if width == 4 and i + 1 < n:
                x0, x1, y0, y1, y2, y3 = m[i], m[i + 1], m[j], m[j + 1], m[j + 2], m[j + 3]
                s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = zero
                for k in range(j):
                    s00 += x0[k] * y0[k]
                    s01 += x0[k] * y1[k]
                    s02 += x0[k] * y2[k]
                    s03 += x0[k] * y3[k]
                    s10 += x1[k] * y0[k]
                    s11 += x1[k] * y1[k]
                    s12 += x1[k] * y2[k]
                    s13 += x1[k] * y3[k]
                x0[j] -= s00
                x0[j + 1] -= s01
                x0[j + 2] -= s02
                x0[j + 3] -= s03
                x1[j] -= s10
                x1[j + 1] -= s11
                x1[j + 2] -= s12
                x1[j + 3] -= s13
                i += 2
            else:
                for c in range(j, j + width):
                    s = zero
                    for k in range(j):
                        s += m[i, k] * m[c, k]
                    m[i, c] -= s
                i += 1
        for c in range(j, j + width):
            for k in range(j, c):
                m[c, c] -= m[c, k] * m[c, k]
            m[c, c] = np.sqrt(max(m[c, c], one))
            for i in range(c + 1, n):
                s = m[i, c]
                for k in range(j, c):
                    s -= m[i, k] * m[c, k]
                m[i, c] = s / m[c, c]


@_kernel
def _substitute(m, x):  # type: ignore[no-untyped-def]
    """Replace x by the solution of M M^T z = x, M lower triangular."""
    n = m.shape[0]
    for i in range(n):
        s = x[i]
        for k in range(i):
            s -= m[i, k] * x[k]
        x[i] = s / m[i, i]
    for i in range(n - 1, -1, -1):
        x[i] /= m[i, i]
        s = x[i]
        for k in range(i):
            x[k] -= m[i, k] * s


@_kernel
def _correct(p, q, a, b, da, push):  # type: ignore[no-untyped-def]
    """Return mu', and write m_a/a - m_b/b to `push`, from the predicted change `da` of Theta^T u."""
    primal = dual = p.dtype.type(1)
    one = p.dtype.type(1)
    now = cross_p = cross_d = both = 0.0
    for i in range(p.size):
        ea, eb = da[i] / a[i], da[i] / b[i]
        primal = max(primal, max(one - ea, one + eb))
        dual = max(dual, max(ea, -eb))
        pa, qb = p[i] * a[i], q[i] * b[i]
        now += pa + qb
        cross_p += pa * (ea - one) - qb * (eb + one)
        cross_d += qb * eb - pa * ea
        both += qb * (-eb - one) * eb - pa * (ea - one) * ea
    along, up = 1 / primal, 1 / dual
    then = now + along * cross_p + up * cross_d + along * up * both
    mu = p.dtype.type(now / (2 * p.size) * (then / now) ** 3)
    for i in range(p.size):
        ea, eb = da[i] / a[i], da[i] / b[i]
        push[i] = (mu + p[i] * (ea - one) * da[i]) / a[i] - (mu + q[i] * (eb + one) * da[i]) / b[i]
    return mu


@_kernel
def _advance(p, q, a, b, predicted, da, mu):  # type: ignore[no-untyped-def]
    """Move p, q, a and b along the corrected step and return the part of `du` to go."""
    one = p.dtype.type(1)
    primal = dual = p.dtype.type(NEAR)
    for i in range(p.size):
        fa, fb = predicted[i] / a[i], predicted[i] / b[i]
        ea, eb = da[i] / a[i], da[i] / b[i]
        dp = mu / (p[i] * a[i]) + (fa - one) * fa - one + ea
        dq = mu / (q[i] * b[i]) + (fb + one) * fb - one - eb
        primal = max(primal, max(-dp, -dq))
        dual = max(dual, max(ea, -eb))
    along, up = p.dtype.type(NEAR) / primal, p.dtype.type(NEAR) / dual
    for i in range(p.size):
        fa, fb = predicted[i] / a[i], predicted[i] / b[i]
        ea, eb = da[i] / a[i], da[i] / b[i]
        p[i] += along * (mu / a[i] + p[i] * ((fa - one) * fa - one + ea))
        q[i] += along * (mu / b[i] + q[i] * ((fb + one) * fb - one - eb))
        a[i] -= up * da[i]
        b[i] += up * da[i]
    return up
