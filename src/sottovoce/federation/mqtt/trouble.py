"""Say in a few words why a connection to a broker failed."""

from __future__ import annotations

import socket
import ssl
from typing import Final

__all__ = ["explain"]

_NOT_VERIFIED: Final = {  # OpenSSL's numbers of what is wrong with the broker's certificate
    9: "its certificate is not valid yet; check the clock of this machine",
    10: "its certificate has expired; its operator must renew it",
    18: "its certificate is of an unknown authority; check ca.pem in the keys folder",
    19: "its certificate is of an unknown authority; check ca.pem in the keys folder",
    20: "its certificate is of an unknown authority; check ca.pem in the keys folder",
    62: "its certificate is for another host name; use the name in the certificate",
    64: "its certificate is for another address; use the name in the certificate",
}

_ALERTS: Final = {  # what the broker says of our certificate
    "CERTIFICATE_REQUIRED": "it asks for a certificate, and none was sent",
    "CERTIFICATE_EXPIRED": "it refuses our certificate: it has expired; ask for a new one",
    "CERTIFICATE_REVOKED": "it refuses our certificate: it was revoked",
    "UNKNOWN_CA": "it refuses our certificate: it is of an authority that the broker does not know",
    "DECRYPT_ERROR": "it refuses our certificate: another authority of the same name signed it",
    "BAD_CERTIFICATE": "it refuses our certificate",
    "CERTIFICATE_UNKNOWN": "it refuses our certificate",
    "ACCESS_DENIED": "it refuses our certificate",
    "HANDSHAKE_FAILURE": "it does not agree on how to encrypt, or asks for a certificate",
    "WRONG_VERSION_NUMBER": "it does not speak TLS on this port",
}


def explain(error: BaseException | None) -> str:
    """Return why a connection failed, and what can be done, in words that follow the broker's name."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _NOT_VERIFIED.get(error.verify_code, f"its certificate is refused: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        known = next((words for name, words in _ALERTS.items() if reason.endswith(name)), None)
        return known or f"TLS failed: {reason.replace('_', ' ').lower() or error}"
    if isinstance(error, socket.gaierror):
        return "there is no such host; check the address"
    if isinstance(error, ConnectionRefusedError):
        return "unreachable: nothing listens at this address and port; is the broker running?"
    if isinstance(error, TimeoutError):
        return "unreachable: no answer; check address, port and firewall"
    if isinstance(error, ConnectionResetError):
        return "it closed the connection; does it ask for TLS or for another certificate?"
    if isinstance(error, OSError):
        return f"unreachable: {error.strerror or error}"
    return str(error) if error is not None else "gave no answer"
