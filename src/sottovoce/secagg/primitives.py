"""Wrap the five primitives that the protocol stands on; all of the mathematics is in `cryptography`.

Keys travel and rest as 32 raw bytes, so that a client's state is plain data that can be kept between two phases.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from sottovoce.core.cipher import KEY_SIZE, derive
from sottovoce.core.errors import InputError, SecAggError

__all__ = [
    "KEY",
    "NONCE",
    "SIGNATURE",
    "TAG",
    "Entropy",
    "KeyedEntropy",
    "agree",
    "commit",
    "decrypt",
    "derive",
    "encrypt",
    "exchange_key",
    "forget",
    "sign",
    "usable",
    "verify",
    "verifying_key",
]

KEY: Final = KEY_SIZE
SIGNATURE: Final = 64
TAG: Final = 16
NONCE: Final = 12
_REMEMBERED: Final = 4096  # answers about public values

Entropy = Callable[[int], bytes]
"""A source of secret bytes: `os.urandom`, or `KeyedEntropy` in simulation."""


class KeyedEntropy:
    """The AES-256-CTR keystream of a key, in simulation only: whoever knows the key knows every secret.

    >>> KeyedEntropy(bytes(32))(8) == KeyedEntropy(bytes(32))(8)
    True
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY:
            raise InputError(f"an entropy key has {KEY} bytes, got {len(key)}")
        self._key = key
        self._blocks = 0

    def __call__(self, size: int) -> bytes:
        """Return the next `size` bytes; each call starts on a fresh cipher block."""
        start = self._blocks.to_bytes(16, "big")
        self._blocks += (size + 15) // 16
        return Cipher(algorithms.AES(self._key), modes.CTR(start)).encryptor().update(bytes(size))


def verifying_key(signing_key: bytes) -> bytes:
    """Return the Ed25519 public key to register for a 32-byte signing key."""
    if len(signing_key) != KEY:
        raise InputError(f"a signing key has {KEY} bytes, got {len(signing_key)}")
    return Ed25519PrivateKey.from_private_bytes(signing_key).public_key().public_bytes_raw()


def sign(signing_key: bytes, message: bytes) -> bytes:
    """Return the Ed25519 signature of `message`."""
    return Ed25519PrivateKey.from_private_bytes(signing_key).sign(message)


def verify(registered: bytes, signature: bytes, message: bytes) -> bool:
    """Say whether `signature` of `message` was made by the owner of the registered key.

    All three are public and decide the answer, so a process with many simulated clients computes it once.
    """
    return _verified(bytes(registered), bytes(signature), bytes(message))


@lru_cache(_REMEMBERED)
def _verified(registered: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(registered).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def forget() -> None:
    """Drop all answers about public values, so that a benchmark times a client alone."""
    _verified.cache_clear()
    usable.cache_clear()


def exchange_key(private: bytes) -> bytes:
    """Return the X25519 public key of 32 private bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the X25519 secret; a point of small order, whose secret everyone knows, is refused."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise SecAggError("a public key is a point of small order: its secrets would be known to everyone") from None


@lru_cache(_REMEMBERED)
def usable(public: bytes) -> bool:
    """Say whether agreements with this X25519 public key are secret; remembered as `verify` is."""
    try:
        agree(_PROBE, public)
    except SecAggError:
        return False
    return True


def encrypt(key: bytes, plain: bytes, info: bytes, nonce: bytes) -> bytes:
    """Return the nonce, then `plain` sealed by ChaCha20-Poly1305 with `info` authenticated.

    A key seals one message; the nonce is drawn all the same, so that a client restored to an earlier state, which
    seals again under the same key, does not show the difference of two plain texts.
    """
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, plain, info)


def decrypt(key: bytes, sealed: bytes, info: bytes) -> bytes:
    """Undo `encrypt`, or refuse what was tampered with or meant for another."""
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:NONCE], sealed[NONCE:], info)
    except InvalidTag:
        raise SecAggError("an encrypted share does not open: tampered with, or meant for another") from None


def commit(secret: bytes) -> bytes:
    """Return a commitment to 32 uniform bytes; with that much entropy SHA-256 hides without further salt."""
    return hashlib.sha256(b"sottovoce secagg seed" + secret).digest()


_PROBE: Final = X25519PrivateKey.from_private_bytes(hashlib.sha256(b"sottovoce secagg probe").digest())
