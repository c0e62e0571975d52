"""What carries messages between a broker and one party, whatever the library: addresses, files, counts, protocols."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from sottovoce.core.errors import InputError


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
        """Connect, or raise one sentence."""
        ...

    def publish(self, topic: str, message: bytes, *, patience: float = 0.0) -> bool:
        """Send a message; False if too much waits already, after `patience` seconds: then nothing was sent."""
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
