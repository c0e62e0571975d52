"""Every mutant applies: one that does not breaks nothing, and says nothing about the tests."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, misfit
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant


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


def _problem(mutant: Mutant) -> str | None:
    if (problem := misfit(ROOT, mutant)) is not None:
        return problem
    texts: dict[Path, str] = {}
    for edit in mutant.edits:
        path = ROOT / "src" / "sottovoce" / edit.file
        texts[path] = texts.get(path, path.read_text()).replace(edit.old, edit.new)
    for path, text in texts.items():
        if path.suffix == ".py":
            try:
                ast.parse(text)
            except SyntaxError as error:
                return f"{path.name} is no Python with it: {error}"
    return None
