"""Every fast defence beside its slow twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.threats import defences
from tests.threats.defences.twins import TWINS


def test_every_defence_has_a_twin() -> None:
    assert list(TWINS) == defences.known()


@pytest.mark.parametrize("name", TWINS)
@settings(max_examples=40)
@given(st.data())
def test_a_defence_is_its_twin(name: str, data: st.DataObject) -> None:
    defence, malicious = defences.make(name), data.draw(st.integers(0, 4))
    rows = data.draw(st.integers(defence.fewest(malicious), defence.fewest(malicious) + 9))
    length = data.draw(st.integers(1, 70))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    updates = rng.standard_normal((rows, length), dtype=np.float32) + np.float32(0.5)
    updates[:malicious] *= data.draw(st.sampled_from([1, 30, 1e6]))
    reference = np.full(length, 0.5, np.float32)
    if name == "fltrust":  # in one dimension all may be against it
        updates[-1] = np.abs(updates[-1])

    found = defence.estimate(updates, malicious, reference)

    wide = updates.astype(np.float64)
    expected = TWINS[name](wide, malicious, reference.astype(np.float64))
    spread = float(np.median(np.linalg.norm(wide - np.median(wide, axis=0), axis=1)))
    tolerance = 2e-3 * spread if name == "geometric-median" else 1e-6 * (1 + np.abs(expected))
    assert found.dtype == np.float32
    assert np.all(np.abs(found - expected) <= tolerance)


@pytest.mark.parametrize("name", TWINS)
def test_many_columns_are_cut_into_blocks_without_a_seam(name: str) -> None:
    rng = np.random.default_rng(5)
    updates = rng.standard_normal((7, 70_001), dtype=np.float32)
    reference = rng.standard_normal(70_001, dtype=np.float32)

    found = defences.make(name).estimate(updates, 1, reference)

    expected = TWINS[name](updates.astype(np.float64), 1, reference.astype(np.float64))
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-2 if name == "geometric-median" else 1e-6)
