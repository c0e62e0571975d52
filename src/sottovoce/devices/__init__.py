"""Simulated devices: links, radios, processors; what a round costs on them; which clients leave it, and when."""

from sottovoce.devices.catalogue import known, profile
from sottovoce.devices.device import MARKS, Availability, Compute, Device, Frame, Link, Origin, Radio
from sottovoce.devices.dropout import Dropout
from sottovoce.devices.energy import Interval, Joules, Work, joules, relay_joules, seconds, sessions

__all__ = [
    "MARKS",
    "Availability",
    "Compute",
    "Device",
    "Dropout",
    "Frame",
    "Interval",
    "Joules",
    "Link",
    "Origin",
    "Radio",
    "Work",
    "joules",
    "known",
    "profile",
    "relay_joules",
    "seconds",
    "sessions",
]
