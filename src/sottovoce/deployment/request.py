"""A node's request to be let in, so that its secrets are made on its own machine and never leave it.

One JSON file: the name it asks for, its Ed25519 verifying key, a request for a TLS certificate, and a signature of all
three. The signature shows that the sender has the key, not who the sender is: whoever lets the node in compares the
request's digest with its operator, by telephone for example.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

from sottovoce.core.errors import InputError
from sottovoce.deployment.certificates import make_request, read_request
from sottovoce.deployment.roster import canonical, check_name
from sottovoce.secagg.primitives import KEY, SIGNATURE, sign, verify, verifying_key

__all__ = ["Request"]

_DOMAIN: Final = b"sottovoce request 1\n"
_KIND: Final = "sottovoce request"
_VERSION: Final = 1


@final
@dataclass(frozen=True)
class Request:
    """What a node asks to be registered with: nothing in it is secret."""

    name: str
    key: bytes
    tls_key: EllipticCurvePublicKey
    digest: str

    @staticmethod
    def make(name: str, signing_key: bytes, tls_key: EllipticCurvePrivateKey) -> tuple[Request, bytes]:
        """Return a request and its file."""
        body = {
            "kind": _KIND,
            "version": _VERSION,
            "name": check_name(name),
            "key": verifying_key(signing_key).hex(),
            "certificate_request": make_request(tls_key, name).decode(),
        }
        signed = _DOMAIN + canonical(body)
        raw = canonical(body | {"signature": sign(signing_key, signed).hex()}) + b"\n"
        return Request(name, verifying_key(signing_key), tls_key.public_key(), _digest(signed)), raw

    @staticmethod
    def read(path: Path) -> Request:
        """Return the request in a file, if the key that it names signed it."""
        try:
            return _parse(path.read_bytes())
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def _parse(raw: bytes) -> Request:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        raise InputError("this is no request: it is not JSON") from None
    if not isinstance(document, dict) or document.get("kind") != _KIND or document.get("version") != _VERSION:
        raise InputError(f'this is no request: "kind" must be "{_KIND}" and "version" {_VERSION}')
    key, signature = _unhex(document.get("key"), KEY), _unhex(document.pop("signature", None), SIGNATURE)
    name, tls = document.get("name"), document.get("certificate_request")
    if not isinstance(name, str) or not isinstance(tls, str):
        raise InputError("the request must have a name and a certificate request")
    signed = _DOMAIN + canonical(document)
    if not verify(key, signature, signed):
        raise InputError("the request was changed after it was signed; ask its sender for it again")
    return Request(check_name(name), key, read_request(tls), _digest(signed))


def _unhex(text: Any, size: int) -> bytes:
    if not isinstance(text, str) or not re.fullmatch(rf"[0-9a-f]{{{2 * size}}}", text):
        raise InputError(f"its key and signature must have {2 * KEY} and {2 * SIGNATURE} hex digits")
    return bytes.fromhex(text)


def _digest(signed: bytes) -> str:
    return hashlib.sha256(signed).hexdigest()
