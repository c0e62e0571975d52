"""The section of the page on devices: simulated time and energy of runs with a device profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sottovoce.core.errors import InputError
from sottovoce.devices import Device, Estimate, Joules, profile
from sottovoce.devices.remarks import ALWAYS, remarks, two_digits
from sottovoce.report.runs import Facts
from sottovoce.report.units import finite, human_seconds, percent

PARTS: Final = {"radio_bytes": "radio: bytes", "radio_sessions": "radio: sessions", "training": "training"}
_CAUSES: Final = ("link", "deadline", "availability", "surplus")


def device_section(records: Sequence[Facts]) -> dict[str, Any]:
    """Return a row for each run with a profile, and what must be said beside its joules; empty if there is none."""
    rows, said = [], dict[str, list[str]]()
    for record in records:
        spent = _joules(record.get("joules_per_client"))
        if spent is None or not isinstance(record.get("devices"), dict):
            continue
        kinds = [device for name in record["devices"] if (device := _known(name)) is not None]
        seconds = finite(record.get("seconds_simulated")) or 0.0
        each = seconds / (finite(record.get("rounds")) or 1.0)
        rows.append(_row(record, spent, kinds, each))
        for sentence in remarks(spent, kinds, each):
            said.setdefault(sentence, []).append(str(record["label"]))
    return {
        "rows": rows,
        "parts": [*PARTS.items()],
        "remarks": [(sentence, ", ".join(names)) for sentence, names in said.items()],
        "always": list(ALWAYS),
    }


def joules_of_run(record: Facts) -> float | None:
    """Return the joules of one client in the whole run; None if they are not told."""
    spent = _joules(record.get("joules_per_client_run"))
    return None if spent is None else spent.total.default


def _row(record: Facts, spent: Joules, kinds: Sequence[Device], each: float) -> dict[str, Any]:
    years = {device.name: device.year for device in kinds}
    names = [
        f"{name}{f' ({years[name]})' if name in years else ''}{f' {percent(share)}' if share != 1 else ''}"
        for name, share in record["devices"].items()
    ]
    total = spent.total
    whole = total.default or 1.0
    run = _joules(record.get("joules_per_client_run"))
    lost = record.get("dropouts")
    return {
        "label": record["label"],
        "devices": ", ".join(names),
        "seconds": human_seconds(each),
        "seconds_run": human_seconds(record.get("seconds_simulated")),
        "joules": two_digits(total.default),
        "range": f"{two_digits(total.low)} to {two_digits(total.high)}",
        "parts": [
            (name, two_digits(getattr(spent, name).default), 100 * getattr(spent, name).default / whole)
            for name in PARTS
        ],
        "run": "—" if run is None else two_digits(run.total.default),
        "lost": _lost(lost) if isinstance(lost, dict) else "not told",
        "ranks": {
            "seconds": each,
            "seconds_run": finite(record.get("seconds_simulated")),
            "joules": total.default,
            "run": None if run is None else run.total.default,
        },
    }


def _lost(causes: dict[str, int]) -> str:
    return ", ".join(f"{cause} {causes[cause]}" for cause in _CAUSES if causes.get(cause)) or "nobody"


def _joules(told: Any) -> Joules | None:
    """Read joules from a summary; None if there are none, or if another version wrote them in another way."""
    try:
        return Joules(*(Estimate(*(float(told[name][end]) for end in ("low", "default", "high"))) for name in PARTS))
    except (KeyError, TypeError, ValueError):
        return None


def _known(name: str) -> Device | None:
    try:
        return profile(name)
    except InputError:  # of another version
        return None
