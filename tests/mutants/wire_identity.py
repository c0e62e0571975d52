"""Mutants of who is who between machines: a member of the federation passes for the broker or the helper."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

TESTS = "tests/attacks/test_b6_who_is_who_on_the_wire.py"

MUTANTS = (
    of(
        "helper-not-pinned",
        "whoever holds a server's certificate of the federation counts the ballots",
        ("deployment/server/helper_link.py", "if peer_print(connection) != self._pinned:", "if False:"),
        tests=TESTS,
    ),
    of(
        "helper-on-tls-1-2",
        "certificates of both sides are readable on the wire",
        ("deployment/helper/frames.py", "context.minimum_version = ssl.TLSVersion.TLSv1_3", "pass"),
        tests=TESTS,
    ),
    of(
        "broker-of-any-host",
        "a broker's certificate of another host is believed",
        (
            "federation/engines/mqtt/transport.py",
            "context.minimum_version = ssl.TLSVersion.TLSv1_2",
            "context.check_hostname = False",
        ),
        tests=TESTS,
    ),
    of(
        "node-certificate-as-brokers",
        "a node passes for the broker",
        (
            "deployment/certificates.py",
            "return self._issue(user, name, key, ends, ExtendedKeyUsageOID.CLIENT_AUTH, ())",
            "return self._issue(user, name, key, ends, ExtendedKeyUsageOID.SERVER_AUTH, ())",
        ),
        tests=TESTS,
    ),
    of(
        "roster-of-the-same-revision",
        "two machines are shown two rosters of one number",
        ("deployment/party.py", "or (newest[0] == own[0] and newest != own)", ""),
        tests=TESTS,
    ),
    of(
        "secret-readable-for-a-moment",
        "another user of the machine opens a key before it is narrowed",
        ("core/files.py", 'os.O_EXCL, mode), "wb")', 'os.O_EXCL, 0o666), "wb")'),
        ("core/files.py", "os.O_EXCL, mode))\n", "os.O_EXCL, 0o666))\n"),
        tests=TESTS,
    ),
    of(
        "mark-without-lock",
        "two processes of one node mask a round both, and their difference shows",
        ("secagg/mark.py", "hold(file.fileno(), wait=True)", "pass"),
        tests=TESTS,
    ),
    of(
        "process-secrets-of-16-bits",
        "all masks and noise of a process are found by trying",
        (
            "core/streams.py",
            "default_factory=lambda: os.urandom(cipher.KEY_SIZE))",
            "default_factory=lambda: os.urandom(2) + bytes(cipher.KEY_SIZE - 2))",
        ),
        tests=TESTS,
    ),
    of(
        "noise-key-of-16-bits",
        "the noise is found by trying",
        (
            "privacy/noise/randomness.py",
            "return cls(os.urandom(KEY_SIZE), repeatable=False)",
            "return cls(os.urandom(2) + bytes(KEY_SIZE - 2), repeatable=False)",
        ),
        tests=TESTS,
    ),
)
