"""Write numbers the way people read them; a value that does not apply is a dash."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final

ABSENT: Final = "—"
_BYTES: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def finite(value: Any) -> float | None:
    """Return a number, or None for what is none or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def human_bytes(value: Any) -> str:
    """Return bytes with three digits and a decimal unit.

    >>> human_bytes(13_540), human_bytes(999), human_bytes(999_999), human_bytes(None)
    ('13.5 kB', '999 B', '1.00 MB', '—')
    """
    number = finite(value)
    if number is None:
        return ABSENT
    step = 0
    # 999.5 would be rounded up to four digits.
    while abs(number) >= 999.5 and step < len(_BYTES) - 1:
        number, step = number / 1000, step + 1
    if step == 0:
        return f"{number:.3g} B" if number < 100 else f"{number:.0f} B"
    return f"{number:.{2 if number < 9.995 else 1 if number < 99.95 else 0}f} {_BYTES[step]}"


def exact_bytes(value: Any) -> str:
    """Return bytes in full.

    >>> exact_bytes(13540), exact_bytes(1.5)
    ('13,540 bytes', '1.5 bytes')
    """
    number = finite(value)
    return ABSENT if number is None else f"{count(number)} bytes"


def human_seconds(value: Any) -> str:
    """Return a duration in the largest two units that matter.

    >>> human_seconds(0.25), human_seconds(75), human_seconds(7500)
    ('0.25 s', '1 min 15 s', '2 h 5 min')
    """
    number = finite(value)
    if number is None:
        return ABSENT
    if number < 59.5:
        return f"{number:.2g} s" if number < 10 else f"{number:.0f} s"
    minutes, seconds = divmod(round(number), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(round(number / 60), 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(round(number / 3600), 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def decimal(value: Any, digits: int = 4) -> str:
    """Return a number with a fixed number of digits after the point."""
    number = finite(value)
    return ABSENT if number is None else f"{number:.{digits}f}"


def count(value: Any) -> str:
    """Return a number with separators, without digits that say nothing.

    >>> count(1663370), count(83.25), count(0.00001)
    ('1,663,370', '83.25', '1e-05')
    """
    number = finite(value)
    if number is None:
        return ABSENT
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:,.2f}".rstrip("0").rstrip(".") if abs(number) >= 1 else f"{number:.4g}"


def percent(value: Any) -> str:
    """Return a share in percent, without digits that say nothing.

    >>> percent(0.1), percent(0.025), percent(1 / 3)
    ('10 %', '2.5 %', '33.33 %')
    """
    number = finite(value)
    return ABSENT if number is None else f"{100 * number:.4g} %"


def epsilon(value: Any) -> str:
    """Return a privacy loss with four digits, rounded up: what is printed must never promise more than was proven.

    >>> epsilon(17.2111), epsilon(4.9999998), epsilon(0.5)
    ('17.22', '5', '0.5')
    """
    number = finite(value)
    if number is None:
        return "∞" if value == math.inf else ABSENT
    if number <= 0:
        return count(number)
    step = 10.0 ** (math.floor(math.log10(number)) - 3)
    # 0.5 / 0.0001 is 5000.000000000001 in floating point, and is not meant to become 0.5001.
    return f"{math.ceil(number / step - 1e-9) * step:.4g}"


@cache
def _decimal() -> tuple[str, ...]:
    """Return the names of values that are read as decimals; the table of metrics is imported when it is needed."""
    from sottovoce.models.metrics import METRICS

    return ("noise_multiplier", *(name for name, metric in METRICS.items() if metric.higher))


def human_value(name: str, value: Any) -> str:
    """Return any value of a summary or a plan in the unit that its name tells."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(human_value(name, item) for item in value) or ABSENT
    if not isinstance(value, int | float):
        return str(value)
    if name.rpartition(".")[2] in ("epsilon", "epsilon_server", "epsilon_spent"):
        return epsilon(value)
    if not math.isfinite(value):
        return ABSENT if math.isnan(value) else "∞" if value > 0 else "-∞"
    if name.startswith("bytes_") or name.endswith("_bytes") or "_bytes_" in name:
        short, long = human_bytes(value), exact_bytes(value)
        return long if short.endswith(" B") else f"{short}  ({long})"
    if name == "seconds" or name.startswith("seconds_"):
        return human_seconds(value)
    if isinstance(value, float) and any(each in name for each in _decimal()):
        return decimal(value)
    return count(value)
