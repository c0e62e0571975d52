"""The helper in a roster: the second aggregator of secret ballots, which is nobody else of the federation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from sottovoce.core.errors import InputError
from sottovoce.core.words import value_words
from sottovoce.secagg.primitives import KEY, usable

__all__ = ["Counter"]

_KEYS: Final = ("key", "exchange")
_PRINTS: Final = ("fingerprint", "leader")


@final
@dataclass(frozen=True)
class Counter:
    """The helper as the others know it: Ed25519 and X25519 keys, and SHA-256 of TLS certificates in hex.

    `fingerprint` is of its own certificate, `leader` of the training server's, the only one that it listens to.
    """

    name: str
    key: bytes
    exchange: bytes
    fingerprint: str
    leader: str

    def __post_init__(self) -> None:
        for field in _KEYS:
            if len(getattr(self, field)) != KEY:
                raise InputError(f"the helper's {field} must have {KEY} bytes, got {len(getattr(self, field))}")
        for field in _PRINTS:
            if not re.fullmatch(r"[0-9a-f]{64}", getattr(self, field)):
                raise InputError(f"the helper's {field} must have 64 hex digits, got {getattr(self, field)!r}")
        if not usable(self.exchange):
            raise InputError("the helper's exchange key is a point of small order: everybody could open ballots")
        if self.fingerprint == self.leader:
            raise InputError("the helper has the training server's certificate; name another institution")

    def check_apart(self, others: Mapping[str, bytes], names: Mapping[str, str]) -> None:
        """Raise if the helper's key or name is another's: `others` are keys by whose they are, `names` fingerprints."""
        for whose, key in others.items():
            if key == self.key:
                raise InputError(
                    f"the helper's key is {whose} too, and together they would open every ballot; name "
                    "another institution"
                )
        for name, fingerprint in names.items():
            if name.lower() == self.name.lower() or fingerprint == self.fingerprint:
                raise InputError(f"the helper has the name or the certificate of node {name}; give it its own")

    def document(self) -> dict[str, str]:
        """Return the helper as the roster's file has it."""
        return {
            "name": self.name,
            "key": self.key.hex(),
            "exchange": self.exchange.hex(),
            "fingerprint": self.fingerprint,
            "leader": self.leader,
        }

    @staticmethod
    def parse(document: Any) -> Counter:
        """Return the helper in a roster's file."""
        if not isinstance(document, dict) or set(document) != {"name", *_KEYS, *_PRINTS}:
            raise InputError(
                f"the roster's helper has a name, a key, an exchange key and two fingerprints, got "
                f"{value_words(document)}"
            )
        if not all(isinstance(value, str) for value in document.values()):
            raise InputError(f"all that the roster says of the helper are texts, got {value_words(document)}")
        for field in _KEYS:
            if not re.fullmatch(rf"[0-9a-f]{{{2 * KEY}}}", document[field]):
                raise InputError(f"the helper's {field} must have {2 * KEY} hex digits, got {document[field]!r}")
        keys = {field: bytes.fromhex(document[field]) for field in _KEYS}
        return Counter(**{**document, **keys})
