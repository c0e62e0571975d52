"""Every mutant applies: one that does not breaks nothing, and says nothing about the tests."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.mutants.__main__ import ROOT, misfit, texts_of
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Body, Mutant


def test_names_are_unique() -> None:
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []


@pytest.mark.parametrize("module", sorted({mutant.tests for mutant in MUTANTS}), ids=lambda tests: tests[0])
def test_the_tests_that_should_see_a_mutant_are_there(module: tuple[str, ...]) -> None:
    for selection in module[: module.index("-k")] if "-k" in module else module:
        path, _, name = selection.partition("::")
        assert (ROOT / path).exists(), selection
        if name:
            assert f"def {name.split('[')[0]}(" in (ROOT / path).read_text(), selection


def test_every_mutant_applies_and_is_python() -> None:
    wrong = [f"{mutant.name}: {problem}" for mutant in MUTANTS if (problem := _problem(mutant))]
    assert wrong == []


def test_a_body_takes_the_place_of_a_whole_function() -> None:
    text = 'class A:\n    def f(self):\n        """Two."""\n        return 2\n\n    def g(self):\n        return 3\n'
    changed = Body("a.py", "A.f", "x = 1\nreturn x").made(text)
    assert (
        changed == "class A:\n    def f(self):\n        x = 1\n        return x\n\n    def g(self):\n        return 3\n"
    )
    assert Body("a.py", "A.h", "pass").problem(text) == "a.py has no function A.h"


def _problem(mutant: Mutant) -> str | None:
    if (problem := misfit(ROOT, mutant)) is not None:
        return problem
    for path, text in texts_of(ROOT, mutant).items():
        if path.suffix == ".py":
            try:
                ast.parse(text)
            except SyntaxError as error:
                return f"{path.name} is no Python with it: {error}"
    return None
