"""Frame the weights of a downlink: as float32, or rounded to 16-bit floats at half the bytes.

With 16 bits the server keeps its model as float32 and sends a rounded copy. A client trains from what it received, and
its update is the difference from that; the server adds the updates to its own model. So no rounding ever adds up: it
only moves, by one part in 2048, the point at which clients look for their next step.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sottovoce.core import wire
from sottovoce.core.errors import RunError
from sottovoce.core.vectors import Vector

LARGEST: Final = float(np.finfo(np.float16).max)


def pack_weights(weights: Vector, bits: int) -> bytes:
    """Return a frame of weights with 32 or 16 bits each.

    >>> len(pack_weights(np.ones(100, np.float32), 16)) - wire.HEADER
    200
    """
    if bits == 32:
        return wire.pack(weights)
    largest = float(np.max(np.abs(weights), initial=0.0))
    if largest > LARGEST:
        raise RunError(
            f"the model has a weight of {largest:.4g}, and floats of 16 bits end at {LARGEST:g}; set [scheme] "
            "downlink_bits = 32"
        )
    return wire.pack(weights.astype(np.float16).view(np.uint16), bits=16)


def unpack_weights(payload: wire.Buffer, length: int, bits: int) -> Vector:
    """Return the weights of a frame, as float32."""
    if bits == 32:
        return wire.unpack_floats(payload, length=length)
    words = wire.unpack(payload, length=length, bits=16)
    return words.astype(np.uint16).view(np.float16).astype(np.float32)


def weights_size(length: int, bits: int) -> int:
    """Return the bytes of a frame of weights."""
    return wire.frame_size(length, None if bits == 32 else 16)
