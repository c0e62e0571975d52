from __future__ import annotations

import pytest

from sottovoce.core.errors import InputError
from sottovoce.threats import defences


def test_every_defence_has_its_name_formula_paper_and_assumption() -> None:
    described = {entry["name"]: entry for entry in defences.DEFENCES.describe(lambda _, kind: kind.describe())}

    for name in defences.known():
        assert defences.make(name).name == name
        assert "out" in described[name]["does"]
        assert " 20" in described[name]["paper"]
        assert "n" in described[name]["assumes"]


def test_a_wrong_name_is_refused_and_the_nearest_named() -> None:
    with pytest.raises(InputError, match="did you mean 'multi-krum'"):
        defences.make("multikrum")


def test_a_bound_must_be_positive() -> None:
    with pytest.raises(InputError, match=r"bound must be above 0, got 0"):
        defences.make("norm-bound", bound=0.0)
