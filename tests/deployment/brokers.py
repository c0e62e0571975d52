"""Brokers for the tests, on this machine and over TLS: mosquitto where it is installed, and amqtt."""

from __future__ import annotations

import contextlib
import datetime
import getpass
import ipaddress
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["MOSQUITTO", "Authority", "Broker", "free_port"]

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")

_DAY = datetime.timedelta(days=1)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Authority:
    """A certificate authority in a folder, which makes certificates good and bad."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = folder / "ca.pem"
        own = self._build(self._name, self._key, _DAY).add_extension(x509.BasicConstraints(True, None), critical=True)
        self._write(self.certificate, own)

    def issue(self, name: str, *, valid: datetime.timedelta = _DAY) -> tuple[Path, Path]:
        """Return the certificate and the key of a name; a negative time makes one that has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        built = self._build(subject, key, valid).add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate, private = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        self._write(certificate, built)
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, private

    def _build(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, valid: datetime.timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * _DAY)
            .not_valid_after(now + valid)
        )

    def _write(self, path: Path, built: x509.CertificateBuilder) -> None:
        path.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


class Broker:
    """A broker process; it can be stopped and started again at the same port."""

    def __init__(self, kind: str, authority: Authority, folder: Path, port: int | None = None) -> None:
        self.kind, self.folder, self.port = kind, folder, port or free_port()
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = authority.issue(f"broker-{self.port}")
        self._process: subprocess.Popen[bytes] | None = None
        if kind == "mosquitto":
            config = folder / "mosquitto.conf"
            config.write_text(
                f"listener {self.port} 127.0.0.1\ncafile {authority.certificate}\ncertfile {certificate}\n"
                f"keyfile {key}\nrequire_certificate true\nuse_identity_as_username true\nallow_anonymous true\n"
                f"max_queued_messages 0\nset_tcp_nodelay true\nuser {getpass.getuser()}\n"
            )
            self._command = [str(MOSQUITTO), "-c", str(config)]
        else:
            self._command = [
                *(sys.executable, "-m", "tests.deployment.amqtt_broker"),
                *(str(self.port), str(authority.certificate), str(certificate), str(key)),
            ]

    @property
    def address(self) -> str:
        return f"mqtts://localhost:{self.port}"

    def start(self) -> None:
        log = (self.folder / "broker.log").open("ab")
        self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        raise RuntimeError((self.folder / "broker.log").read_text())

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def running(self) -> Iterator[Broker]:
        self.start()
        try:
            yield self
        finally:
            self.stop()
