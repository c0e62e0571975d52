"""Frames between leader and helper, and the TLS under them: one byte of kind, eight of length, the payload."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
from typing import Final, NamedTuple

from sottovoce.core.errors import InputError, PrivacyError, RunError, SecAggError, SottovoceError
from sottovoce.core.remote import one_line
from sottovoce.core.words import value_words
from sottovoce.deployment.party import Identity

KINDS: Final = (
    *("greet", "begin", "settle", "hello", "keys", "roll", "confirm"),
    *("transfer", "check", "words", "compare", "prove", "open", "countersign"),
)
_REFUSALS: Final[tuple[type[SottovoceError], ...]] = (SecAggError, PrivacyError, InputError)  # replies 1, 2, 3; 0: done
_HEAD: Final = 9


class HelperAddress(NamedTuple):
    """Where a helper listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> HelperAddress:
        """Read `host:port`.

        >>> Place.parse("notary.example:8900")
        Place(host='notary.example', port=8900)
        """
        found = re.fullmatch(r"\[?([^\[\]/\s]+?)\]?:([0-9]{1,5})", text)
        if found is None or not int(found[2]) < 1 << 16:
            raise InputError(f"a helper's address is host:port, such as notary.example:8900, got {value_words(text)}")
        return cls(found[1], int(found[2]))

    @property
    def loopback(self) -> bool:
        """Tell whether it is this machine."""
        return self.host in ("localhost", "127.0.0.1", "::1")

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def tls(identity: Identity, *, listens: bool) -> ssl.SSLContext:
    """Return how to speak TLS 1.3 with a certificate on both sides; whose it is, `peer_print` tells."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if listens else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the fingerprint of the roster says more than a name
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(str(identity.ca))
        context.load_cert_chain(str(identity.certificate), str(identity.private_key))
    except (ssl.SSLError, OSError) as error:
        raise InputError(f"certificate {identity.certificate} or its key cannot be used: {error}") from None
    return context


def peer_print(connection: ssl.SSLSocket) -> str:
    """Return the fingerprint of the certificate on the other side, in hex."""
    return hashlib.sha256(connection.getpeercert(binary_form=True) or b"").hexdigest()


def send(connection: socket.socket, code: int, payload: bytes) -> None:
    """Send one frame."""
    connection.sendall(bytes([code]) + len(payload).to_bytes(8, "little") + payload)


def receive(connection: socket.socket, most: int) -> tuple[int, bytes]:
    """Return the next frame; EOFError if there is none, RunError if it is longer than any may be."""
    head = _exactly(connection, _HEAD)
    size = int.from_bytes(head[1:], "little")
    if size > most:
        raise RunError(f"a frame of {size} bytes is refused: none has more than {most}")
    return head[0], _exactly(connection, size)


def refusal_of(error: SottovoceError) -> tuple[int, bytes]:
    """Return the frame that tells why a request was refused."""
    number = next((place for place, kind in enumerate(_REFUSALS, 1) if isinstance(error, kind)), 1)
    return number, str(error).encode()[:2000]


def error_of(code: int, payload: bytes) -> SottovoceError:
    """Return the error that a refusal stands for; control characters of the other side reach no terminal."""
    kind = _REFUSALS[code - 1] if 1 <= code <= len(_REFUSALS) else SecAggError
    return kind(one_line(payload, 2000) if payload else "the helper refuses without a word")


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        piece = connection.recv(min(size - len(parts), 1 << 20))
        if not piece:
            raise EOFError
        parts += piece
    return bytes(parts)
