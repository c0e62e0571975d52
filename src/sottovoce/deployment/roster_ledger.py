"""The register of a federation: what its offline folder knows of the nodes, and nothing secret.

`register.json` is replaced at once, so it is the moment at which a node exists or is gone. Files that follow from it
(roster, ACL, revocations) are written afterwards and are the same when written again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from sottovoce.core.errors import InputError
from sottovoce.core.files import replace_file, sync_folder, write_new
from sottovoce.core.lock import hold
from sottovoce.core.words import value_words
from sottovoce.deployment.certificates import Revoked, certificate_pem, read_certificate
from sottovoce.deployment.roster import Counter, RosterEntry, fingerprint

_KIND: Final = "sottovoce federation"
_VERSION: Final = 1


@final
@dataclass(frozen=True)
class RosterNode:
    """A node that was let in: what the roster says of it, its certificate, and the numbers of those it had before."""

    id: int
    name: str
    key: bytes
    certificate: x509.Certificate
    former: tuple[int, ...] = ()

    @property
    def serials(self) -> tuple[int, ...]:
        """Return the numbers of all its certificates for this id that may still be valid."""
        return (*self.former, self.certificate.serial_number)

    @property
    def entry(self) -> RosterEntry:
        """Return the node as the roster has it."""
        return RosterEntry(self.id, self.name, self.key, fingerprint(self.certificate.public_bytes(Encoding.DER)))


@final
@dataclass(frozen=True)
class HelperKeys:
    """The helper that was let in: name, Ed25519 and X25519 public keys, certificate, numbers of those it had before."""

    name: str
    key: bytes
    exchange: bytes
    certificate: x509.Certificate
    former: tuple[int, ...] = ()

    @property
    def serials(self) -> tuple[int, ...]:
        """Return the numbers of all its certificates that may still be valid."""
        return (self.certificate.serial_number, *self.former)

    def entry(self, server: x509.Certificate) -> Counter:
        """Return the helper as the roster has it, beside the certificate of the server that it listens to."""
        own, leader = (fingerprint(each.public_bytes(Encoding.DER)) for each in (self.certificate, server))
        return Counter(self.name, self.key, self.exchange, own, leader)


@final
@dataclass(frozen=True)
class Register:
    """All that is known of a federation: public keys, nodes by id, revoked certificates, revision of its roster."""

    broker: str
    days: int
    server: bytes
    root: bytes
    server_certificate: x509.Certificate
    broker_certificate: x509.Certificate
    revision: int = 0
    nodes: tuple[RosterNode, ...] = ()
    revoked: tuple[Revoked, ...] = ()
    helper: HelperKeys | None = None

    def named(self, name: str) -> RosterNode:
        """Return the node of that name."""
        for node in self.nodes:
            if node.name.lower() == name.lower():
                return node
        known = ", ".join(node.name for node in self.nodes) or "none yet"
        raise InputError(f"this federation has no node {value_words(name)}; its nodes: {known}")

    def has(self, name: str) -> bool:
        """Say whether a node has that name; case does not count, as in some file systems."""
        return any(node.name.lower() == name.lower() for node in self.nodes)


def write_register(folder: Path, register: Register) -> None:
    """Replace the register of a federation's folder."""
    document = {
        "kind": _KIND,
        "version": _VERSION,
        "broker": register.broker,
        "days": register.days,
        "server": register.server.hex(),
        "root": register.root.hex(),
        "server_certificate": certificate_pem(register.server_certificate).decode(),
        "broker_certificate": certificate_pem(register.broker_certificate).decode(),
        "revision": register.revision,
        "nodes": [
            {
                "id": node.id,
                "name": node.name,
                "key": node.key.hex(),
                "certificate": certificate_pem(node.certificate).decode(),
                "former": [f"{serial:x}" for serial in node.former],
            }
            for node in register.nodes
        ],
        "revoked": [{"serial": f"{each.serial:x}", "since": each.since.isoformat()} for each in register.revoked],
    }
    if (helper := register.helper) is not None:
        told = {"name": helper.name, "key": helper.key.hex(), "exchange": helper.exchange.hex()}
        former = [f"{serial:x}" for serial in helper.former]
        document["helper"] = told | {"certificate": certificate_pem(helper.certificate).decode(), "former": former}
    replace_file(folder / "register.json", (json.dumps(document, indent=1) + "\n").encode(), 0o600)


def read_register(folder: Path) -> Register:
    """Return the register of a federation's folder."""
    path = folder / "register.json"
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{folder} is no federation's folder; make one with: sottovoce keys init {folder}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is damaged; restore the folder from a copy") from None
    if not isinstance(document, dict) or document.get("kind") != _KIND or document.get("version") != _VERSION:
        raise InputError(f"{path} is no register of version {_VERSION}")
    try:
        return _register(document)
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path} is damaged; restore the folder from a copy") from None


@contextmanager
def locked(folder: Path) -> Iterator[Register]:
    """Give the register while no other command changes it, after finishing what an interrupted one left."""
    if not (folder / "register.json").exists():
        read_register(folder)  # says what is wrong
    with (folder / "register.lock").open("a") as file:
        hold(file.fileno(), wait=True)
        register = read_register(folder)
        finish(folder, register)
        yield register


def stage_node(folder: Path, name: str, files: dict[str, tuple[bytes, int]]) -> None:
    """Write a node's folder whole as `.NAME.new`, before the register names the node; `finish` renames it after."""
    fresh = folder / "nodes" / f".{name}.new"
    fresh.mkdir(mode=0o700)
    for file, (data, mode) in files.items():
        write_new(fresh / file, data, mode)
    sync_folder(fresh)


def finish(folder: Path, register: Register) -> None:
    """Make the folders of nodes and helper what the register says, also after a command that was killed half way.

    A staged folder gets its name if the register has its certificate, and goes away otherwise: nobody has seen its
    keys. A folder whose node was revoked is kept under another name, so that the name is free again.
    """
    for home in sorted((folder / "nodes").iterdir()):
        staged = home.name.startswith(".") and home.name.endswith(".new")
        name = home.name[1 : -len(".new")] if staged else home.name
        if staged and register.has(name) and _holds(home, register.named(name)):
            home.rename(home.with_name(name))
        elif staged:
            shutil.rmtree(home)
        elif not register.has(name):
            _put_away(folder, home)
    if register.helper is None and (folder / "helper").exists():
        _put_away(folder, folder / "helper")


def _put_away(folder: Path, home: Path) -> None:
    taken = len(list((folder / "revoked").iterdir()))
    home.rename(folder / "revoked" / f"{taken}-{home.name}")


def _holds(fresh: Path, node: RosterNode) -> bool:
    try:
        return (fresh / "cert.pem").read_bytes() == certificate_pem(node.certificate)
    except OSError:
        return False


def _register(document: dict[str, Any]) -> Register:
    return Register(
        broker=str(document["broker"]),
        days=int(document["days"]),
        server=bytes.fromhex(document["server"]),
        root=bytes.fromhex(document["root"]),
        server_certificate=read_certificate(document["server_certificate"]),
        broker_certificate=read_certificate(document["broker_certificate"]),
        revision=int(document["revision"]),
        nodes=tuple(
            RosterNode(
                id=int(node["id"]),
                name=str(node["name"]),
                key=bytes.fromhex(node["key"]),
                certificate=read_certificate(node["certificate"]),
                former=tuple(int(serial, 16) for serial in node["former"]),
            )
            for node in document["nodes"]
        ),
        revoked=tuple(
            Revoked(int(each["serial"], 16), datetime.fromisoformat(each["since"]).astimezone(UTC))
            for each in document["revoked"]
        ),
        helper=_helper(document["helper"]) if "helper" in document else None,
    )


def _helper(told: dict[str, Any]) -> HelperKeys:
    key, exchange = bytes.fromhex(told["key"]), bytes.fromhex(told["exchange"])
    former = tuple(int(serial, 16) for serial in told.get("former", ()))
    return HelperKeys(str(told["name"]), key, exchange, read_certificate(told["certificate"]), former)
