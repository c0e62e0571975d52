"""What a device is to a simulation: a link, a radio, a processor, and hours at which it is there.

Units: rates in Mb/s, slopes in nJ/bit (= mW per Mb/s), powers in W, energies in J, speeds in GFLOP/s, memory in MB.
Every number of a profile carries where it comes from (`NumberOrigin`); `sottovoce devices NAME` prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range

MARKS: Final[Mapping[str, str]] = {
    "V": "read in the source",
    "D": "worked out from the source",
    "M": "published, not read again: check before relying on it",
    "A": "an assumption of ours, without a source",
}


@dataclass(frozen=True)
class NumberOrigin:
    """Where a number comes from: its mark (V, D, M or A), the year of the source, and the source in words."""

    mark: str
    year: int
    text: str


@dataclass(frozen=True)
class Frame:
    """Framing of a LoRaWAN link: messages travel in frames of a fixed size, under a legal limit of time on air."""

    max_payload: int  # application bytes a frame
    overhead: int  # bytes of MHDR, FHDR, FPort and MIC
    spreading_factor: int
    bandwidth_hz: float
    duty_cycle: float  # share of time that the node may send
    gateway_duty_cycle: float  # share of time that the gateway may send, to all its nodes together
    frame_j: float  # wake-up, waits and both receive windows
    frame_loss: float  # share of frames that never arrive: they are not confirmed

    def __post_init__(self) -> None:
        in_range("max_payload", self.max_payload, low=1)
        in_range("spreading_factor", self.spreading_factor, low=7, high=12)
        in_range("duty_cycle", self.duty_cycle, low=0, high=1, open_low=True)
        in_range("gateway_duty_cycle", self.gateway_duty_cycle, low=0, high=1, open_low=True)
        in_range("frame_loss", self.frame_loss, low=0, high=1, open_high=True)


@dataclass(frozen=True)
class Link:
    """What an application sees of the network: goodput both ways, round-trip time, messages that never arrive."""

    up_mbps: float
    down_mbps: float
    rtt_s: float
    message_loss: float  # of whole messages: lost packets are already in a measured goodput
    rate_sigma_up: float  # the clients' rates are log-normal around the medians above
    rate_sigma_down: float
    frame: Frame | None = None

    def __post_init__(self) -> None:
        in_range("up_mbps", self.up_mbps, low=0, open_low=True)
        in_range("down_mbps", self.down_mbps, low=0, open_low=True)
        in_range("rtt_s", self.rtt_s, low=0)
        in_range("message_loss", self.message_loss, low=0, high=1, open_high=True)
        in_range("rate_sigma_up", self.rate_sigma_up, low=0)
        in_range("rate_sigma_down", self.rate_sigma_down, low=0)


@dataclass(frozen=True)
class Radio:
    """What the link costs in energy: by the bit, while connected, and for each session (promotion and tail)."""

    slope_up_nj_bit: float
    slope_down_nj_bit: float
    base_up_w: float
    base_down_w: float
    cap_w: float  # the linear law was fitted at particular rates; no radio draws more than this
    session_j: float
    session_low_j: float
    session_high_j: float
    tail_s: float  # a session ends when the link was silent for this long
    tail_w: float
    idle_w: float
    bytes_low: float  # factors on the joules of the bytes: how far they can be off
    bytes_high: float

    def __post_init__(self) -> None:
        for name in ("slope_up_nj_bit", "slope_down_nj_bit", "base_up_w", "base_down_w", "tail_s", "tail_w", "idle_w"):
            in_range(name, getattr(self, name), low=0)
        in_range("cap_w", self.cap_w, low=max(self.base_up_w, self.base_down_w))
        in_range("session_j", self.session_j, low=self.session_low_j, high=self.session_high_j)
        in_range("session_low_j", self.session_low_j, low=0)
        in_range("bytes_low", self.bytes_low, low=0, high=1)
        in_range("bytes_high", self.bytes_high, low=1)


@dataclass(frozen=True)
class Compute:
    """What training costs: speed, joules, and the memory that a model must fit in."""

    gflops: float
    speed_sigma: float  # the clients' speeds are log-normal around `gflops`
    j_per_gflop: float
    j_per_gflop_low: float
    j_per_gflop_high: float
    idle_w: float  # of the host; counts only if the device is switched on for this alone
    memory_mb: float

    def __post_init__(self) -> None:
        in_range("gflops", self.gflops, low=0, open_low=True)
        in_range("speed_sigma", self.speed_sigma, low=0)
        in_range("j_per_gflop", self.j_per_gflop, low=self.j_per_gflop_low, high=self.j_per_gflop_high)
        in_range("memory_mb", self.memory_mb, low=0, open_low=True)


@dataclass(frozen=True)
class Availability:
    """When a device is there: share of time online, chance that it leaves a round, and how day and night differ."""

    p_online: float
    dropout: float
    day_ratio: float  # of the clients online, peak to trough
    over_select: float  # devices that a server invites for each one that it needs

    def __post_init__(self) -> None:
        in_range("p_online", self.p_online, low=0, high=1, open_low=True)
        in_range("dropout", self.dropout, low=0, high=1, open_high=True)
        in_range("day_ratio", self.day_ratio, low=1)
        in_range("over_select", self.over_select, low=1)


@dataclass(frozen=True)
class Device:
    """One class of devices, with the origin of each of its numbers (`sources`, by names such as `link.rtt_s`)."""

    name: str
    year: int
    about: str
    link: Link
    radio: Radio
    compute: Compute
    availability: Availability
    relay: Device | None = None  # passes the bytes on at its own cost, as a phone does for a watch
    sources: Mapping[str, NumberOrigin] = field(default_factory=dict)

    def fits(self, memory_mb: float) -> bool:
        """Tell whether something of this size can be held in the device's memory."""
        return memory_mb <= self.compute.memory_mb

    def require_fit(self, memory_mb: float) -> None:
        """Raise unless something of this size can be held in the device's memory."""
        if not self.fits(memory_mb):
            raise InputError(
                f"the model does not fit {self.name} ({memory_mb:.2g} MB needed, {self.compute.memory_mb:.2g} MB "
                "there); take a smaller model or another profile"
            )
