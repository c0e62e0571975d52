"""The mutants by name: each would void the guarantee, and every sum, model and epsilon would look as before.

A module of this package that has MUTANTS is in. Texts are short, so that an edit nearby does not spoil them. One that
no longer occurs exactly once is an error: the mutant must follow the code.
"""

from __future__ import annotations

import importlib
import pkgutil

from tests import mutants
from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_NOT = ("__main__", "catalogue", "mutant", "test_catalogue")
MUTANTS: tuple[Mutant, ...] = tuple(
    mutant
    for module in sorted(found.name for found in pkgutil.iter_modules(mutants.__path__))
    if module not in _NOT
    for mutant in importlib.import_module(f"tests.mutants.{module}").MUTANTS
)
