"""What a server offers an agent that waits: its experiment, and the roster and certificate that the agent lacks.

    agent -> server   WANT    who I am, which roster and certificate I have, and whether I ask for a new certificate
    server -> agent   OFFER   the experiment with the signatures for it, the schema of its table, roster, certificate

Both travel signed, as every message does. An offer is believed in nothing: the pinned root must have signed the roster,
the certificate must be for the agent's own key and stand in that roster, and the site's policy decides what is played.
An experiment that comes this way may name no code, and no file but the schema that comes with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.errors import InputError, PolicyError, WireError
from sottovoce.core.files import PUBLIC, replace_file
from sottovoce.core.remote import one_line, read_json
from sottovoce.deployment.party import Identity, node_user
from sottovoce.deployment.request import parse_registration
from sottovoce.deployment.roster import CERTIFICATES, Roster, RosterEntry, fingerprint
from sottovoce.federation.engines.mqtt.greeting import PROTOCOL

MOST: Final = 1 << 23  # bytes of an offer: a roster of 30,000 nodes
_MOST_WANT: Final = 1 << 14
_CODE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
ROSTER, CERTIFICATE = "roster.json", "cert.pem"


@dataclass(frozen=True)
class Want:
    """An agent's question for something to do; `refused` is why it does not play what it was offered before."""

    life: str
    connection: int
    roster: str  # digest of the roster that it has, in hex
    certificate: str  # fingerprint of the one that it has
    expires: int  # the certificate, in seconds since 1970
    version: str
    protocol: int = PROTOCOL
    refused: str = ""
    renewal: str = ""  # a request for a new certificate, as `keys node --accept` takes it

    def pack(self) -> bytes:
        """Return the payload."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, payload: bytes) -> Want:
        """Read a payload, or refuse it."""
        told = _object(payload, _MOST_WANT, cls.__annotations__)
        return cls(**told)


@dataclass(frozen=True)
class RunOffer:
    """What an agent is offered: TOML tables and signatures; empty where it has the newest already, or nothing is."""

    tables: Mapping[str, Any] = field(default_factory=dict)  # empty: a roster alone
    schema: str = ""
    vouchers: Mapping[str, str] = field(default_factory=dict)
    roster: str = ""
    certificate: str = ""

    def pack(self) -> bytes:
        """Return the payload."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, payload: bytes) -> RunOffer:
        """Read a payload, or refuse it."""
        kinds = {"tables": "dict", "schema": "str", "vouchers": "dict", "roster": "str", "certificate": "str"}
        told = _object(payload, MOST, kinds)
        if not all(isinstance(text, str) for text in told["vouchers"].values()):
            raise WireError("offer: signatures must be texts")
        return cls(**told)

    @property
    def announces(self) -> bool:
        """Tell whether it is a new roster, sent to nodes that play by an older one."""
        return bool(self.roster) and not self.tables

    def experiment(self, folder: Path) -> Experiment:
        """Return the experiment, after writing its schema to where it is read, below a folder of the agent's own.

        Raises if it names code, or any file but that schema: no server chooses what is run or read here.
        """
        for place, text in _texts(self.tables):
            if _CODE.fullmatch(text):
                raise PolicyError(f"the experiment that is offered names code of this machine: {place} = {text[:80]!r}")
            if place != "data.schema" and len(text) > 1 and (text.startswith(("/", "~", ".")) or "\\" in text):
                raise PolicyError(f"the experiment that is offered names a file of this machine: {place}")
        experiment = parse(self.tables, "the experiment that is offered")
        if (name := experiment.data.schema) is not None:
            if not _offered(experiment):
                raise PolicyError("the experiment that is offered names a schema outside of the offer")
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(path, self.schema)
        return experiment


def plain_path(name: str) -> bool:
    """Tell whether a path names a file below the folder that it is put into, whoever wrote it.

    >>> plain_path("schemas/site.toml"), plain_path("../site.toml"), plain_path("/etc/passwd"), plain_path("~/a")
    (True, False, False, False)
    """
    parts = PurePosixPath(name).parts
    return bool(parts) and len(parts) <= 4 and all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", p) for p in parts)


def _offered(experiment: Experiment) -> bool:
    """Tell whether a schema can travel: a TOML file, never one that Python would import."""
    name = experiment.data.schema or ""
    return plain_path(name) and name.endswith(".toml") and experiment.data.folder is None


@dataclass
class Offers:
    """The server's side: what each agent is offered, by what it says that it has.

    `renewals` is the folder in which requests for certificates wait for the holder of the root key.
    """

    experiment: Experiment
    roster: Roster
    roster_file: bytes
    certificates: Mapping[str, str]  # by name, in PEM
    vouchers: Mapping[str, str]
    renewals: Path
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self._by_id = {entry.id: entry for entry in self.roster.entries}
        self._tables = self.experiment.identity() | {"engine": {"name": "mqtt"}}
        self._schema = ""
        if (name := self.experiment.data.schema) is not None:
            if _offered(self.experiment):
                self._schema = Path(name).read_text(encoding="utf-8")
            else:
                self._tables = {}
                self.say(f"[data] schema = {name!r} cannot be offered to agents; name a .toml file below here")

    def answer(self, number: int, payload: bytes) -> tuple[bytes, str | None, Want]:
        """Return the offer for a node, why it does not play if it says so, and what it told."""
        want = Want.unpack(payload)
        entry = self._by_id[number]
        if want.renewal:
            self._keep_renewal(entry, want.renewal)
        if want.protocol != PROTOCOL:
            words = f"it speaks version {want.protocol} of the protocol, and this server {PROTOCOL}; upgrade the older"
            return RunOffer().pack(), words, want
        return self.offer(entry.name, want).pack(), one_line(want.refused) if want.refused else None, want

    def offer(self, name: str, want: Want | None = None) -> RunOffer:
        """Return what a node of some name is offered; without `want` the roster and certificate alone."""
        newest = next((entry for entry in self.roster.entries if entry.name == name), None)
        same = want is not None and want.roster == self.roster.digest.hex()
        own = newest is None or (want is not None and want.certificate == newest.fingerprint)
        return RunOffer(
            {} if want is None else self._tables,
            "" if want is None else self._schema,
            {} if want is None else self.vouchers,
            "" if same else self.roster_file.decode(),
            "" if own else self.certificates.get(name, ""),
        )

    def _keep_renewal(self, entry: RosterEntry, text: str) -> None:
        """Keep a node's request for a new certificate, if its own key signed it."""
        request = parse_registration(text.encode())
        if (request.name, request.key) != (entry.name, entry.key):
            raise WireError(f"the request for a certificate is not that of {entry.name}")
        path = self.renewals / f"{entry.name}.json"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return
        self.renewals.mkdir(mode=0o700, exist_ok=True)
        replace_file(path, text)
        self.say(f"{entry.name} asks for a new certificate: take {path} to whoever holds the root key")


def read_certificates(folder: Path) -> dict[str, str]:
    """Return the certificates of all nodes as they lie beside the server's roster; none in an older folder."""
    try:
        told = json.loads((folder / CERTIFICATES).read_bytes())
        return {str(name): str(pem) for name, pem in told.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{folder / CERTIFICATES} is damaged: {error}; take it anew: sottovoce keys roster") from None


def install(offer: RunOffer, identity: Identity, current: Roster) -> Roster:
    """Write a newer roster, and the certificate that it names for this machine, into the folder with its keys.

    Guarantee: nothing is written but what the pinned root key signed, of a higher revision than before, and a
    certificate of the own authority for the own key that stands in it.
    """
    folder = identity.roster.parent
    roster = current
    if offer.roster:
        roster = Roster.parse(offer.roster.encode(), identity.pinned)
        if roster.revision < current.revision:
            raise InputError(f"the server's roster is revision {roster.revision}, older than {current.revision} here")
        if roster.revision == current.revision and roster != current:
            raise InputError(f"the server has another roster of revision {roster.revision} than this node")
    entry = next((each for each in roster.entries if each.name == identity.name), None)
    if entry is None:
        raise InputError(f"the roster of revision {roster.revision} has no node {identity.name}: it was taken out")
    if entry.fingerprint != identity.fingerprint:
        if not offer.certificate:
            raise InputError(f"the roster has another certificate for {identity.name}, which the server does not have")
        _check_certificate(offer.certificate, identity, entry)
        replace_file(folder / CERTIFICATE, offer.certificate.encode(), PUBLIC)
    if offer.roster:
        replace_file(folder / ROSTER, offer.roster.encode(), PUBLIC)
    return roster


def _check_certificate(pem: str, identity: Identity, entry: RosterEntry) -> None:
    """Raise unless a certificate is for the own key, of the own authority, and the one that the roster names."""
    try:
        new, old = (x509.load_pem_x509_certificate(text) for text in (pem.encode(), identity.certificate.read_bytes()))
        authority = x509.load_pem_x509_certificate(identity.ca.read_bytes())
        new.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, OSError):
        raise InputError("the server sent a certificate that the federation's authority did not sign") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if new.public_key().public_bytes(*form) != old.public_key().public_bytes(*form):
        raise InputError("the server sent a certificate for another key than this node's")
    if fingerprint(new.public_bytes(Encoding.DER)) != entry.fingerprint:
        raise InputError(f"the server sent another certificate than the roster has for {node_user(entry.id)}")


def _texts(tables: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in tables, with its place."""
    if isinstance(tables, str):
        yield place, tables
    elif isinstance(tables, Mapping):
        for key, value in tables.items():
            yield from _texts(value, f"{place}.{key}".lstrip("."))
    elif isinstance(tables, list):
        for value in tables:
            yield from _texts(value, place)


def _object(payload: bytes, most: int, kinds: Mapping[str, str]) -> dict[str, Any]:
    told = read_json(payload, most=most)
    if not isinstance(told, dict) or set(told) != set(kinds):
        raise WireError(f"offer: it must have {', '.join(kinds)}")
    for name, kind in kinds.items():
        if type(told[name]).__name__ != kind:
            raise WireError(f"offer: {name} must be a {kind}")
    return told
