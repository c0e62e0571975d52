"""What must be said beside joules, so that nobody reads more into them than they tell."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from sottovoce.devices.device import Device
from sottovoce.devices.energy import Joules

ALWAYS: Final = (
    "Estimates for one class of devices, good to a factor of 2 to 3 (radio) and 5 (training); use them to compare "
    "schemes, not to size a battery. Sources and dates: sottovoce devices NAME.",
    "Counts the device only; network and server are not included.",
)


def two_digits(value: float) -> str:
    """Return a number with two significant digits: more would be a promise.

    >>> two_digits(0.0906), two_digits(12.08), two_digits(158_200.0), two_digits(0.0)
    ('0.091', '12', '160,000', '0')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = 1 - math.floor(math.log10(abs(float(f"{value:.1e}"))))
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def duration(seconds: float) -> str:
    """Return a duration in words, with two significant digits.

    >>> duration(0.5), duration(600), duration(12.7 * 86_400)
    ('0.50 seconds', '10 minutes', '13 days')
    """
    for unit, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{two_digits(seconds / unit)} {name}"
    return f"{two_digits(seconds)} seconds"


def remarks(spent: Joules, devices: Iterable[Device], seconds: float) -> list[str]:
    """Return the sentences that apply to one client's joules in a round that takes so many seconds."""
    kinds, radio, training = list(devices), spent.radio.default, spent.training.default
    said = []
    if radio and spent.radio_sessions.default > radio / 2:
        share = min(99, round(100 * spent.radio_sessions.default / radio))
        said.append(
            f"Most of the radio energy here is the session, not your bytes ({share} %). Fewer exchanges will save more "
            "than a smaller update."
        )
    if radio and training > radio:
        said.append(
            f"On this link training costs {two_digits(training / radio)} times what communication costs. Compression "
            "buys time and data volume, not energy."
        )
    duties = sorted({kind.link.frame.duty_cycle for kind in kinds if kind.link.frame is not None})
    if duties:
        said.append(
            f"This payload needs {duration(seconds)} at the {duties[0]:.0%} duty cycle; a round cannot be shorter."
        )
    idle = max((kind.compute.idle_w for kind in kinds), default=0.0)
    if idle >= 1:
        said.append(
            f"The device is assumed to be on anyway. If it is switched on for this, add {two_digits(idle)} W x "
            f"{two_digits(seconds)} s = {two_digits(idle * seconds)} J a round."
        )
    if any(kind.name.startswith("phone") for kind in kinds):
        said.append("Joules drawn while charging are not battery joules.")
    if any(kind.relay is not None for kind in kinds):
        said.append("A phone must pass these bytes on; what that costs it is not included.")
    return said
