"""Seconds and joules of many clients at once; the formulas are those of `energy`, on columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sottovoce.devices import lorawan
from sottovoce.devices.device import Device
from sottovoce.devices.energy import Interval, Joules
from sottovoce.devices.population import Fleet, Population

__all__ = ["Meters", "moving_joules", "moving_seconds"]

Floats = NDArray[np.float64]


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
            Interval(moved * radio.bytes_low, moved, moved * radio.bytes_high),
            Interval(sessions(radio.session_low_j), sessions(radio.session_j), sessions(radio.session_high_j)),
            Interval(gflop * compute.j_per_gflop_low, gflop * compute.j_per_gflop, gflop * compute.j_per_gflop_high),
        )
