"""Decide who leaves a round, and before which phase, in a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sottovoce.core.streams import Purpose, Streams
from sottovoce.core.validate import in_range, one_of

__all__ = ["PHASES", "Dropout"]

PHASES: Final = ("advertise", "share", "mask", "consistency", "unmask")
_TRAINED: Final = PHASES.index("mask")  # a round without these phases has one, "train", which is when vectors are sent


@dataclass(frozen=True)
class Dropout:
    """Rule by which clients leave a round: before each phase by chance, and some as listed.

    >>> Dropout(leave=((3, 7, "mask"),)).left(3, 7, "unmask", Streams(1))
    'mask'
    """

    chances: Mapping[str, float] = field(default_factory=dict)
    leave: tuple[tuple[int, int, str], ...] = ()  # (round, client, phase)

    def __post_init__(self) -> None:
        for phase, chance in self.chances.items():
            one_of("dropout", phase, PHASES)
            in_range(f"dropout before {phase}", chance, low=0, high=1, open_high=True)
        for _, _, phase in self.leave:
            one_of("leave", phase, PHASES)

    @property
    def possible(self) -> bool:
        """Tell whether anybody can ever leave."""
        return bool(self.leave) or any(self.chances.values())

    def left(self, round_: int, client: int, phase: str, streams: Streams) -> str | None:
        """Name the phase before which a client left, if that was at `phase` or earlier."""
        if not self.possible:
            return None
        now = _TRAINED if phase == "train" else PHASES.index(phase)
        draws = streams.get(Purpose.DROPOUT, round_, client).random(len(PHASES))
        for name, draw in zip(PHASES[: now + 1], draws, strict=False):
            if draw < self.chances.get(name, 0.0) or (round_, client, name) in self.leave:
                return name
        return None
