"""Make the keys of a federation, let nodes in, take them out, and sign who is in.

FED/                offline: ca.key (certificates), root.key (rosters), register.json
FED/public/         for everybody: ca.pem, roster.json, root.fingerprint, and what the broker needs
FED/broker/         key.pem and cert.pem for the broker's machine
FED/server/         the training server's identity
FED/helper/         the helper that counts ballots, if there is one, as nodes below (`helper_keys`)
FED/nodes/NAME/     a node's identity, or only the public half of it if the node made its keys itself
FED/revoked/        what was nodes/NAME or helper once
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from sottovoce.core.errors import InputError
from sottovoce.core.files import PRIVATE, PUBLIC, new_folder, read_private, replace_file, write_new
from sottovoce.deployment import acl
from sottovoce.deployment.certificates import Authority, Revoked, certificate_pem, check_host, key_pem, new_key
from sottovoce.deployment.party import node_user, read_signing_key
from sottovoce.deployment.request import Registration
from sottovoce.deployment.roster import CERTIFICATES, Roster, canonical, check_name, fingerprint
from sottovoce.deployment.roster_ledger import Register, RosterNode, finish, locked, stage_node, write_register
from sottovoce.secagg.primitives import KEY, verifying_key

DAYS: Final = 365
_MOST_DAYS: Final = 3650


@final
@dataclass(frozen=True)
class RosterChange:
    """What signing a roster did: who was revoked, and who has another id than before and needs a new certificate."""

    roster: Roster
    revoked: tuple[str, ...]
    moved: Mapping[str, int]


def init_federation(folder: Path, *, broker: str = "localhost", days: int = DAYS) -> Register:
    """Make a federation without nodes: authority, root key, keys of broker and training server."""
    check_host(broker)
    if not 1 <= days <= _MOST_DAYS:
        raise InputError(f"--days must be in [1, {_MOST_DAYS}], got {days}")
    check_new(folder)
    authority, root, server, ends = Authority.make(), os.urandom(KEY), os.urandom(KEY), ends_in(days)
    broker_key, server_key = new_key(), new_key()
    register = Register(
        broker=broker,
        days=days,
        server=verifying_key(server),
        root=verifying_key(root),
        server_certificate=authority.client("server", "server", server_key.public_key(), ends),
        broker_certificate=authority.broker(broker, broker_key.public_key(), ends),
    )
    with new_folder(folder) as fresh:
        for name in ("public", "broker", "server", "nodes", "revoked"):
            (fresh / name).mkdir(mode=0o700)
        write_new(fresh / "ca.key", key_pem(authority.key), PRIVATE)
        write_new(fresh / "root.key", root.hex().encode() + b"\n", PRIVATE)
        write_new(fresh / "broker" / "key.pem", key_pem(broker_key), PRIVATE)
        write_new(fresh / "server" / "key.pem", key_pem(server_key), PRIVATE)
        write_new(fresh / "server" / "signing.key", server.hex().encode() + b"\n", PRIVATE)
        write_register(fresh, register)
        publish(fresh, register, authority)
    return register


def add_nodes(folder: Path, names: Sequence[str]) -> tuple[RosterNode, ...]:
    """Let nodes in whose keys are made here; `nodes/NAME` is then their operators' to take away."""
    with locked(folder) as register:
        authority = read_authority(folder)
        _check_free(folder, register, names)
        added = []
        for id_, name in enumerate(names, len(register.nodes)):
            tls, signing = new_key(), os.urandom(KEY)
            certificate = authority.client(node_user(id_), name, tls.public_key(), ends_in(register.days))
            added.append(RosterNode(id_, name, verifying_key(signing), certificate))
            secrets = {"key.pem": (key_pem(tls), PRIVATE), "signing.key": (signing.hex().encode() + b"\n", PRIVATE)}
            stage_node(folder, name, secrets | _papers(register, authority, certificate))
        _enter(folder, register, added)
        return tuple(added)


def request_node(folder: Path) -> Registration:
    """Make a node's keys on its own machine, in a folder of its name, with a request to be let in."""
    name = check_name(folder.resolve().name)
    check_new(folder)
    tls, signing = new_key(), os.urandom(KEY)
    request, raw = Registration.make(name, signing, tls)
    with new_folder(folder) as fresh:
        write_new(fresh / "key.pem", key_pem(tls), PRIVATE)
        write_new(fresh / "signing.key", signing.hex().encode() + b"\n", PRIVATE)
        write_new(fresh / "request.json", raw)
    return request


def accept_node(folder: Path, path: Path) -> tuple[RosterNode, Registration]:
    """Let in a node that made its keys itself; `nodes/NAME` gets what it must be sent, and no secret.

    A request of a node that is in, signed by the key that the register has, is one for a new certificate.
    """
    request = Registration.read(path)
    with locked(folder) as register:
        authority = read_authority(folder)
        if register.has(request.name) and (known := register.named(request.name)).key == request.key:
            if request.tls_key != _key(known.certificate):
                raise InputError(f"{folder} already has a node {request.name}, with another TLS key than the request's")
            register = _reissued(register, known, authority, ends_in(register.days))
            write_register(folder, register)
            publish(folder, register, authority)
            return register.named(request.name), request
        _check_free(folder, register, [request.name])
        id_ = len(register.nodes)
        certificate = authority.client(node_user(id_), request.name, request.tls_key, ends_in(register.days))
        node = RosterNode(id_, request.name, request.key, certificate)
        helper = None if register.helper is None else register.helper.entry(register.server_certificate)
        Roster((*(each.entry for each in register.nodes), node.entry), register.server, register.root, helper=helper)
        stage_node(folder, node.name, dict(_papers(register, authority, certificate)))
        _enter(folder, register, [node])
        return node, request


def renew(folder: Path, name: str) -> datetime:
    """Give a node, the `server`, the `helper` or the `broker` a new certificate for the same key; tell its end."""
    with locked(folder) as register:
        authority, ends = read_authority(folder), ends_in(register.days)
        if name == "broker":
            old = register.broker_certificate
            register = replace(register, broker_certificate=authority.broker(register.broker, _key(old), ends))
        elif name == "server":
            old = register.server_certificate
            register = replace(register, server_certificate=authority.client("server", "server", _key(old), ends))
        elif name == "helper" and register.helper is not None:
            old = register.helper.certificate
            fresh = authority.helper(register.helper.name, _key(old), ends)
            register = replace(
                register, helper=replace(register.helper, certificate=fresh, former=register.helper.serials)
            )
        else:
            register = _reissued(register, register.named(name), authority, ends)
        write_register(folder, register)
        publish(folder, register, authority)
        return min(ends, authority.certificate.not_valid_after_utc)


def sign_roster(folder: Path, revoke: Sequence[str] = ()) -> RosterChange:
    """Sign the roster of all nodes and the helper that are in, after taking out those to be revoked.

    Ids are 0..n-1 in every roster. When a node leaves, the node with the highest id takes its id: it keeps its keys,
    gets a certificate for the new id, and its old one is revoked like the leaver's. So nobody else is touched.
    """
    with locked(folder) as register:
        authority = read_authority(folder)
        root = read_signing_key(folder / "root.key")
        if verifying_key(root) != register.root:
            raise InputError(f"{folder / 'root.key'} is another federation's; restore the folder from a copy")
        before = {node.name: node.id for node in register.nodes}
        gone = tuple(dict.fromkeys(_named(register, name) for name in revoke))
        for name in gone:
            if (helper := register.helper) is not None and name == helper.name:
                dead = (Revoked(serial, datetime.now(UTC)) for serial in helper.serials)
                register = replace(register, helper=None, revoked=(*register.revoked, *dead))
            else:
                register = _without(register, register.named(name), authority)
        if not register.nodes:
            raise InputError("a roster needs at least one node; let one in first: sottovoce keys node")
        entries = tuple(node.entry for node in register.nodes)
        counter = None if register.helper is None else register.helper.entry(register.server_certificate)
        roster = Roster(entries, register.server, register.root, max(register.revision, 1), counter)
        if not register.revision or _signed_before(folder, roster) != roster:
            register = replace(register, revision=register.revision + 1)
            roster = replace(roster, revision=register.revision)
        write_register(folder, register)
        finish(folder, register)
        publish(folder, register, authority, roster.signed(root))
        moved = {node.name: node.id for node in register.nodes if before[node.name] != node.id}
        return RosterChange(roster, gone, moved)


def _named(register: Register, name: str) -> str:
    """Return the name of a node or of the helper, as the register has it."""
    helper = register.helper
    if helper is not None and name.lower() in ("helper", helper.name.lower()):
        return helper.name
    return register.named(name).name


def _without(register: Register, leaver: RosterNode, authority: Authority) -> Register:
    now, last = datetime.now(UTC), register.nodes[-1]
    nodes, dead = list(register.nodes[:-1]), leaver.serials
    if last is not leaver:
        dead += last.serials  # or it could act as whoever gets its old id next
        ends = ends_in(register.days)
        certificate = authority.client(node_user(leaver.id), last.name, _key(last.certificate), ends)
        nodes[leaver.id] = RosterNode(leaver.id, last.name, last.key, certificate)
    revoked = (*register.revoked, *(Revoked(serial, now) for serial in dead))
    return replace(register, nodes=tuple(nodes), revoked=revoked)


def _reissued(
    register: Register,
    node: RosterNode,
    authority: Authority,
    ends: datetime,
) -> Register:
    certificate = authority.client(node_user(node.id), node.name, _key(node.certificate), ends)
    nodes = [
        replace(each, certificate=certificate, former=each.serials) if each is node else each for each in register.nodes
    ]
    return replace(register, nodes=tuple(nodes))


def _enter(folder: Path, register: Register, added: Sequence[RosterNode]) -> None:
    register = replace(register, nodes=(*register.nodes, *added))
    write_register(folder, register)  # from here on they are in
    finish(folder, register)


def publish(folder: Path, register: Register, authority: Authority, roster: bytes | None = None) -> None:
    """Write all that follows from the register, and the roster to everybody who has a folder here."""
    ids, federation = [node.id for node in register.nodes], fingerprint(register.root)[:16]
    texts = {
        "acl": acl.mosquitto_acl(federation, ids),
        "mosquitto.conf": acl.mosquitto_conf(),
        "emqx-acl.conf": acl.emqx_acl(federation, ids),
        "emqx.conf": acl.emqx_conf(),
    }
    papers = {node.name: _papers(register, authority, node.certificate) for node in register.nodes}
    homes = {
        folder / "public": {name: (text.encode(), PUBLIC) for name, text in texts.items()}
        | {
            "crl.pem": (authority.revocations(register.revoked), PUBLIC),
            "ca.pem": (certificate_pem(authority.certificate), PUBLIC),
            "root.fingerprint": (fingerprint(register.root).encode() + b"\n", PUBLIC),
        },
        folder / "broker": {"cert.pem": (certificate_pem(register.broker_certificate), PUBLIC)},
        folder / "server": _papers(register, authority, register.server_certificate)
        | {CERTIFICATES: (_certificates(register), PUBLIC)},
        **{folder / "nodes" / name: files for name, files in papers.items()},
    }
    if register.helper is not None:
        homes[folder / "helper"] = _papers(register, authority, register.helper.certificate)
    for home, files in homes.items():
        home.mkdir(mode=0o700, exist_ok=True)  # its owner may have taken it away
        if roster is not None and home.name != "broker":
            files["roster.json"] = roster, PUBLIC
        for name, (data, mode) in files.items():
            if not (home / name).exists() or (home / name).read_bytes() != data:
                replace_file(home / name, data, mode)


def _certificates(register: Register) -> bytes:
    """Return all nodes' certificates, which the training server hands to agents whose own is older."""
    return canonical({node.name: certificate_pem(node.certificate).decode() for node in register.nodes}) + b"\n"


def _papers(register: Register, authority: Authority, certificate: x509.Certificate) -> dict[str, tuple[bytes, int]]:
    return {
        "cert.pem": (certificate_pem(certificate), PUBLIC),
        "ca.pem": (certificate_pem(authority.certificate), PUBLIC),
        "root.fingerprint": (fingerprint(register.root).encode() + b"\n", PUBLIC),
    }


def _check_free(folder: Path, register: Register, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        check_name(name)
        if register.has(name) or name.lower() in seen:
            raise InputError(f"{folder} already has a node {name}; give another name, or --renew its certificate")
        if register.helper is not None and register.helper.name.lower() == name.lower():
            raise InputError(f"{folder} has a helper {name}, and a node is somebody else; give another name")
        seen.add(name.lower())


def check_new(folder: Path) -> None:
    """Raise unless a folder can be made there."""
    if folder.exists() or folder.is_symlink():
        raise InputError(f"{folder} is already there and was not changed; give another name")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"{folder.absolute().parent} is no folder; make it first")


def _signed_before(folder: Path, roster: Roster) -> Roster | None:
    try:
        return Roster.read(folder / "public" / "roster.json", roster.fingerprint)
    except InputError:
        return None


def read_authority(folder: Path) -> Authority:
    """Return the authority of a federation's folder."""
    public = folder / "public" / "ca.pem"
    try:
        certificate = public.read_bytes()
    except OSError as error:
        raise InputError(f"{public} cannot be read: {error.strerror}; restore the folder from a copy") from None
    return Authority.read(read_private(folder / "ca.key"), certificate)


def _key(certificate: x509.Certificate) -> EllipticCurvePublicKey:
    key = certificate.public_key()
    if not isinstance(key, EllipticCurvePublicKey):
        raise InputError("a certificate of the register is not on P-256; restore the folder from a copy")
    return key


def ends_in(days: int) -> datetime:
    """Return the moment that is so many days from now."""
    return datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
