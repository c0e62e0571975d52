from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.errors import InputError
from sottovoce.schemes import SCHEMES, known, make

LINEAR = [name for name in known() if SCHEMES[name].linear and not SCHEMES[name].once]


@settings(max_examples=20, deadline=None)
@given(dim=st.integers(40, 300), seed=st.integers(0, 99))
@pytest.mark.parametrize("name", LINEAR)
def test_the_transpose_moves_an_encoding_to_the_other_side_of_a_product(name: str, dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = {"ratio": 0.3} if "ratio" in SCHEMES[name].own_keys() else {}
    start, importance = rng.standard_normal((2, dim)).astype(np.float32)
    scheme = make(name, **keys).bind(dim, seed=seed, start=start, importance=importance)
    update, message = rng.standard_normal(dim), rng.standard_normal(scheme.length)

    encoded = scheme.encode(update.astype(np.float32), scheme.round_seed(3), rng)
    back = scheme.transpose(message.astype(np.float32), scheme.round_seed(3))

    assert float(encoded @ message) == pytest.approx(float(update @ back), abs=1e-3)


def test_signs_have_no_transpose() -> None:
    with pytest.raises(InputError, match="fl-sign is not linear, and has no transpose"):
        make("fl-sign").bind(8).transpose(np.ones(8, np.float32), 0)
