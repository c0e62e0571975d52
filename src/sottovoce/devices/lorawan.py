"""LoRaWAN: time on air, frames, and the waits that the duty cycle of EU868 imposes."""

from __future__ import annotations

import math
from typing import Final

from sottovoce.devices.device import Frame

_PREAMBLE: Final = 8  # symbols
_SLOW_SYMBOL: Final = 0.016  # seconds; slower ones (SF11, SF12 at 125 kHz) need the low-data-rate optimisation
_CODING: Final = 1  # rate 4/5


def time_on_air(payload: int, spreading_factor: int, bandwidth_hz: float, *, crc: bool = True) -> float:
    """Return the seconds that a frame with a PHY payload of so many bytes is on air, as the SX1276's datasheet has it.

        T_sym = 2^SF / BW;  DE = 1 if T_sym > 16 ms else 0
        n     = 8 + max(ceil((8 PL - 4 SF + 28 + 16 CRC) / (4 (SF - 2 DE))) (CR + 4), 0)
        ToA   = (8 + 4.25 + n) T_sym

    >>> round(time_on_air(255, 7, 125_000), 4)
    0.3996
    """
    symbol = (1 << spreading_factor) / bandwidth_hz
    slow = symbol > _SLOW_SYMBOL
    bits = 8 * payload - 4 * spreading_factor + 28 + 16 * crc
    symbols = 8 + max(math.ceil(bits / (4 * (spreading_factor - 2 * slow))) * (_CODING + 4), 0)
    return (_PREAMBLE + 4.25 + symbols) * symbol


def time_on_air_up(frame: Frame, payload: int) -> float:
    """Return the seconds on air of an uplink frame that carries so many application bytes."""
    return time_on_air(payload + frame.overhead, frame.spreading_factor, frame.bandwidth_hz)


def time_on_air_down(frame: Frame, payload: int) -> float:
    """Return the seconds on air of a downlink frame, which has no checksum of its payload."""
    return time_on_air(payload + frame.overhead, frame.spreading_factor, frame.bandwidth_hz, crc=False)


def frames(frame: Frame, size: float) -> int:
    """Return how many frames carry so many application bytes; the last one is counted as full."""
    return math.ceil(size / frame.max_payload)


def seconds_up(frame: Frame, size: float) -> float:
    """Return how long so many bytes take upwards at the legal limit: after each frame the node must be silent."""
    return frames(frame, size) * time_on_air_up(frame, frame.max_payload) / frame.duty_cycle


def seconds_down(frame: Frame, size: float) -> float:
    """Return how long so many bytes take downwards in class A, to one node that has its gateway for itself.

    One empty uplink buys one downlink, so the slower of the two limits rules: the node's own duty cycle on the empty
    uplinks, or the gateway's on its band.
    """
    asking = time_on_air_up(frame, 0) / frame.duty_cycle
    answering = time_on_air_down(frame, frame.max_payload) / frame.gateway_duty_cycle
    return frames(frame, size) * max(asking, answering)
