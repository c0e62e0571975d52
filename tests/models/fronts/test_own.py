from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
from numpy.random import default_rng

from sottovoce.core.errors import InputError
from sottovoce.models.fronts import make_front
from sottovoce.models.fronts.own import Own


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    made = ModuleType("own_fronts")
    monkeypatch.setitem(sys.modules, "own_fronts", made)
    return made


def test_a_users_function_is_a_front_and_its_features_are_taken_as_they_are(module: ModuleType) -> None:
    module.squares = lambda x: np.concatenate([x, x**2], 1)  # type: ignore[attr-defined]
    x = default_rng(1).random((7, 3)).astype(np.float32)

    front = make_front("own_fronts:squares", (3,), "float32")

    assert front.width == 6 and front.payload() == b""
    assert np.array_equal(front.features(x), np.concatenate([x, x**2], 1))


def test_its_features_are_projected_by_public_records_if_dims_are_given(module: ModuleType) -> None:
    module.flat = lambda x: x.reshape(len(x), -1) / 255  # type: ignore[attr-defined]
    public = default_rng(1).integers(0, 256, (300, 4, 4, 1)).astype(np.uint8)
    front = make_front("own_fronts:flat", (4, 4, 1), "uint8", dims=5).fitted(public, 1 / 255)

    theirs, _ = make_front("own_fronts:flat", (4, 4, 1), "uint8", dims=5).told(front.payload())

    assert front.width == 5
    assert np.array_equal(theirs.features(public[:9]), front.features(public[:9]))
    assert np.allclose(np.linalg.norm(front.features(public), axis=1), 1 / 0.3, rtol=1e-5)


def test_public_records_reach_it_in_the_clients_units(module: ModuleType) -> None:
    seen: list[np.ndarray] = []  # type: ignore[type-arg]

    def flat(x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        seen.append(x)
        return x.reshape(len(x), -1) + np.float32(0)

    module.flat = flat  # type: ignore[attr-defined]
    public = default_rng(1).integers(0, 256, (50, 2, 2, 1)).astype(np.uint8)
    front = Own("own_fronts:flat", (2, 2, 1), "uint8", input_scale=1 / 16, dims=2)

    front.fitted(public, 1 / 255)

    (whole,) = [x for x in seen if len(x) == 50]
    assert whole.dtype == np.uint8 and whole.max() == 16


def test_a_function_that_looks_at_other_records_is_refused(module: ModuleType) -> None:
    module.standardised = lambda x: (x - x.mean(0)) / (x.std(0) + 1)  # type: ignore[attr-defined]

    with pytest.raises(InputError, match="change with the other records in the call"):
        _ = Own("own_fronts:standardised", (3,), "float32").width


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.sum(1), r"must return finite numbers of shape \(3, features\), got float32 of shape \(3,\)"),
        (lambda x: x[:1], r"got float32 of shape \(1, 3\)"),
        (lambda x: x / 0, "must return finite numbers"),
        (lambda x: x.astype(str), "must return finite numbers"),
        (lambda x: x.nothing, "fails: AttributeError"),
        (5, "is not a function"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_function_that_gives_no_features_is_refused(module: ModuleType, function: object, reason: str) -> None:
    module.bad = function  # type: ignore[attr-defined]

    with pytest.raises(InputError, match=reason):
        _ = make_front("own_fronts:bad", (3,), "float32").width


def test_a_function_that_is_not_there_is_refused(module: ModuleType) -> None:
    with pytest.raises(InputError, match="module 'own_fronts' has no 'nothing'"):
        _ = make_front("own_fronts:nothing", (3,), "float32").width
    with pytest.raises(InputError, match="module 'no_such_module' cannot be imported"):
        _ = make_front("no_such_module:f", (3,), "float32").width


def test_more_dims_than_the_function_gives_are_refused(module: ModuleType) -> None:
    module.same = lambda x: x  # type: ignore[attr-defined]

    with pytest.raises(InputError, match=r"at most the 3 features of front 'own_fronts:same', got 4"):
        make_front("own_fronts:same", (3,), "float32", dims=4)
