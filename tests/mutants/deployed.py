"""Mutants of a deployed federation: its randomness would be known, its ledger short, or its epsilon too small."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

CIPHER = "tests/core/test_cipher.py"
CREDENTIALS = "tests/federation/test_credentials.py"

MUTANTS = (
    of(
        "secrets-of-the-seed",
        "whoever knows the experiment's file knows every secret of the server and of the nodes",
        (
            "core/streams.py",
            "default_factory=lambda: os.urandom(cipher.KEY_SIZE)",
            "default_factory=lambda: bytes(cipher.KEY_SIZE)",
        ),
        tests=CIPHER,
    ),
    of(
        "one-stream-for-all-rounds",
        "the coins of round 2 are those of round 1",
        ("core/streams.py", "{purpose:d} {path}", "{purpose:d} {path[1:]}"),
        tests=CIPHER,
    ),
    of(
        "one-key-for-all-owners",
        "a session id, which travels, is a prefix of what keys a client's stream",
        ("core/streams.py", "info=owner.encode()))", 'info=b""))'),
        tests=CIPHER,
    ),
    of(
        "a-fork-repeats-secrets",
        "two processes that came from one draw the same numbers",
        ("core/streams.py", "if os.getpid() != self._process:", "if False:"),
        tests=CIPHER,
    ),
    of(
        "secrets-in-pickles",
        "a worker, a log or a crash report holds the key of the process",
        (
            "core/streams.py",
            """    def __reduce__(self) -> NoReturn:
        raise PrivacyError("the secrets of a process are never copied, written or sent")


@dataclass(frozen=True, eq=False)
class SecretStreams""",
            """@dataclass(frozen=True, eq=False)
class SecretStreams""",
        ),
        tests=CIPHER,
    ),
    of(
        "zeros-for-cipher-text",
        "half of each word is no cipher's",
        ("core/cipher.py", "repeat(11)", "repeat(43)"),
        tests=CIPHER,
    ),
    of(
        "deployed-noise-of-the-seed",
        "whoever knows the experiment's file takes the noise off",
        ("federation/coding.py", "if self.plan.request.deployment:", "if False:"),
        tests=CREDENTIALS,
    ),
    of(
        "device-secrets-of-the-stream",
        "a device that is restored masks with the secrets of its last life",
        ("federation/client.py", "if own is None:", "if own is None or True:"),
        tests=CREDENTIALS,
    ),
    of(
        "session-ids-of-the-registry",
        "all runs of one seed have the same session ids",
        ("federation/secure.py", "self.streams.key(Purpose.MASK, round_, size=16)", "bytes(16)"),
        tests=CREDENTIALS,
    ),
)
