"""Simulated devices: links, radios, processors; what a round costs on them; which clients leave it, and when."""

from sottovoce.devices.catalogue import known, profile
from sottovoce.devices.clock import Cause, Clock, RoundClock, RoundTime, Rules
from sottovoce.devices.device import MARKS, Availability, Compute, Device, Frame, Link, Origin, Radio
from sottovoce.devices.dropout import Dropout
from sottovoce.devices.energy import Interval, Joules, Work, joules, relay_joules, seconds, sessions
from sottovoce.devices.expected import Exchange, Expected, expected_round
from sottovoce.devices.population import Population

__all__ = [
    "MARKS",
    "Availability",
    "Cause",
    "Clock",
    "Compute",
    "Device",
    "Dropout",
    "Exchange",
    "Expected",
    "Frame",
    "Interval",
    "Joules",
    "Link",
    "Origin",
    "Population",
    "Radio",
    "RoundClock",
    "RoundTime",
    "Rules",
    "Work",
    "expected_round",
    "joules",
    "known",
    "profile",
    "relay_joules",
    "seconds",
    "sessions",
]
