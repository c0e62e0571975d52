"""Read what an audit measured of a run's privacy, and say loudly when it contradicts what was proven."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sottovoce.report.units import count, epsilon, finite

Record = Mapping[str, Any]

# Of each adversary: the key of what was proven (no more than this leaks) and of what was measured (at least this does).
LOWER: Final = {"epsilon": "epsilon_lower", "epsilon_server": "epsilon_server_lower"}
_AGAINST: Final = {"epsilon": "outsiders", "epsilon_server": "the server"}


def read_audit(folder: Path) -> dict[str, Any] | None:
    """Return what `audit.json` holds, or None; a damaged one is told as a problem, and does not hide the run."""
    path = folder / "audit.json"
    try:
        audit = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return {"problem": f"audit.json cannot be read: {error}"}
    if not isinstance(audit, dict):
        return {"problem": "audit.json cannot be read: it must hold one object"}
    audit.pop("problem", None)  # ours
    return audit


def audit_facts(audit: Record | None) -> dict[str, Any]:
    """Return the audit as facts of its run, with what the table shows of it; null if there was no audit."""
    if audit is None:
        return {"audit": None}
    return {"audit": dict(audit), **{key: audit.get(key) for key in LOWER.values()}}


def accusations(record: Record) -> list[str]:
    """Return what the audit holds against a run; the numbers are compared here too, whatever the audit concluded."""
    audit = record.get("audit")
    if not isinstance(audit, Mapping):
        return []
    reasons = audit.get("reasons")
    found = [str(reason) for reason in reasons] if isinstance(reasons, list) and audit.get("accused") else []
    if audit.get("accused") and not found:
        found.append("the audit gives no reason")
    # Told already where the audit speaks for itself.
    for proven, lower in LOWER.items() if not found else ():
        most, least = finite(audit.get(proven)), finite(audit.get(lower))
        if most is not None and least is not None and least > most:
            found.append(
                f"epsilon against {_AGAINST[proven]} is at least {audited(least)} by measurement, but at most "
                f"{epsilon(most)} by proof"
            )
    return found


def audited(value: Any) -> str:
    """Return a measured epsilon with four digits, rounded down: what is printed never accuses of more than was seen.

    >>> audited(1.23456), audited(0), audited(None)
    ('1.234', '0', '—')
    """
    number = finite(value)
    if number is None or number <= 0:
        return count(value)
    step = 10.0 ** (math.floor(math.log10(number)) - 3)
    return f"{math.floor(number / step + 1e-9) * step:.4g}"
