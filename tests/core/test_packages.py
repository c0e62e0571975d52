"""A package of an extra that is missing is one sentence, with the line that installs it; extras and table agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sottovoce.core import packages
from sottovoce.core.errors import InputError
from sottovoce.core.packages import OPTIONAL, require

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
OURS = ("dev", "docs", "release")  # for whoever works on sottovoce: nothing of it is imported by the package


def names(lines: list[str]) -> set[str]:
    return {re.split(r"[\s<>=!~;\[(]", line, maxsplit=1)[0].lower() for line in lines} - {"sottovoce"}


def inside(extra: str) -> set[str]:
    """Return the packages of an extra, with those of the extras that it names."""
    own = EXTRAS[extra]
    nested = [part for line in own if (found := re.match(r"sottovoce\[(.*)\]", line)) for part in found[1].split(",")]
    return names(own).union(*(inside(part) for part in nested))


@pytest.mark.parametrize("module", OPTIONAL)
def test_the_extra_that_an_error_names_has_the_package(module: str) -> None:
    distribution, extra = OPTIONAL[module]

    assert distribution.lower() in inside(extra)
    assert distribution.lower() not in names(PROJECT["dependencies"])


def test_every_package_of_an_extra_has_an_error_that_names_it() -> None:
    known = {distribution for distribution, _ in OPTIONAL.values()}

    assert set().union(*(inside(extra) for extra in EXTRAS if extra not in OURS)) == known


def test_all_has_every_extra_but_the_one_that_needs_an_environment_of_its_own() -> None:
    others = set().union(*(inside(extra) for extra in EXTRAS if extra not in (*OURS, "all")))

    assert others - inside("all") == {"flwr"}


def test_what_is_missing_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    require("a test", "numpy")
    monkeypatch.setattr(packages, "installed", lambda module: False)

    with pytest.raises(InputError) as one:
        require("--html", "plotly")
    with pytest.raises(InputError) as several:
        require("--to onnx", "onnx", "torch", extra="onnx")

    assert str(one.value) == (
        "--html needs plotly, which is not installed; install it with: pip install 'sottovoce[report]'"
    )
    assert str(several.value) == (
        "--to onnx needs onnx and torch, which are not installed; install it with: pip install 'sottovoce[onnx]'"
    )
    assert one.value.exit_code == 2
