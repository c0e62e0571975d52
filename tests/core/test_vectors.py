from __future__ import annotations

import numpy as np
import pytest

from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Layout

LAYOUT = Layout((("kernel", (2, 3)), ("bias", (3,)), ("scale", ())))


def test_tensors_lie_one_after_the_other() -> None:
    views = LAYOUT.views(np.arange(10, dtype=np.float32))

    assert LAYOUT.dim == 10
    assert views["kernel"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert views["bias"].tolist() == [6, 7, 8]
    assert float(views["scale"]) == 9


def test_writing_to_a_view_writes_to_the_flat_vector() -> None:
    flat = np.zeros(10, np.float32)

    LAYOUT.views(flat)["bias"][:] = 5

    assert flat[6:9].tolist() == [5, 5, 5]


def test_join_undoes_views() -> None:
    flat = np.random.default_rng(0).standard_normal(10).astype(np.float32)

    assert np.array_equal(LAYOUT.join(dict(LAYOUT.views(flat))), flat)


def test_a_vector_of_another_size_is_refused() -> None:
    with pytest.raises(InputError, match="10 values was expected, got shape"):
        LAYOUT.views(np.zeros(11, np.float32))
