"""The roster: who takes part in a federation, signed by a key that is kept offline and that every node pins.

A server that could choose the keys of the nodes could play every node but one in secret. So nodes take the keys from
this file and from nobody's message; it is one line of canonical JSON (keys sorted, no blanks, ASCII):

    {"kind":"sottovoce roster","nodes":[{"fingerprint":...,"id":0,"key":...,"name":...}],"revision":1,"root":...,
     "server":...,"signature":...,"version":1}

A federation with a helper has one field more, "helper" (`roster_helper`).

Keys are Ed25519 and stand in hex. `signature` is the root key's, over a domain string and the file without it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, final

from sottovoce.core.errors import InputError, WireError
from sottovoce.core.files import replace_file
from sottovoce.core.remote import one_line, read_json
from sottovoce.core.words import value_words
from sottovoce.secagg.primitives import KEY, SIGNATURE, sign, usable, verify, verifying_key

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


CERTIFICATES: Final = "certificates.json"  # beside the server's roster: every node's certificate, by name

_DOMAIN: Final = b"sottovoce roster 1\n"
_KIND: Final = "sottovoce roster"
_VERSION: Final = 1
_MOST: Final = 1 << 28  # bytes of a roster: a million nodes
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_FIELDS: Final = {"kind", "nodes", "revision", "root", "server", "signature", "version"}


def fingerprint(data: bytes) -> str:
    """Return the SHA-256 of a root key's 32 bytes or of a certificate's DER bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def canonical(document: Any) -> bytes:
    """Return the only bytes that a JSON document is signed and written as."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def check_name(name: str) -> str:
    """Return the name if a node can have it; it becomes a folder's name, and others see it in their terminals."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"a node's name has 1 to 32 letters, digits, '-' or '_' and begins with a letter or digit, "
            f"got {value_words(name)}"
        )
    if name.lower() in ("server", "broker", "helper"):
        raise InputError(f'"{name}" is no node of a federation; give the node another name')
    return name


@final
@dataclass(frozen=True)
class RosterEntry:
    """A node as the others know it: number, name, Ed25519 verifying key, SHA-256 of its TLS certificate in hex."""

    id: int
    name: str
    key: bytes
    fingerprint: str

    def __post_init__(self) -> None:
        check_name(self.name)
        _check_key(self.key, f"the key of node {self.name}")
        if not re.fullmatch(r"[0-9a-f]{64}", self.fingerprint):
            raise InputError(f"the fingerprint of node {self.name} must have 64 hex digits, got {self.fingerprint!r}")


@final
@dataclass(frozen=True)
class Roster:
    """All nodes of a federation, its training server's verifying key, and the root key that vouches for them."""

    entries: tuple[RosterEntry, ...]
    server: bytes
    root: bytes
    revision: int = 1
    helper: Counter | None = None  # who counts ballots with the server

    def __post_init__(self) -> None:
        _check_key(self.server, "the server's key")
        _check_key(self.root, "the root key")
        if self.revision < 1:
            raise InputError(f"a roster's revision must be at least 1, got {self.revision}")
        ids = [entry.id for entry in self.entries]
        if len(set(ids)) < len(ids):
            raise InputError(f"the roster has the id {_repeated(ids)} twice")
        if ids != list(range(len(ids))):
            missing = min(set(range(len(ids))) - set(ids), default=None)
            raise InputError(
                f"the ids of {len(ids)} nodes must be 0 to {len(ids) - 1}, in this order; "
                + (f"{missing} is missing" if missing is not None else f"got {value_words(ids)}")
            )
        for what, values in (
            ("name", [entry.name.lower() for entry in self.entries]),  # names are folders, also where case is lost
            ("key", [entry.key.hex() for entry in self.entries]),
            ("fingerprint", [entry.fingerprint for entry in self.entries]),
        ):
            if len(set(values)) < len(values):
                raise InputError(f"the roster has the {what} {_repeated(values)} twice")
        for entry in self.entries:
            if entry.key in (self.server, self.root):
                whose = "the server's" if entry.key == self.server else "the root's"
                raise InputError(f"the key of node {entry.name} is {whose} too: it could speak for both")
        if self.server == self.root:
            raise InputError("the server's key is the root's too: the server could write rosters")
        if self.helper is not None:
            check_name(self.helper.name)
            keys = {"the server's": self.server, "the root's": self.root}
            keys |= {f"node {entry.name}'s": entry.key for entry in self.entries}
            self.helper.check_apart(keys, {entry.name: entry.fingerprint for entry in self.entries})

    @property
    def keys(self) -> Mapping[int, bytes]:
        """Return the registered verifying keys by id."""
        return MappingProxyType({entry.id: entry.key for entry in self.entries})

    @property
    def fingerprint(self) -> str:
        """Return the root key's fingerprint, which operators pin."""
        return fingerprint(self.root)

    @property
    def federation(self) -> str:
        """Return the federation's name in topics: the first 16 hex digits of the root's fingerprint."""
        return self.fingerprint[:16]

    @property
    def digest(self) -> bytes:
        """Return 32 bytes that stand for everything that the root signed."""
        return hashlib.sha256(_DOMAIN + canonical(self._body())).digest()

    def by_name(self, name: str) -> RosterEntry:
        """Return a node's entry."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise InputError(f"the roster has no node {value_words(name)}; sign one that has it: sottovoce keys roster")

    def write(self, path: Path, signing_key: bytes) -> None:
        """Sign the roster with the root's signing key and write it; readers see the old file or the new one."""
        replace_file(path, self.signed(signing_key))

    def signed(self, signing_key: bytes) -> bytes:
        """Return the roster's file, signed with the root's signing key."""
        if verifying_key(signing_key) != self.root:
            raise InputError("the roster names another root key than the one that was to sign it")
        body = self._body()
        signature = sign(signing_key, _DOMAIN + canonical(body))
        return canonical(body | {"signature": signature.hex()}) + b"\n"

    @staticmethod
    def read(path: Path, pinned: str) -> Roster:
        """Return the roster in a file, if the key with the pinned fingerprint signed exactly these bytes.

        Guarantee: without the root's signing key nobody makes a file that this function accepts, and every accepted
        roster has one and only one file.
        """
        pinned = check_pin(pinned)
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: the roster cannot be read: {error.strerror}") from None
        try:
            return Roster.parse(raw, pinned)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @staticmethod
    def parse(raw: bytes, pinned: str) -> Roster:
        """Return the roster that a file's bytes are, if the key with the pinned fingerprint signed exactly these."""
        return _parse(raw, pinned)

    def _body(self) -> dict[str, Any]:
        more = {} if self.helper is None else {"helper": self.helper.document()}
        return more | {
            "kind": _KIND,
            "version": _VERSION,
            "revision": self.revision,
            "root": self.root.hex(),
            "server": self.server.hex(),
            "nodes": [
                {"id": entry.id, "name": entry.name, "key": entry.key.hex(), "fingerprint": entry.fingerprint}
                for entry in self.entries
            ],
        }


def check_pin(pinned: str) -> str:
    """Return a pinned fingerprint in lower case without the blanks and colons that people write for legibility."""
    plain = re.sub(r"[\s:]", "", pinned).lower()
    if not re.fullmatch(r"[0-9a-f]{64}", plain):
        raise InputError(
            f"the pinned fingerprint of the root key must have 64 hex digits, got {value_words(pinned)}; "
            "whoever signs the roster reads it to you"
        )
    return plain


def _parse(raw: bytes, pinned: str) -> Roster:
    try:
        document = read_json(raw, most=_MOST)
    except WireError as error:
        raise InputError(f"this is no roster: {error}") from None
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise InputError('this is no roster: "kind" is not "sottovoce roster"')
    if document.get("version") != _VERSION:
        raise InputError(
            f"the roster has version {value_words(document.get('version'))}, and this sottovoce reads {_VERSION}"
        )
    if set(document) - {"helper"} != _FIELDS:
        odd = sorted((set(document) - {"helper"}) ^ _FIELDS)
        raise InputError(f"the roster has other fields than version {_VERSION}: {one_line(', '.join(odd))}")
    root, signature = _unhex(document, "root", KEY), _unhex(document, "signature", SIGNATURE)
    if fingerprint(root) != pinned:
        raise InputError(
            f"the roster was signed by the root key {fingerprint(root)}, and you pinned {pinned}; "
            "ask whoever signs it, by another way than the one it came"
        )
    body = {name: value for name, value in document.items() if name != "signature"}
    # Text that means the same but was written otherwise is refused too: one roster, one file, one digest.
    if raw != _written(document) or not verify(root, signature, _DOMAIN + canonical(body)):
        raise InputError("the roster was changed after it was signed; take it anew from whoever signs it")
    if type(document["revision"]) is not int or not isinstance(document["nodes"], list):
        raise InputError("the roster's revision must be a whole number and its nodes a list")
    entries = tuple(_entry(node) for node in document["nodes"])
    helper = Counter.parse(document["helper"]) if "helper" in document else None
    return Roster(entries, _unhex(document, "server", KEY), root, document["revision"], helper)


def _written(document: Any) -> bytes | None:
    try:
        return canonical(document) + b"\n"
    except (ValueError, RecursionError):
        return None


def _entry(node: Any) -> RosterEntry:
    if not isinstance(node, dict) or set(node) != {"id", "name", "key", "fingerprint"}:
        raise InputError(f"a node of the roster has an id, a name, a key and a fingerprint, got {value_words(node)}")
    if type(node["id"]) is not int or not isinstance(node["name"], str) or not isinstance(node["fingerprint"], str):
        raise InputError(f"a node's id is a whole number, its name and fingerprint are texts, got {value_words(node)}")
    return RosterEntry(node["id"], node["name"], _unhex(node, "key", KEY), node["fingerprint"])


def _unhex(table: Mapping[str, Any], field: str, size: int) -> bytes:
    text = table[field]
    if not isinstance(text, str) or not re.fullmatch(rf"[0-9a-f]{{{2 * size}}}", text):
        raise InputError(f"{field} must have {2 * size} hex digits, got {value_words(text)}")
    return bytes.fromhex(text)


def _check_key(key: bytes, whose: str) -> None:
    if len(key) != KEY:
        raise InputError(f"{whose} must have {KEY} bytes, got {len(key)}")


def _repeated(values: Sequence[Any]) -> Any:
    return next(value for place, value in enumerate(values) if value in values[:place])
