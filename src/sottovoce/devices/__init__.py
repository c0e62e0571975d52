"""Simulated devices: links, radios, processors; what a round costs on them; which clients leave it, and when."""

from sottovoce.devices.catalogue import known, profile
from sottovoce.devices.clock import Cause, Clock, Dropout, RoundClock, RoundTime, Rules
from sottovoce.devices.cost import Expected, expected_round
from sottovoce.devices.device import MARKS, Availability, Compute, Device, Frame, Link, NumberOrigin, Radio
from sottovoce.devices.energy import Estimate, Joules, Work, joules, relay_joules, seconds, sessions
from sottovoce.devices.population import Population

__all__ = [
    "MARKS",
    "Availability",
    "Cause",
    "Clock",
    "Compute",
    "Device",
    "Dropout",
    "Estimate",
    "Expected",
    "Frame",
    "Joules",
    "Link",
    "NumberOrigin",
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
