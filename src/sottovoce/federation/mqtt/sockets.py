"""Sockets of a connection to a broker: TLS with a certificate, no delays, and the bytes that Linux counts."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from typing import Any, Final

from sottovoce.core.errors import InputError
from sottovoce.federation.mqtt.carrier import TlsFiles

__all__ = ["no_delay", "tls_context", "wire_bytes"]

_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)


def tls_context(credentials: TlsFiles) -> ssl.SSLContext:
    """Return how to speak TLS: with our certificate, and with nobody whom the authority did not sign."""
    try:
        context = ssl.create_default_context(cafile=str(credentials.authority))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(str(credentials.certificate), str(credentials.private_key))
    except FileNotFoundError as error:
        missing = [path for path in credentials if not path.exists()]
        raise InputError(f"{missing[0] if missing else error}: there is no such file") from None
    except (ssl.SSLError, OSError) as error:
        raise InputError(f"certificate {credentials.certificate} or its key cannot be used: {error}") from None
    return context


def no_delay(opened: Any) -> None:
    """Send small messages at once: else one waits up to 40 ms for the acknowledgement of the one before."""
    with contextlib.suppress(OSError, AttributeError):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def wire_bytes(connection: Any) -> tuple[int, int] | None:
    """Return the bytes that a socket sent and received, with headers of TCP and IP, as Linux counts them.

    `struct tcp_info`: options in byte 5, bytes acknowledged and received at 120, segments out and in at 136. A segment
    carries 20 bytes of IPv4 or 40 of IPv6, 20 of TCP, and 12 of timestamps where both ends use them.
    """
    if connection is None or _TCP_INFO is None:
        return None
    try:
        told = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 144)
        headers = 40 if connection.family == socket.AF_INET else 60
    except (OSError, AttributeError, ValueError):
        return None
    if len(told) < 144:
        return None
    sent, received, segments_out, segments_in = struct.unpack_from("=QQII", told, 120)
    headers += 12 * (told[5] & 1)
    return sent + headers * segments_out, received + headers * segments_in
