"""What machines compute with, compared."""

from __future__ import annotations

import platform

import numpy as np

from sottovoce.federation.engines.machines import differences, reader_of_versions


def test_versions_that_differ_are_named() -> None:
    ours = {"python": "3.11.7", "sottovoce": "0.1.0", "numpy": "2.1.0"}

    assert differences(ours, {"a": ours, "b": dict(ours)}) is None
    assert differences(ours, {"a": ours, "b": {**ours, "numpy": "2.0.0"}}) == (
        "machine b has numpy 2.0.0 and this one 2.1.0"
    )
    assert differences(ours, {"b": {"python": "3.11.7", "numpy": "2.1.0"}}) == (
        "machine b has sottovoce not installed and this one 0.1.0"
    )


def test_a_machine_may_lack_torch_and_may_not_have_another() -> None:
    ours = {"python": "3.11.7", "torch": "2.7.0"}

    assert differences(ours, {"b": {"python": "3.11.7"}}) is None
    assert differences(ours, {"b": {"python": "3.11.7", "torch": "2.6.0"}}) == (
        "machine b has torch 2.6.0 and this one 2.7.0"
    )


def test_a_machine_tells_python_and_the_packages_that_decide_the_bits() -> None:
    told = reader_of_versions()()

    assert {"python", "sottovoce", "numpy"} <= set(told) <= {"python", "sottovoce", "numpy", "torch"}
    assert (told["python"], told["numpy"]) == (platform.python_version(), np.__version__)
