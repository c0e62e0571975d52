"""A request to be let in, so that the secrets of a node or helper are made on its own machine and never leave it.

One JSON file: the name it asks for, its Ed25519 verifying key, a request for a TLS certificate, a helper's X25519 key
too, and a signature of all of it. The signature shows that the sender has the key, not who the sender is: whoever lets
it in compares the request's digest with its operator, by telephone for example.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

from sottovoce.core.errors import InputError, WireError
from sottovoce.core.remote import read_json
from sottovoce.deployment.certificates import make_request, read_request
from sottovoce.deployment.roster import canonical, check_name
from sottovoce.secagg.primitives import KEY, SIGNATURE, sign, usable, verify, verifying_key

_DOMAIN: Final = b"sottovoce request 1\n"
_KIND: Final = "sottovoce request"
_HELPER_KIND: Final = "sottovoce helper request"
_VERSION: Final = 1
_MOST: Final = 1 << 16  # bytes of a request


@final
@dataclass(frozen=True)
class Registration:
    """What a node, or a helper, asks to be registered with: nothing in it is secret."""

    name: str
    key: bytes
    tls_key: EllipticCurvePublicKey
    digest: str
    exchange: bytes | None = None  # a helper's

    @staticmethod
    def make(
        name: str, signing_key: bytes, tls_key: EllipticCurvePrivateKey, exchange: bytes | None = None
    ) -> tuple[Registration, bytes]:
        """Return a request and its file; one with the public key of an exchange is a helper's."""
        more = {} if exchange is None else {"exchange": exchange.hex()}
        body = more | {
            "kind": _KIND if exchange is None else _HELPER_KIND,
            "version": _VERSION,
            "name": check_name(name),
            "key": verifying_key(signing_key).hex(),
            "certificate_request": make_request(tls_key, name).decode(),
        }
        signed = _DOMAIN + canonical(body)
        raw = canonical(body | {"signature": sign(signing_key, signed).hex()}) + b"\n"
        return Registration(name, verifying_key(signing_key), tls_key.public_key(), _digest(signed), exchange), raw

    @staticmethod
    def read(path: Path, *, helper: bool = False) -> Registration:
        """Return the request of a node, or of a helper, in a file, if the key that it names signed it."""
        try:
            return parse_registration(path.read_bytes(), helper=helper)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def parse_registration(raw: bytes, *, helper: bool = False) -> Registration:
    """Return the request of a node, or of a helper, that these bytes are, if the key that it names signed it."""
    try:
        document = read_json(raw, most=_MOST)
    except WireError as error:
        raise InputError(f"this is no request: {error}") from None
    kind, other = (_HELPER_KIND, _KIND) if helper else (_KIND, _HELPER_KIND)
    if isinstance(document, dict) and document.get("kind") == other:
        whose, command = ("a node's", "node") if helper else ("a helper's", "helper")
        raise InputError(f"this is {whose} request; accept it with: sottovoce keys {command} FED --accept")
    if not isinstance(document, dict) or document.get("kind") != kind or document.get("version") != _VERSION:
        raise InputError(f'this is no request: "kind" must be "{kind}" and "version" {_VERSION}')
    key, signature = _unhex(document.get("key"), KEY), _unhex(document.pop("signature", None), SIGNATURE)
    name, tls = document.get("name"), document.get("certificate_request")
    if not isinstance(name, str) or not isinstance(tls, str):
        raise InputError("the request must have a name and a certificate request")
    signed = _DOMAIN + canonical(document)
    if not verify(key, signature, signed):
        raise InputError("the request was changed after it was signed; ask its sender for it again")
    exchange = _unhex(document.get("exchange"), KEY) if helper else None
    if exchange is not None and not usable(exchange):
        raise InputError("its exchange key is a point of small order: everybody could open ballots")
    return Registration(check_name(name), key, read_request(tls), _digest(signed), exchange)


def _unhex(text: Any, size: int) -> bytes:
    if not isinstance(text, str) or not re.fullmatch(rf"[0-9a-f]{{{2 * size}}}", text):
        raise InputError(f"its key and signature must have {2 * KEY} and {2 * SIGNATURE} hex digits")
    return bytes.fromhex(text)


def _digest(signed: bytes) -> str:
    return hashlib.sha256(signed).hexdigest()
