"""Count the places of a window along an axis; "same" pads as Keras does, an odd zero at the end."""

from __future__ import annotations

from typing import Literal

from sottovoce.core.errors import InputError

__all__ = ["Padding", "pads_of", "windows"]

Padding = Literal["same", "valid"]


def windows(size: int, kernel: int, stride: int, padding: Padding) -> int:
    """Count the places of a window along an axis."""
    places = -(-size // stride) if padding == "same" else (size - kernel) // stride + 1
    if places < 1:
        raise InputError(f"a window of {kernel} does not fit an axis of {size}")
    return places


def pads_of(size: int, kernel: int, stride: int, padding: Padding) -> tuple[int, int]:
    """Return how many zeros stand before and after an axis."""
    if padding == "valid":
        return 0, 0
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2
