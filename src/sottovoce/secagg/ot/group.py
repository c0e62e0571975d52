"""The group of base transfers and comparisons: the subgroup of prime order of edwards25519, by libsodium.

Everything that depends on a secret takes constant time. An element is 32 bytes; what comes from the other side is
refused unless it is canonical, of the subgroup and not its neutral element.
"""

from __future__ import annotations

import hashlib
from typing import Final

from sottovoce.core.errors import InputError, SecAggError
from sottovoce.secagg.primitives import Entropy

try:
    from nacl import bindings as sodium
    from nacl.exceptions import CryptoError
except ImportError:  # pragma: no cover - tested in a process of its own
    raise InputError("sottovoce needs PyNaCl, which is not installed here; install it: pip install PyNaCl") from None

ELEMENT: Final = 32  # bytes of an element on the wire
_WIDE: Final = 64  # bytes that are reduced to a scalar: its distance from uniform is below 2^-250


def scalar(entropy: Entropy) -> bytes:
    """Return a fresh secret scalar."""
    return sodium.crypto_core_ed25519_scalar_reduce(entropy(_WIDE))


def public(secret: bytes) -> bytes:
    """Return the multiple of the base point."""
    try:
        return sodium.crypto_scalarmult_ed25519_base_noclamp(secret)
    except CryptoError:
        raise SecAggError("a secret of a base transfer is zero; the source of randomness is broken") from None


def times(secret: bytes, element: bytes) -> bytes:
    """Return the multiple of an element of the other side, or refuse one that is none."""
    check(element)
    try:
        return sodium.crypto_scalarmult_ed25519_noclamp(secret, element)
    except CryptoError:
        raise SecAggError("a transfer holds the neutral element of its group; refused") from None


def add(first: bytes, second: bytes) -> bytes:
    """Return the sum of two elements."""
    return sodium.crypto_core_ed25519_add(first, second)


def subtract(first: bytes, second: bytes) -> bytes:
    """Return the difference of two elements."""
    return sodium.crypto_core_ed25519_sub(first, second)


def hash_to_element(*parts: bytes) -> bytes:
    """Return an element that nobody knows the logarithm of; a random one for random parts.

    One map of Elligator reaches half of the group only; the sum of two is as good as a random oracle into all of it
    (Brier et al. 2010).
    """
    wide = hashlib.sha512(b"sottovoce group 2")
    for part in parts:
        wide.update(len(part).to_bytes(4, "little") + part)
    halves = wide.digest()
    first, second = (sodium.crypto_core_ed25519_from_uniform(half) for half in (halves[:32], halves[32:]))
    return add(first, second)


def check(element: bytes) -> None:
    """Raise unless bytes are an element of the subgroup, and not its neutral one."""
    if len(element) != ELEMENT or not sodium.crypto_core_ed25519_is_valid_point(element):
        raise SecAggError("a transfer holds bytes that are no element of its group; refused")
