"""Find defences by name."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Final

from sottovoce.core.validate import one_of
from sottovoce.threats.defences.base import Defence

__all__ = ["MAJORITY_VOTE", "defence_class", "describe", "known", "make"]

# Named and not imported: reading an experiment file should not wait for them.
_HOME: Final = "sottovoce.threats.defences"
_KNOWN: Final = {
    "median": f"{_HOME}.coordinate:Median",
    "trimmed-mean": f"{_HOME}.coordinate:TrimmedMean",
    "krum": f"{_HOME}.krum:Krum",
    "multi-krum": f"{_HOME}.krum:MultiKrum",
    "bulyan": f"{_HOME}.krum:Bulyan",
    "geometric-median": f"{_HOME}.geometric:GeometricMedian",
    "norm-bound": f"{_HOME}.norm_bound:NormBound",
    "fltrust": f"{_HOME}.trust:FLTrust",
}

MAJORITY_VOTE: Final = {
    "name": "majority vote",
    "does": "The sign that most clients send, in each coordinate. It is not set as a defence: it is the scheme fl-sign "
    "itself, and a secure sum leaves it as it is.",
    "assumes": "in each coordinate, more honest clients agree than there are malicious ones and dissenters",
    "paper": "Bernstein, Zhao, Azizzadenesheli, Anandkumar 2019, signSGD with Majority Vote is Communication Efficient "
    "and Fault Tolerant",
}


def known() -> list[str]:
    """Return the names of the defences."""
    return list(_KNOWN)


def make(name: str, **keys: Any) -> Defence:
    """Return a defence.

    >>> make("norm-bound", bound=2.0)
    NormBound(bound=2.0)
    >>> make("crum")
    Traceback (most recent call last):
    sottovoce.core.errors.InputError: defence has no 'crum'; did you mean 'krum'?
    """
    return defence_class(name)(**keys)


def defence_class(name: str) -> type[Defence]:
    """Return the class of a defence."""
    one_of("defence", name, _KNOWN)
    module, _, attribute = _KNOWN[name].partition(":")
    found: type[Defence] = getattr(importlib.import_module(module), attribute)
    return found


def describe() -> list[dict[str, Any]]:
    """Return name, formula, assumption and paper of every defence, and of the vote that is one by itself."""
    described = [defence_class(name).describe() for name in _KNOWN]
    return [{**entry, "does": inspect.cleandoc(entry["does"])} for entry in described] + [dict(MAJORITY_VOTE)]
