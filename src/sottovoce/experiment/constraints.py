"""Read constraints such as `epsilon<=1, up<=200kB, hours<=48`, and tell whether a plan keeps them.

epsilon          against outsiders, over the whole run
epsilon_server   against the server and the clients that help it
epsilon_member   against a client of the cohort
up, down         bytes of one client in one round, as the file's `secure` has it
bytes            of one client over the whole run, both ways, set-up included, rounds as often as it is drawn
joules           of one client over the whole run, on the most expensive device that is considered
hours            simulated, of the whole run, on the slowest device that is considered
rounds           of the run
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sottovoce.core.errors import InputError
from sottovoce.core.validate import nearest

__all__ = ["NAMES", "Constraint", "parse_constraints"]

_BYTES: Final = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9}
_UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "epsilon": {},
    "epsilon_server": {},
    "epsilon_member": {},
    "up": _BYTES,
    "down": _BYTES,
    "bytes": _BYTES,
    "joules": {"J": 1.0, "kJ": 1e3},
    "hours": {"h": 1.0, "min": 1 / 60, "d": 24.0},
    "rounds": {},
}
NAMES: Final = tuple(_UNITS)
_PROMISED: Final = {  # what no plan can tell, and why
    "accuracy": "accuracy depends on data that nobody has seen yet, so it is never promised; compare the predicted "
    "signal-to-noise ratios instead",
    "seconds": "seconds of this machine are measured, not planned; use --measure, or hours for the simulated time",
}
_FORM: Final = re.compile(r"\s*([A-Za-z_]+)\s*(<=|<|>=|>|==|=)\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")


@dataclass(frozen=True)
class Constraint:
    """One upper limit, in the unit of its name: bytes, joules, hours, or none."""

    name: str
    limit: float
    text: str  # as the user wrote it

    def holds(self, figures: Mapping[str, Any]) -> bool:
        """Tell whether a plan's figures keep it; what has no bound keeps no limit."""
        value = figures.get(self.name)
        return value is not None and float(value) <= self.limit


def parse_constraints(text: str) -> tuple[Constraint, ...]:
    """Return the constraints of a line, the strictest of each name, or say which part cannot be read.

    >>> [(c.name, c.limit) for c in parse_constraints("epsilon<=1, up<=200kB")]
    [('epsilon', 1.0), ('up', 200000.0)]
    """
    found: dict[str, Constraint] = {}
    for part in text.split(","):
        constraint = _parse(part)
        known = found.get(constraint.name)
        if known is None or constraint.limit < known.limit:
            found[constraint.name] = constraint
    return tuple(found.values())


def _parse(part: str) -> Constraint:
    shown = part.strip()
    if not shown:
        raise InputError("--solve has an empty part; write limits such as epsilon<=1, up<=200kB with commas between")
    match = _FORM.fullmatch(part)
    name = match[1] if match else re.split(r"[^A-Za-z_]", shown)[0]
    if name in _PROMISED:
        raise InputError(f"--solve cannot take {shown!r}: {_PROMISED[name]}")
    if name not in _UNITS:
        guess = nearest(name, NAMES) if name else None
        hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(NAMES)}"
        raise InputError(f"--solve has no limit {name or shown!r} in {shown!r}; {hint}")
    if match is None:
        raise InputError(f"--solve cannot read {shown!r}; write a limit such as {_example(name)}")
    if match[2] != "<=":
        raise InputError(f"--solve takes upper limits only, got {match[2]!r} in {shown!r}; write {_example(name)}")
    units = _UNITS[name]
    if match[4] and match[4] not in units:
        others = f"it has {', '.join(units)}" if units else "it has none"
        raise InputError(f"--solve: {match[4]!r} in {shown!r} is no unit of {name}; {others}")
    try:
        limit = float(match[3]) * units.get(match[4], 1.0)
    except ValueError:
        raise InputError(f"--solve: {match[3]!r} in {shown!r} is no number") from None
    if not 0 < limit < math.inf:
        raise InputError(f"--solve: the limit in {shown!r} must be finite and above 0")
    return Constraint(name, limit, shown)


def _example(name: str) -> str:
    unit = next((unit for unit in _UNITS[name] if unit in ("kB", "J", "h")), "")
    return f"{name}<=20{unit}" if name == "rounds" else f"{name}<=4{unit}"
