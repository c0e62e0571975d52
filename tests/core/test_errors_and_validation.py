from __future__ import annotations

import math

import numpy as np
import pytest

from sottovoce.core import errors
from sottovoce.core.validate import all_finite, in_range, nearest, one_of


@pytest.mark.parametrize(
    ("kind", "code"),
    [("InputError", 2), ("ConfigError", 2), ("DataError", 2), ("PrivacyError", 3), ("RunError", 4), ("WireError", 4)],
)
def test_every_error_has_its_exit_code(kind: str, code: int) -> None:
    assert getattr(errors, kind).exit_code == code


@pytest.mark.parametrize(
    ("bounds", "value", "rule"),
    [
        ({"low": 0, "high": 1, "open_low": True}, 0, r"in \(0, 1\], got 0"),
        ({"low": 0, "high": 1, "open_high": True}, 1, r"in \[0, 1\), got 1"),
        ({"low": 1}, 0.5, "at least 1, got 0.5"),
        ({"low": 1, "open_low": True}, 1, "above 1, got 1"),
        ({"high": 3}, 4, "at most 3, got 4"),
        ({"low": 0, "high": 1}, math.nan, "got nan"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_rule(bounds: dict[str, float], value: float, rule: str) -> None:
    with pytest.raises(errors.InputError, match=f"ratio must be {rule}" if "nan" not in rule else rule):
        in_range("ratio", value, **bounds)


def test_values_on_a_closed_bound_pass() -> None:
    in_range("ratio", 1, low=0, high=1)
    in_range("ratio", 0, low=0, high=1)


def test_a_misspelt_word_gets_the_nearest_one() -> None:
    assert nearest("local_step", ["local_steps", "rounds"]) == "local_steps"
    assert nearest("zzz", ["local_steps", "rounds"]) is None
    with pytest.raises(errors.InputError, match="did you mean 'fl-top'"):
        one_of("scheme", "fl-topp", ["fl-top", "digits"])
    with pytest.raises(errors.InputError, match="known: a, b"):
        one_of("scheme", "qqqqq", ["a", "b"])


def test_values_that_are_not_finite_are_counted() -> None:
    all_finite("update", np.array([1e38, 1e38], np.float32))
    with pytest.raises(errors.RunError, match="update has values that are not finite"):
        all_finite("update", np.array([1, np.nan, np.inf], np.float32))
