from __future__ import annotations

import threading
import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lbfgs import LBFGSError, fmin_lbfgs  # type: ignore[import-untyped]
from numpy.typing import NDArray
from scipy.fft import dct, idct

from sottovoce.core.errors import InputError, RunError
from sottovoce.schemes import reconstruct as module
from sottovoce.schemes.reconstruct import reconstruct

Array = NDArray[Any]

SIZES = [(64, 7), (250, 50), (1000, 50), (1040, 260), (2080, 104)]


def heavy(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Draw something as sparse as an aggregate of updates: kurtosis 924."""
    return rng.choice([-1, 1], shape) * rng.exponential(size=shape) ** 3


def measure(chunks: Array, kept: int) -> NDArray[np.float32]:
    return np.asarray(dct(chunks, norm="ortho", axis=1)[:, :kept], np.float32)


def objective(y: Array, s: Array, l1: float) -> Array:
    """P(s) in float64, as the definition says."""
    residual = y.astype(np.float64) - dct(s.astype(np.float64), norm="ortho", axis=1)[:, : y.shape[1]]
    return np.asarray((residual**2).sum(axis=1) / 2 + l1 * np.abs(s.astype(np.float64)).sum(axis=1))


def owl_qn(y: Array, length: int, l1: float) -> Array:
    """Minimise P for one chunk as the paper does; divided by l1, as its stopping rule is not scale free."""
    target = y.astype(np.float64) / l1

    def value(s: Array, gradient: Array) -> float:
        residual = dct(s, norm="ortho")[: target.size] - target
        gradient[:] = idct(residual, n=length, norm="ortho")
        return float(residual @ residual) / 2

    best = np.zeros(length)

    def keep(s: Array, *_: Any) -> int:
        best[:] = s
        return 0

    options = {"line_search": "wolfe", "epsilon": 1e-8, "past": 20, "delta": 1e-6, "max_iterations": 3000}
    with suppress(LBFGSError), warnings.catch_warnings(action="ignore"):  # its line search gives up near the optimum
        fmin_lbfgs(value, best, keep, orthantwise_c=1, **options)
    return best * l1


def steps_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the interior point steps, one entry a step with the number of chunks in it."""
    steps: list[int] = []
    factorise = module._factorise

    def counted(weights: Array, kept: int, factors: Array) -> None:
        steps.append(len(weights))
        factorise(weights, kept, factors)

    monkeypatch.setattr(module, "_factorise", counted)
    return steps


@pytest.mark.parametrize(("length", "kept"), SIZES)
@pytest.mark.parametrize("part", [0.3, 0.03, 0.003])
@pytest.mark.parametrize("sparse", [True, False])
def test_the_objective_is_never_above_that_of_owl_qn(length: int, kept: int, part: float, sparse: bool) -> None:
    rng = np.random.default_rng(length)
    y = measure(heavy(rng, (1, length)) if sparse else rng.standard_normal((1, length)), kept)
    l1 = part * float(np.abs(idct(y, n=length, norm="ortho", axis=1)).max())

    ours = objective(y, reconstruct(y, length, l1), l1)
    theirs = objective(y, owl_qn(y[0], length, l1)[None], l1)

    assert ours <= theirs * (1 + 1e-3)
    assert theirs <= ours * (1 + 1e-2)  # or the oracle has not done its work


@given(
    length=st.integers(2, 150),
    share=st.floats(0, 1),
    part=st.floats(1e-4, 1.5),
    tolerance=st.sampled_from([1e-2, 1e-3, 1e-6]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_no_point_is_better_by_more_than_the_tolerance(
    length: int, share: float, part: float, tolerance: float, seed: int
) -> None:
    kept = 1 + round(share * (length - 1))
    rng = np.random.default_rng(seed)
    y = measure(heavy(rng, (3, length)), kept)
    l1 = part * float(np.abs(idct(y, n=length, norm="ortho", axis=1)).max())

    rough = objective(y, reconstruct(y, length, l1, tolerance=tolerance), l1)
    fine = objective(y, reconstruct(y, length, l1, tolerance=1e-8), l1)

    assert (rough <= fine * (1 + tolerance) + 1e-6 * fine).all()
    assert (fine <= rough * (1 + 1e-6)).all()


def test_a_tight_tolerance_meets_the_optimality_conditions() -> None:
    rng = np.random.default_rng(0)
    y, l1 = measure(heavy(rng, (4, 500)), 60), 0.05

    s = reconstruct(y, 500, l1, tolerance=1e-9).astype(np.float64)

    slope = idct(y - dct(s, norm="ortho", axis=1)[:, :60], n=500, norm="ortho", axis=1) / l1
    assert np.abs(slope).max() <= 1 + 1e-3
    large = np.abs(s) > 1e-3 * np.abs(s).max()
    np.testing.assert_allclose(slope[large], np.sign(s[large]), atol=1e-3)


def test_an_exactly_sparse_chunk_is_recovered() -> None:
    truth = np.zeros((1, 2000))
    truth[0, [20, 400, 900, 1300, 1950]] = [1, -2, 0.5, 3, -1]

    found = reconstruct(measure(truth, 200), 2000, 1e-4, tolerance=1e-6)

    np.testing.assert_allclose(found, truth, atol=0.01)


def test_a_warm_start_changes_the_work_and_not_the_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    y, l1 = measure(heavy(np.random.default_rng(3), (20, 2080)), 104), 0.05
    steps = steps_of(monkeypatch)
    cold = reconstruct(y, 2080, l1)
    work = sum(steps)
    steps.clear()

    warm = reconstruct(y, 2080, l1, cold)

    assert sum(steps) < 0.8 * work
    np.testing.assert_allclose(objective(y, warm, l1), objective(y, cold, l1), rtol=1e-3)


def test_a_misleading_warm_start_does_no_harm() -> None:
    rng = np.random.default_rng(4)
    y, l1 = measure(heavy(rng, (3, 500)), 60), 0.05
    wrong = (100 * rng.standard_normal((3, 500))).astype(np.float32)

    np.testing.assert_allclose(
        objective(y, reconstruct(y, 500, l1, wrong), l1), objective(y, reconstruct(y, 500, l1), l1), rtol=1e-3
    )


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
def test_a_chunk_does_not_depend_on_the_others_to_the_bit(tolerance: float) -> None:
    y = measure(heavy(np.random.default_rng(5), (37, 1000)), 50)

    together = reconstruct(y, 1000, 0.05, tolerance=tolerance)

    for rows in (slice(0, 1), slice(7, 10), slice(20, 37)):
        np.testing.assert_array_equal(reconstruct(y[rows], 1000, 0.05, tolerance=tolerance), together[rows])


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    y = measure(heavy(np.random.default_rng(6), (40, 1000)), 50)
    many = reconstruct(y, 1000, 0.05)
    monkeypatch.setattr("os.cpu_count", lambda: 1)

    np.testing.assert_array_equal(reconstruct(y, 1000, 0.05), many)


def test_callers_in_several_threads_do_not_disturb_each_other() -> None:
    y = measure(heavy(np.random.default_rng(7), (20, 1000)), 50)
    expected = reconstruct(y, 1000, 0.05)
    found: list[Array] = []
    callers = [threading.Thread(target=lambda: found.append(reconstruct(y, 1000, 0.05))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert len(found) == 4
    assert all(np.array_equal(one, expected) for one in found)


@pytest.mark.parametrize("factor", [2.0**-30, 2.0**40])
def test_scaling_measurements_and_l1_scales_the_result(factor: float) -> None:
    y = measure(heavy(np.random.default_rng(8), (3, 1000)), 50)

    scaled = reconstruct(y * np.float32(factor), 1000, 0.0625 * factor)

    np.testing.assert_array_equal(scaled, reconstruct(y, 1000, 0.0625) * np.float32(factor))


def test_the_sign_of_the_measurements_is_the_sign_of_the_result() -> None:
    y = measure(heavy(np.random.default_rng(9), (3, 1000)), 50)

    np.testing.assert_allclose(reconstruct(-y, 1000, 0.05), -reconstruct(y, 1000, 0.05), atol=1e-4)


@pytest.mark.parametrize("part", [1e-5, 1e-7])
def test_a_tiny_l1_still_converges(part: float) -> None:
    y = measure(heavy(np.random.default_rng(10), (3, 1000)), 50)
    l1 = part * float(np.abs(idct(y, n=1000, norm="ortho", axis=1)).max())

    rough, fine = (reconstruct(y, 1000, l1, tolerance=tolerance) for tolerance in (1e-3, 1e-6))

    # As l1 goes to 0 this is basis pursuit: nearly no residual, and the least sum.
    assert (np.abs(rough).sum(axis=1) <= 1.002 * np.abs(fine).sum(axis=1)).all()
    np.testing.assert_allclose(dct(rough, norm="ortho", axis=1)[:, :50], y, atol=1e-3 * float(np.abs(y).max()))


def test_keeping_everything_is_soft_thresholding() -> None:
    s = heavy(np.random.default_rng(11), (3, 90)).astype(np.float32)
    y = measure(s, 90)
    back = idct(y, norm="ortho", axis=1)

    np.testing.assert_allclose(
        reconstruct(y, 90, 0.5), np.sign(back) * np.maximum(np.abs(back) - 0.5, 0), rtol=1e-6, atol=1e-6
    )


def test_what_l1_outweighs_is_exactly_zero() -> None:
    y = measure(heavy(np.random.default_rng(12), (3, 90)), 9)
    y[1] = 0
    peak = float(np.abs(idct(y[0], n=90, norm="ortho")).max())

    assert not reconstruct(y[:2], 90, peak * 1.001).any()
    assert reconstruct(y[:1], 90, peak * 0.999).any()
    assert not reconstruct(y[1:2], 90, 1e-5).any()
    assert reconstruct(y[:0], 90, 1e-5).shape == (0, 90)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_measurements_that_are_not_finite_are_refused(bad: float) -> None:
    y = np.ones((2, 5), np.float32)
    y[1, 2] = bad

    with pytest.raises(RunError, match="measured has values that are not finite"):
        reconstruct(y, 9, 1e-5)
    with pytest.raises(RunError, match="warm has"):
        reconstruct(np.ones((2, 5), np.float32), 5, 1e-5, y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"l1": 0}, "l1 must be .*, got 0"),
        ({"l1": -1}, "l1 must be"),
        ({"l1": np.nan}, "l1 must be"),
        ({"l1": np.inf}, "l1 must be"),
        ({"length": 4}, "length must be at least 5, got 4"),
        ({"tolerance": 0}, "tolerance must be"),
        ({"max_iterations": 0}, "max_iterations must be"),
        ({"warm": np.zeros((2, 8), np.float32)}, r"warm must have shape \(2, 9\)"),
        ({"measured": np.zeros(5, np.float32)}, "measured must have"),
        ({"measured": np.zeros((2, 0), np.float32)}, "measured must have"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"measured": np.ones((2, 5), np.float32), "length": 9, "l1": 1e-5}

    with pytest.raises(InputError, match=message):
        reconstruct(**good | arguments)


def test_a_chunk_that_does_not_converge_is_an_error_that_names_it() -> None:
    y = measure(heavy(np.random.default_rng(13), (3, 1000)), 50)
    y[:2] = 0

    with pytest.raises(RunError, match=r"chunk 2: relative duality gap .* after 1 iterations; raise l1"):
        reconstruct(y, 1000, 1e-4, max_iterations=1)


@pytest.mark.parametrize(("length", "kept"), [(1, 1), (2, 1), (9, 8), (20, 13), (40, 7)])
def test_the_factor_is_that_of_the_matrix_it_names(length: int, kept: int) -> None:
    weights = np.random.default_rng(length).exponential(10, (2, length))
    theta = dct(np.eye(length), norm="ortho", axis=0)[:kept]
    padded = -(-kept // 4) * 4
    factors = np.empty((2, padded, padded))

    module._factorise(weights, kept, factors)

    for factor, d in zip(factors, weights, strict=True):
        matrix = np.eye(kept) + theta * d @ theta.T
        np.testing.assert_allclose(np.triu(factor)[:kept, :kept], np.linalg.cholesky(matrix).T, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            module._substitute(factor[None], np.ones((1, kept)))[0], np.linalg.solve(matrix, np.ones(kept)), rtol=1e-9
        )
