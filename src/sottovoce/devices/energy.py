"""Joules and seconds of one client's part in a round, on a device; and of many clients at once, on columns.

    E = S E_session + 8 B_up (a_up + b_up / R_up) + 8 B_down (a_down + b_down / R_down) + G e

with bytes B, goodputs R, slopes a, base powers b, S sessions, and G GFLOP of training at e joules each. The power
a R + b is capped (`Radio.cap_w`): the law was fitted at particular rates. LoRaWAN counts frames instead. The idle power
of the host is not in it: the device is assumed to be on anyway. What a figure means, and how far it can be off:
docs/devices.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.validate import in_range
from sottovoce.devices import lorawan
from sottovoce.devices.device import Device, Frame, Radio
from sottovoce.devices.population import Fleet, Population

Floats = NDArray[np.float64]


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
class Estimate:
    """A number with how far down and up it can be off."""

    low: float
    default: float
    high: float

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.low + other.low, self.default + other.default, self.high + other.high)

    def __mul__(self, factor: float) -> Estimate:
        return Estimate(self.low * factor, self.default * factor, self.high * factor)


@dataclass(frozen=True)
class Joules:
    """Energy of one client, split into what its bytes, its radio's sessions and its training cost."""

    radio_bytes: Estimate
    radio_sessions: Estimate
    training: Estimate

    @property
    def radio(self) -> Estimate:
        """Return what talking costs."""
        return self.radio_bytes + self.radio_sessions

    @property
    def total(self) -> Estimate:
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
        Estimate(sent * radio.bytes_low, sent, sent * radio.bytes_high),
        Estimate(
            count * radio.session_low_j + waited * _ratio(radio.session_low_j, radio.session_j),
            count * radio.session_j + waited,
            count * radio.session_high_j + waited * _ratio(radio.session_high_j, radio.session_j),
        ),
        Estimate(
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


def moving_seconds(population: Population, fleet: Fleet, up: Floats, down: Floats) -> Floats:
    """Return how long each client's bytes take, both ways; on LoRaWAN at the legal limit."""
    taken = 8e-6 * (up / fleet.up_mbps + down / fleet.down_mbps)
    for kind, device in enumerate(population.devices):
        frame = device.link.frame
        if frame is not None:
            mine = fleet.kinds == kind
            one_up, one_down = lorawan.seconds_up(frame, 1), lorawan.seconds_down(frame, 1)  # of one frame
            taken[mine] = (
                np.ceil(up[mine] / frame.max_payload) * one_up + np.ceil(down[mine] / frame.max_payload) * one_down
            )
    return taken


def moving_joules(population: Population, fleet: Fleet, up: Floats, down: Floats) -> Floats:
    """Return what each client's bytes cost, without the sessions."""
    spent = np.zeros(len(fleet))
    for kind, device in enumerate(population.devices):
        mine = slice(None) if len(population.devices) == 1 else fleet.kinds == kind
        spent[mine] = _of_device(device, up[mine], down[mine], fleet.up_mbps[mine], fleet.down_mbps[mine])
    return spent


def _of_device(device: Device, up: Floats, down: Floats, up_mbps: Floats, down_mbps: Floats) -> Floats:
    radio, frame = device.radio, device.link.frame
    if frame is not None:
        sending = lorawan.time_on_air_up(frame, frame.max_payload) * radio.base_up_w
        asking = lorawan.time_on_air_up(frame, 0) * radio.base_up_w
        hearing = lorawan.time_on_air_down(frame, frame.max_payload) * radio.base_down_w
        frames_up, frames_down = np.ceil(up / frame.max_payload), np.ceil(down / frame.max_payload)
        framed: Floats = frames_up * (sending + frame.frame_j) + frames_down * (hearing + asking + frame.frame_j)
        return framed
    power_up = np.minimum(radio.slope_up_nj_bit * 1e-3 * up_mbps + radio.base_up_w, radio.cap_w)
    power_down = np.minimum(radio.slope_down_nj_bit * 1e-3 * down_mbps + radio.base_down_w, radio.cap_w)
    spent: Floats = 8e-6 * (up * power_up / up_mbps + down * power_down / down_mbps)
    return spent


@dataclass
class Meters:
    """What each of some clients has spent so far in a round: joules of bytes, sessions, short silences, GFLOP."""

    population: Population
    fleet: Fleet
    moved: Floats
    sessions: Floats
    waited: Floats  # seconds of silences too short to end a session
    gflop: Floats
    tails: Floats  # of each one's radio

    @classmethod
    def empty(cls, population: Population, fleet: Fleet) -> Meters:
        """Return the meters of clients that have done nothing yet."""
        moved, sessions, waited, gflop = np.zeros((4, len(fleet)))
        return cls(population, fleet, moved, sessions, waited, gflop, population.column("radio", "tail_s", fleet))

    def talk(self, at: NDArray[np.intp], fleet: Fleet, up: Floats, down: Floats, silent: Floats) -> None:
        """Charge the clients at some places (`fleet`) for a phase; `silent` is how long each was quiet before.

        NaN: for ever.
        """
        goes_on = silent <= self.tails[at]
        self.moved[at] += moving_joules(self.population, fleet, up, down)
        self.sessions[at] += ~goes_on
        self.waited[at] += np.where(goes_on, silent, 0.0)

    def train(self, at: NDArray[np.intp], fleet: Fleet, gflop: Floats) -> None:
        """Charge the clients at some places for a training in the middle of a phase; a long one ends the session."""
        self.gflop[at] += gflop
        self.sessions[at] += gflop / fleet.gflops > self.tails[at]

    def mean(self) -> Joules | None:
        """Return what one client that did anything spent on average; None if there is none."""
        active = int(np.count_nonzero(self.sessions))
        if not active:
            return None
        totals = [self._of_kind(kind) for kind in range(len(self.population.devices))]
        return sum(totals[1:], totals[0]) * (1 / active)

    def _of_kind(self, kind: int) -> Joules:
        device, columns = self.population.devices[kind], [self.moved, self.gflop, self.sessions, self.waited]
        if len(self.population.devices) > 1:
            columns = [column[self.fleet.kinds == kind] for column in columns]
        radio, compute = device.radio, device.compute
        moved, gflop, count, waited = (float(column.sum()) for column in columns)
        waited *= radio.tail_w

        def sessions(each: float) -> float:
            return count * each + waited * (each / radio.session_j if radio.session_j else 1.0)

        return Joules(
            Estimate(moved * radio.bytes_low, moved, moved * radio.bytes_high),
            Estimate(sessions(radio.session_low_j), sessions(radio.session_j), sessions(radio.session_high_j)),
            Estimate(gflop * compute.j_per_gflop_low, gflop * compute.j_per_gflop, gflop * compute.j_per_gflop_high),
        )
