"""Joules and seconds of one client's part in a round, on a device.

    E = S E_session + 8 B_up (a_up + b_up / R_up) + 8 B_down (a_down + b_down / R_down) + G e

with bytes B, goodputs R, slopes a, base powers b, S sessions, and G GFLOP of training at e joules each. The power
a R + b is capped (`Radio.cap_w`): the law was fitted at particular rates. LoRaWAN counts frames instead. The idle power
of the host is not in it: the device is assumed to be on anyway. What a figure means, and how far it can be off:
docs/devices.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from sottovoce.core.validate import in_range
from sottovoce.devices import lorawan
from sottovoce.devices.device import Device, Frame, Radio

__all__ = ["Interval", "Joules", "Work", "joules", "relay_joules", "seconds", "sessions"]


@dataclass(frozen=True)
class Work:
    """What one client does in one round (or in many: joules add up).

    A round is download, training, upload, in one exchange. Protocols with more phases have more `exchanges`, each one
    round trip; `gaps` are the silent seconds before each further phase, while the server waits for other clients. The
    pause of the training itself is not a gap: it follows from `gflop` and the device's speed.
    """

    bytes_up: float = 0.0
    bytes_down: float = 0.0
    gflop: float = 0.0
    exchanges: int = 1
    gaps: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        in_range("bytes_up", self.bytes_up, low=0)
        in_range("bytes_down", self.bytes_down, low=0)
        in_range("gflop", self.gflop, low=0)
        in_range("exchanges", self.exchanges, low=0)
        for gap in self.gaps:
            in_range("gaps", gap, low=0)


@dataclass(frozen=True)
class Interval:
    """A number with how far down and up it can be off."""

    low: float
    default: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.default + other.default, self.high + other.high)

    def __mul__(self, factor: float) -> Interval:
        return Interval(self.low * factor, self.default * factor, self.high * factor)


@dataclass(frozen=True)
class Joules:
    """Energy of one client, split into what its bytes, its radio's sessions and its training cost."""

    radio_bytes: Interval
    radio_sessions: Interval
    training: Interval

    @property
    def radio(self) -> Interval:
        """Return what talking costs."""
        return self.radio_bytes + self.radio_sessions

    @property
    def total(self) -> Interval:
        """Return the whole."""
        return self.radio + self.training

    def __add__(self, other: Joules) -> Joules:
        return Joules(
            self.radio_bytes + other.radio_bytes,
            self.radio_sessions + other.radio_sessions,
            self.training + other.training,
        )

    def __mul__(self, factor: float) -> Joules:
        return Joules(self.radio_bytes * factor, self.radio_sessions * factor, self.training * factor)


def joules(device: Device, work: Work) -> Joules:
    """Return the energy of one client's work on a device.

    >>> from sottovoce.devices.catalogue import profile
    >>> round(joules(profile("phone-lte"), Work(6.65e6, 6.65e6, gflop=3.6)).total.default, 1)
    12.1
    """
    radio, compute = device.radio, device.compute
    sent = _bytes_j(device, work)
    count, waited = _sessions(device, work)
    return Joules(
        Interval(sent * radio.bytes_low, sent, sent * radio.bytes_high),
        Interval(
            count * radio.session_low_j + waited * _ratio(radio.session_low_j, radio.session_j),
            count * radio.session_j + waited,
            count * radio.session_high_j + waited * _ratio(radio.session_high_j, radio.session_j),
        ),
        Interval(
            work.gflop * compute.j_per_gflop_low,
            work.gflop * compute.j_per_gflop,
            work.gflop * compute.j_per_gflop_high,
        ),
    )


def relay_joules(device: Device, work: Work) -> Joules | None:
    """Return what the phone that passes a watch's bytes on spends in addition; None if the device talks itself.

    What the watch sends up the phone receives and sends on; only the second half is counted, over its own link.
    """
    if device.relay is None:
        return None
    return joules(device.relay, Work(work.bytes_up, work.bytes_down, 0.0, work.exchanges, work.gaps))


def seconds(device: Device, work: Work) -> float:
    """Return how long a client works: round trips, download, training, upload; waiting for others is not in it.

    T = RTT exchanges + 8 B_down / R_down + G / speed + 8 B_up / R_up
    """
    link = device.link
    training = work.gflop / device.compute.gflops
    if link.frame is not None:
        moved = lorawan.seconds_up(link.frame, work.bytes_up) + lorawan.seconds_down(link.frame, work.bytes_down)
    else:
        moved = 8e-6 * (work.bytes_up / link.up_mbps + work.bytes_down / link.down_mbps)
    return link.rtt_s * work.exchanges + moved + training


def sessions(device: Device, work: Work) -> int:
    """Return how often the radio wakes up: once, and again after each silence longer than its tail."""
    return _sessions(device, work)[0]


def _sessions(device: Device, work: Work) -> tuple[int, float]:
    """Return the sessions, and the joules of gaps too short to end one: those cost the tail's power.

    A training that is shorter than the tail is not charged: download, training and upload are then one session.
    """
    if not work.gaps and not work.bytes_up and not work.bytes_down:
        return 0, 0.0  # nothing is said
    tail = device.radio.tail_s
    count = 1 + (work.gflop / device.compute.gflops > tail) + sum(gap > tail for gap in work.gaps)
    return count, device.radio.tail_w * sum(gap for gap in work.gaps if gap <= tail)


def _bytes_j(device: Device, work: Work) -> float:
    link, radio = device.link, device.radio
    if link.frame is not None:
        return _framed_j(link.frame, radio, work)
    up = _per_bit(radio.slope_up_nj_bit, radio.base_up_w, radio.cap_w, link.up_mbps)
    down = _per_bit(radio.slope_down_nj_bit, radio.base_down_w, radio.cap_w, link.down_mbps)
    return 8 * (work.bytes_up * up + work.bytes_down * down)


def _per_bit(slope_nj_bit: float, base_w: float, cap_w: float, mbps: float) -> float:
    """Return J/bit: the power (1 nJ/bit = 1 mW per Mb/s), capped, over the rate."""
    return min(slope_nj_bit * 1e-3 * mbps + base_w, cap_w) / (mbps * 1e6)


def _framed_j(frame: Frame, radio: Radio, work: Work) -> float:
    """Return a framed link's joules: each frame down is bought with an empty one up (class A)."""
    sending = lorawan.time_on_air_up(frame, frame.max_payload) * radio.base_up_w
    asking = lorawan.time_on_air_up(frame, 0) * radio.base_up_w
    hearing = lorawan.time_on_air_down(frame, frame.max_payload) * radio.base_down_w
    up, down = lorawan.frames(frame, work.bytes_up), lorawan.frames(frame, work.bytes_down)
    return up * (sending + frame.frame_j) + down * (hearing + asking + frame.frame_j)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 1.0
