"""Who a machine is in a federation: the folder that `sottovoce keys` makes for it.

key.pem, cert.pem    its TLS key and certificate (common name `server`, `helper` or `node-<id>`)
ca.pem               the authority that signed all certificates
signing.key          its Ed25519 signing key in hex, which signs every message and which no broker sees
exchange.key         the helper's alone: its X25519 key in hex, which opens the seeds of ballots
roster.json          who else takes part
roster.newest        revision and digest of the newest roster that this machine has used; it takes no older one
root.fingerprint     the pinned fingerprint of the key that signs rosters
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NoReturn, final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from sottovoce.core.errors import InputError
from sottovoce.core.files import read_private, replace_file
from sottovoce.core.words import value_words
from sottovoce.deployment.roster import Roster, check_pin, fingerprint
from sottovoce.secagg.primitives import KEY, verifying_key

_SOON: Final = timedelta(days=14)
HELPER: Final = -1  # the id of the helper, which is no node
_USER: Final = re.compile(r"node-(0|[1-9][0-9]{0,9})")

log = logging.getLogger(__name__)


def node_user(id_: int) -> str:
    """Return a node's user name at the broker, which is its certificate's common name."""
    return f"node-{id_}"


def user_id(user: str) -> int | None:
    """Return the id of a node's user name; None for the training server, `HELPER` for the helper.

    >>> user_id("node-3"), user_id("server"), user_id("helper")
    (3, None, -1)
    """
    if user == "server":
        return None
    if user == "helper":
        return HELPER
    if not (found := _USER.fullmatch(user)):
        raise InputError(
            f'a certificate\'s common name must be "server", "helper" or "node-<id>", got {value_words(user)}'
        )
    return int(found[1])


@final
@dataclass(frozen=True)
class Identity:
    """A machine's own keys: `id` is None for the training server, `HELPER` for the helper."""

    id: int | None
    name: str
    signing_key: bytes = field(repr=False)
    certificate: Path
    private_key: Path
    ca: Path
    roster: Path
    pinned: str
    fingerprint: str
    expires: datetime

    @property
    def user(self) -> str:
        """Return the user name at the broker."""
        return "server" if self.id is None else "helper" if self.id == HELPER else node_user(self.id)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an identity is not pickled: its signing key stays in this process")

    @staticmethod
    def read(folder: Path) -> Identity:
        """Return the identity in a folder; refuses secrets that others may read, and keys that do not fit together."""
        if not folder.is_dir():
            raise InputError(f"{folder} is no folder with keys; make one with: sottovoce keys node")
        own, ca = folder / "cert.pem", folder / "ca.pem"
        certificate = _certificate(own)
        authority = _certificate(ca)
        pem = read_private(folder / "key.pem")
        try:
            private = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError):
            raise InputError(f"{folder / 'key.pem'} is no private key in PEM without a password") from None
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        if private.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
            raise InputError(f"{own} was made for another key than {folder / 'key.pem'}; take the one that was")
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            raise InputError(f"{own} was not signed by {ca}; take both from the same federation") from None
        _check_dates(own, certificate)
        try:
            id_ = user_id(_attribute(certificate, NameOID.COMMON_NAME))
        except InputError as error:
            raise InputError(f"{own}: {error}") from None
        return Identity(
            id=id_,
            name="server" if id_ is None else _attribute(certificate, NameOID.ORGANIZATIONAL_UNIT_NAME),
            signing_key=read_signing_key(folder / "signing.key"),
            certificate=own,
            private_key=folder / "key.pem",
            ca=ca,
            roster=folder / "roster.json",
            pinned=_pin(folder / "root.fingerprint"),
            fingerprint=fingerprint(certificate.public_bytes(Encoding.DER)),
            expires=certificate.not_valid_after_utc,
        )

    def read_roster(self) -> Roster:
        """Return the roster in the folder, if the pinned key signed it and this machine stands in it as it is."""
        if not self.roster.exists():
            raise InputError(f"{self.roster} is missing; whoever holds the root key signs it: sottovoce keys roster")
        roster = Roster.read(self.roster, self.pinned)
        self._check_newest(roster)
        self.check(roster)
        return roster

    def _check_newest(self, roster: Roster) -> None:
        """Raise if this machine has used a newer roster, and remember this one if it is the newest.

        An old roster is signed as well as a new one, and may name a helper or a node that was revoked.
        """
        path, own = self.roster.with_name("roster.newest"), (roster.revision, roster.digest.hex())
        try:
            revision, digest = path.read_text(encoding="ascii").split() if path.exists() else ("0", "")
            newest = (int(revision), digest)
        except (OSError, ValueError):
            raise InputError(
                f"{path} is damaged; take the newest roster, and type: echo {own[0]} {own[1]} > {path}"
            ) from None
        if not path.exists() and (used := self.roster.with_name("state")).is_dir() and any(used.iterdir()):
            raise InputError(
                f"{path} is gone, and {used} shows that this machine has taken part: an old roster would pass unseen; "
                f"ask whoever signs rosters for the newest, and if that is revision {own[0]}, type: echo {own[0]} "
                f"{own[1]} > {path}"
            )
        if newest[0] > own[0] or (newest[0] == own[0] and newest != own):
            raise InputError(
                f"{self.roster} is revision {own[0]}, and this machine has used another of revision {newest[0]}; take "
                "the newest from whoever signs it"
            )
        if newest != own:
            try:
                replace_file(path, f"{own[0]} {own[1]}\n".encode())
            except OSError as error:
                log.warning("%s cannot be written (%s): an old roster will not be noticed", path, error.strerror)

    def check(self, roster: Roster) -> None:
        """Raise unless the roster has this machine's signing key and certificate in its place."""
        own = verifying_key(self.signing_key)
        if self.id is None:
            if roster.server != own:
                raise InputError("the roster has another key for the training server; sign a new one")
            return
        if self.id == HELPER:
            named = roster.helper
            if named is None or (named.key, named.fingerprint) != (own, self.fingerprint):
                what = "has no helper" if named is None else "has other keys for the helper"
                raise InputError(f"the roster {what}; take the newest, or have it signed: sottovoce keys roster")
            return
        if self.id >= len(roster.entries):
            raise InputError(f"the roster has no node {self.id} ({self.name}); take the newest, or have it signed")
        entry = roster.entries[self.id]
        if entry.key != own:
            raise InputError(f"the roster has another key for node {self.id} ({entry.name}); your folder has another's")
        if entry.fingerprint != self.fingerprint:
            raise InputError(f"the roster has another certificate for node {self.id} ({entry.name}); take both anew")


def read_signing_key(path: Path) -> bytes:
    """Return the 32 bytes of a signing key that is kept as hex in a private file."""
    text = read_private(path).strip()
    if not re.fullmatch(rb"[0-9a-f]{%d}" % (2 * KEY), text):
        raise InputError(f"{path} must hold a signing key of {2 * KEY} hex digits")  # its content is never shown
    return bytes.fromhex(text.decode())


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path} is no certificate in PEM") from None


def _check_dates(path: Path, certificate: x509.Certificate) -> None:
    now, starts, ends = datetime.now(UTC), certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < starts:  # boards without a battery wake up in 1970
        raise InputError(
            f"{path} holds from {starts:%Y-%m-%d %H:%M}, and this machine's clock says {now:%Y-%m-%d %H:%M}; set it"
        )
    if now > ends:
        raise InputError(f"{path} expired on {ends:%Y-%m-%d}; ask for a new one: sottovoce keys node --renew")
    if (left := ends - now) < _SOON:
        log.warning("%s expires in %d days; ask for a new one: sottovoce keys node --renew", path, left.days)


def _attribute(certificate: x509.Certificate, which: x509.ObjectIdentifier) -> str:
    found = certificate.subject.get_attributes_for_oid(which)
    return str(found[0].value) if len(found) == 1 else ""


def _pin(path: Path) -> str:
    try:
        return check_pin(path.read_text(encoding="ascii"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; write the root's fingerprint into it") from None
    except (UnicodeDecodeError, InputError):
        raise InputError(f"{path} must hold the 64 hex digits of the root key's fingerprint") from None
