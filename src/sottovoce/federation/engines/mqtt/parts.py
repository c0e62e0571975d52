"""Cut a long message into parts, so that what a thin link has carried is kept when it breaks.

Every part is a signed message of its own, bound to run, round and phase as the whole is. Parts are taken in order; who
comes back after a cut says how much it has, and the rest follows.

    offset  size  field
    0       16    digest    the first bytes of SHA-256 of the whole payload
    16      8     total     bytes of the whole
    24      8     offset    of this part
    32      ...   bytes
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from sottovoce.core.errors import WireError
from sottovoce.federation.engines.mqtt.envelope import Envelope, Kind

_HEADER: Final = struct.Struct("<16sQQ")
_MOST: Final = 200  # parts of a message: brokers keep about a thousand messages for one receiver


def digest(payload: bytes) -> bytes:
    """Return what tells a payload from others."""
    return hashlib.sha256(payload).digest()[:16]


def parts(whole: Envelope, size: int, held: int = 0) -> Iterator[Envelope]:
    """Yield a message in parts of about `size` bytes, from the byte on that its receiver lacks.

    Of a message that it has whole one empty part is sent, which says that it is asked for again.
    """
    name, total = digest(whole.payload), len(whole.payload)
    size, start = max(size, -(-total // _MOST)), min(held, total)
    for offset in range(start, max(total, start + 1), size):
        body = _HEADER.pack(name, total, offset) + whole.payload[offset : offset + size]
        yield replace(whole, kind=Kind.PART, payload=body)


@dataclass
class Assembly:
    """What has come of one message; the first part of another one takes its place.

    Guarantee: it holds at most `most` bytes, and what it gives has the digest that each of its parts named.
    """

    most: int
    name: bytes = b""
    total: int = 0
    body: bytearray = field(default_factory=bytearray, repr=False)

    @property
    def held(self) -> tuple[str, int]:
        """Return the digest of the message under way, in hex, and how much of it is here."""
        return self.name.hex(), len(self.body)

    def add(self, part: Envelope, kind: Kind) -> Envelope | None:
        """Take in a part; with the last one return the whole message, of a kind."""
        if len(part.payload) < _HEADER.size:
            raise WireError(f"a part has {len(part.payload)} bytes, its header alone takes {_HEADER.size}")
        name, total, offset = _HEADER.unpack(part.payload[: _HEADER.size])
        chunk = part.payload[_HEADER.size :]
        if total > self.most or offset + len(chunk) > total:
            raise WireError(f"a part ends at byte {offset + len(chunk)} of {total}, at most {self.most} are taken")
        if (name, total) != (self.name, self.total):
            self.name, self.total, self.body = name, total, bytearray()
        if offset > len(self.body):
            raise WireError(f"a part begins at byte {offset}, and {len(self.body)} have come")
        self.body += chunk[len(self.body) - offset :]
        if offset + len(chunk) < total:
            return None
        payload = bytes(self.body)
        if digest(payload) != name:
            self.forget()
            raise WireError("the parts of a message do not make up what they name")
        return replace(part, kind=kind, payload=payload)

    def forget(self) -> None:
        """Hold nothing."""
        self.name, self.total, self.body = b"", 0, bytearray()
