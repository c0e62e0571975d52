"""Why a client sent nothing is told without a number that its data decided."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sottovoce.core import wire
from sottovoce.core.errors import SottovoceError
from sottovoce.core.validate import all_finite
from sottovoce.federation.coding import FloatGrid, Terms
from sottovoce.federation.sums import FloatSum
from sottovoce.privacy.noise.clipping import norm
from sottovoce.schemes.packed_signs import pack_signs

TERMS = Terms(2, 1.0)


def _float_sum(values: np.ndarray) -> None:
    fold = FloatSum(len(values), 2)
    fold.add(fold.empty(), wire.pack(values))


@pytest.mark.parametrize(
    "refuse",
    [
        lambda values: all_finite("importance", values),
        lambda values: norm(values),
        lambda values: pack_signs(values, np.random.default_rng(0)),
        lambda values: FloatGrid(len(values), 2, 4.0).words(values, TERMS, 1, 0),
        _float_sum,
    ],
    ids=["finite", "norm", "signs", "grid", "sum"],
)
def test_two_updates_that_are_refused_for_one_reason_are_refused_in_the_same_words(
    refuse: Callable[[np.ndarray], object],
) -> None:
    one, other = np.ones(100, np.float32), np.ones(100, np.float32)
    one[3], other[:7] = np.nan, np.nan

    with pytest.raises(SottovoceError) as first:
        refuse(one)
    with pytest.raises(SottovoceError) as second:
        refuse(other)

    assert str(first.value) == str(second.value)


@pytest.mark.parametrize("largest", [5.0, 77.0])
def test_how_far_a_value_is_out_of_range_is_not_told(largest: float) -> None:
    with pytest.raises(SottovoceError) as caught:
        FloatGrid(3, 2, 4.0).words(np.array([0, largest, 0], np.float32), TERMS, 1, 0)
    assert f"{largest:g}" not in str(caught.value)

    with pytest.raises(SottovoceError) as caught:
        _float_sum(np.array([0, 1000 * largest, 0], np.float32))
    assert f"{1000 * largest:g}" not in str(caught.value)

    with pytest.raises(SottovoceError) as caught:
        wire.pack(np.array([0, int(largest)], np.uint32), bits=2)
    assert f"{largest:g}" not in str(caught.value)
