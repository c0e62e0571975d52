"""What carries messages between a broker and one party, whatever the library: addresses, files, counts, protocols."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from sottovoce.core.errors import InputError

_PART_SECONDS: Final = 8.0
_LEAST_PART: Final = 4096  # bytes
_USUAL_PART: Final = 1 << 14  # of a slow link whose rate is not known
_SUBSCRIPTION: Final = 400.0  # bytes of a subscription and its acknowledgement, with headers
SLOW_TRIP: Final = 0.3  # seconds of a round trip, from which on a phase of secure sums takes seconds


class Address(NamedTuple):
    """Where a broker is, and whether it is spoken to over TLS."""

    host: str
    port: int
    tls: bool = True

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `mqtts://host:port` (TLS), or `mqtt://host:port`, which is taken on this machine only.

        >>> Address.parse("mqtts://broker.example")
        Address(host='broker.example', port=8883, tls=True)
        """
        url = urlsplit(text if "://" in text else f"mqtts://{text}")
        try:
            port = url.port
        except ValueError:
            port = 0
        if url.scheme not in ("mqtts", "mqtt") or not url.hostname or port == 0 or url.path.strip("/"):
            raise InputError(f"broker must be an address such as mqtts://broker.example:8883, got {text!r}")
        address = cls(url.hostname, port or (8883 if url.scheme == "mqtts" else 1883), url.scheme == "mqtts")
        if not address.tls and not address.loopback:
            raise InputError(f"broker {text} would be spoken to without TLS; use mqtts://{url.hostname}")
        return address

    @property
    def loopback(self) -> bool:
        """Tell whether the broker is on this machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"mqtt{'s' * self.tls}://{self.host}:{self.port}"


class TlsFiles(NamedTuple):
    """Files of a party's TLS certificate, its private key and the authority that it trusts."""

    certificate: Path
    private_key: Path
    authority: Path


class LinkQuality(NamedTuple):
    """What one end has measured of its link; 0: not known, or too good to tell."""

    round_trip: float = 0.0  # seconds
    rate: float = 0.0  # bytes a second

    @property
    def part(self) -> int:
        """Return the bytes of a part that takes some seconds on this link; 0: messages go whole."""
        if self.rate:
            return max(_LEAST_PART, int(self.rate * _PART_SECONDS))
        return _USUAL_PART if self.round_trip >= SLOW_TRIP else 0

    @property
    def least_rate(self) -> float:
        """Return bytes a second that the link has shown to carry: in the round trip of its subscription, if no more."""
        if self.rate or not self.round_trip:
            return self.rate
        return _SUBSCRIPTION / self.round_trip


class DeclaredLink(NamedTuple):
    """The slowest link of a federation, as its operator declares it."""

    rate: float  # bytes a second
    round_trip: float = 0.0  # seconds
    outage: float = 0.0  # seconds that it may be gone at a time

    @classmethod
    def parse(cls, text: str) -> DeclaredLink:
        """Read a rate and, if they are given, a round trip and how long the link may be gone.

        >>> DeclaredLink.parse("20 kbit/s, 1 s, 40 s down")
        DeclaredLink(rate=2500.0, round_trip=1.0, outage=40.0)
        """
        found = re.fullmatch(
            r"\s*([\d.]+) ?([kM]?)bit/s(?:\s*,\s*([\d.]+) ?(m?)s)?(?:\s*,\s*([\d.]+) ?s down)?\s*", text
        )
        try:
            rate, unit, trip, milli, outage = found.groups() if found else ("", "", "", "", "")
            link = cls(
                float(rate) * {"": 1, "k": 1e3, "M": 1e6}[unit] / 8,
                float(trip or 0) / (1e3 if milli else 1),
                float(outage or 0),
            )
        except ValueError:
            link = cls(0.0)
        if link.rate <= 0:
            raise InputError(
                f'slowest_link must be such as "20 kbit/s, 1 s" or "64 kbit/s, 1 s, 40 s down", got {text!r}'
            )
        return link


UNKNOWN: Final = LinkQuality()


@dataclass(frozen=True)
class Counts:
    """Bytes so far: of messages, and on the wire with TLS, TCP and IP (None where the system does not tell)."""

    payload_up: int = 0
    payload_down: int = 0
    wire_up: int | None = None
    wire_down: int | None = None


class Listener(Protocol):
    """What a connection tells its owner, from a thread of its own."""

    def heard(self, topic: str, message: bytes) -> None:
        """Take in a message."""
        ...

    def connected(self, connection: int) -> None:
        """Act on a connection that listens; connections are numbered from 1."""
        ...

    def lost(self, reason: str) -> None:
        """Act on the loss of the connection; it is being made anew."""
        ...

    def last_will(self, connection: int) -> tuple[str, bytes] | None:
        """Return topic and message that the broker sends if this connection is lost."""
        ...


class Carrier(Protocol):
    """What carries messages to a broker; `transport.Transport` is one."""

    def connect(self) -> None:
        """Connect, or raise one sentence; one that lasts tries for ever, and returns when it is told to stop."""
        ...

    def link(self) -> LinkQuality:
        """Return what is known of the link."""
        ...

    def attend(self, *, busy: bool) -> None:
        """Look closely after the connection while a round is under way, and not between rounds."""
        ...

    def publish(self, topic: str, message: bytes, *, patience: float = 0.0) -> bool:
        """Send a message; False if too much waits already, after `patience` seconds: then nothing was sent.

        One that waits already is not sent twice.
        """
        ...

    def flush(self, seconds: float) -> bool:
        """Wait until all messages have left."""
        ...

    def wire(self) -> tuple[int, int]:
        """Return the bytes on the wire so far, up from clients and down to them; zeros where nobody counts."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...
