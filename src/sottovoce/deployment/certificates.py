"""The certificates of a federation: one authority of its own, on the curve P-256, and nobody else's.

Certificates open the broker's door and nothing more: what a message says is believed because of the Ed25519 key in the
roster, which the authority does not vouch for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as generate_ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sottovoce.core.errors import InputError
from sottovoce.core.words import value_words

_AUTHORITY_DAYS: Final = 3650
_EARLY: Final = timedelta(hours=1)  # a machine whose clock is behind can start at once
_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


@final
@dataclass(frozen=True)
class Revoked:
    """A certificate that the broker must not accept although it is not expired."""

    serial: int
    since: datetime


@final
@dataclass(frozen=True)
class Authority:
    """The key and certificate that every other certificate of the federation is signed with."""

    key: EllipticCurvePrivateKey = field(repr=False)
    certificate: x509.Certificate

    @staticmethod
    def make() -> Authority:
        """Return a new authority, good for ten years."""
        key, now = new_key(), _now()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sottovoce federation")])
        built = (
            _builder(name, name, key.public_key(), key.public_key(), now, now + timedelta(days=_AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(sign_certificates=True), critical=True)
        )
        return Authority(key, built.sign(key, SHA256()))

    @staticmethod
    def read(key: bytes, certificate: bytes) -> Authority:
        """Return the authority in two PEM texts."""
        try:
            private, own = load_pem_private_key(key, password=None), x509.load_pem_x509_certificate(certificate)
        except (ValueError, TypeError):
            raise InputError("ca.key or ca.pem is damaged; restore both from a copy") from None
        if not isinstance(private, EllipticCurvePrivateKey) or private.public_key() != own.public_key():
            raise InputError("ca.key does not belong to ca.pem; restore both from a copy")
        return Authority(private, own)

    def client(self, user: str, name: str, key: EllipticCurvePublicKey, ends: datetime) -> x509.Certificate:
        """Return a certificate with which a machine enters the broker: common name `user`, unit `name`."""
        return self._issue(user, name, key, ends, ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def helper(self, name: str, key: EllipticCurvePublicKey, ends: datetime) -> x509.Certificate:
        """Return the certificate by which the server knows the helper; the broker lets nobody in by it."""
        return self._issue("helper", name, key, ends, ExtendedKeyUsageOID.SERVER_AUTH, ())

    def broker(self, host: str, key: EllipticCurvePublicKey, ends: datetime) -> x509.Certificate:
        """Return the broker's certificate; one for `localhost` holds for the loopback addresses too."""
        return self._issue("broker", "broker", key, ends, ExtendedKeyUsageOID.SERVER_AUTH, _addresses(host))

    def revocations(self, revoked: Iterable[Revoked]) -> bytes:
        """Return the list of revoked certificates in PEM.

        It is valid as long as the authority: a broker whose list has expired turns everybody away.
        """
        now = _now()
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now - _EARLY)
            .next_update(self.certificate.not_valid_after_utc)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .add_extension(x509.CRLNumber(int(now.timestamp())), critical=False)
        )
        for each in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(each.serial).revocation_date(each.since - _EARLY)
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(self.key, SHA256()).public_bytes(Encoding.PEM)

    def _issue(
        self,
        user: str,
        name: str,
        key: EllipticCurvePublicKey,
        ends: datetime,
        purpose: x509.ObjectIdentifier,
        addresses: tuple[x509.GeneralName, ...],
    ) -> x509.Certificate:
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, name),
                x509.NameAttribute(NameOID.COMMON_NAME, user),
            ]
        )
        starts = min(_now(), ends) - _EARLY
        ends = min(ends, self.certificate.not_valid_after_utc)
        builder = (
            _builder(subject, self.certificate.subject, key, self.key.public_key(), starts, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )
        if addresses:
            builder = builder.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        return builder.sign(self.key, SHA256())


def new_key() -> EllipticCurvePrivateKey:
    """Return a new private key for TLS."""
    return generate_ec(SECP256R1())


def key_pem(key: EllipticCurvePrivateKey) -> bytes:
    """Return a private key in PEM, without a password: a node starts without anybody to type it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate in PEM."""
    return certificate.public_bytes(Encoding.PEM)


def read_certificate(pem: str) -> x509.Certificate:
    """Return the certificate in a PEM text."""
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        raise InputError("a certificate of the federation is damaged; restore its folder from a copy") from None


def make_request(key: EllipticCurvePrivateKey, name: str) -> bytes:
    """Return a signing request in PEM, which proves that its sender has the private key."""
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, name)])
    return x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, SHA256()).public_bytes(Encoding.PEM)


def read_request(pem: str) -> EllipticCurvePublicKey:
    """Return the key that a signing request asks a certificate for; nothing else of it is used."""
    try:
        request = x509.load_pem_x509_csr(pem.encode())
        valid, key = request.is_signature_valid, request.public_key()
    except (ValueError, TypeError):
        raise InputError("its certificate request is damaged") from None
    if not valid or not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
        raise InputError("its certificate request must be for a key on P-256 and signed by it")
    return key


def check_host(host: str) -> str:
    """Return the broker's name or address if a certificate can carry it."""
    try:
        ip_address(host)
    except ValueError:
        labels = host.split(".")
        if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels) or labels[-1].isdecimal():
            raise InputError(
                f"--broker must be a host's name or address, without mqtts:// and port, got {value_words(host)}"
            ) from None
    return host


def covers(certificate: x509.Certificate, host: str) -> bool:
    """Say whether a broker's certificate holds for a name or address."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return _address(host) in list(names)


def _addresses(host: str) -> tuple[x509.GeneralName, ...]:
    return tuple(_address(each) for each in (_LOCAL if host in _LOCAL else (host,)))


def _address(host: str) -> x509.GeneralName:
    try:
        address: IPv4Address | IPv6Address = ip_address(host)
    except ValueError:
        return x509.DNSName(host)
    return x509.IPAddress(address)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePublicKey,
    issuer_key: EllipticCurvePublicKey,
    starts: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
