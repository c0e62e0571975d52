"""The one message of a client: its ballot under a pad, the pad's seed sealed to the helper, and a signature.

    y         ceil(d / 8) bytes   ballot xor AES-256-CTR(HKDF(seed; terms, round, client)), bits after the last one zero
    blind     16                  random, for the leader alone: the helper gets the commitment SHA-256(blind, y)
    ephemeral 32                  X25519 public key of this message
    sealed    32                  the seed of 16 bytes by ChaCha20-Poly1305, its terms and the commitment authenticated
    signature 64                  Ed25519 by the client's registered key, over the commitment, the rest and the terms

The leader gets y and not the pad, the helper the pad and not y. Whatever y and the seed are, y xor pad is a ballot.
The helper must not have a bare hash of y either: it knows the pad, so it could try every ballot that it thinks likely,
and would know for sure which one was cast. The blind, of which it learns nothing, makes the commitment as good as
random to it, and the signature still binds y.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from numpy.typing import NDArray

from sottovoce.core.errors import InputError, SecAggError
from sottovoce.secagg.ballots.terms import BallotTerms
from sottovoce.secagg.primitives import KEY, NONCE, SIGNATURE, TAG, Entropy, agree, derive, exchange_key, sign, verify

BLIND: Final = 16  # bytes; as long as the security of the rest, 128 bits
_SEED: Final = 16
_SEALED: Final = _SEED + TAG
ENVELOPE: Final = KEY + _SEALED + SIGNATURE
SEAL: Final = BLIND + ENVELOPE


class HelperEnvelope(NamedTuple):
    """What of a message the helper gets: everything but masked ballot and blind, of which it gets the commitment."""

    client: int
    commitment: bytes
    ephemeral: bytes
    sealed: bytes
    signature: bytes

    def check(self, terms: BallotTerms, round_: int, downlink: bytes, registered: bytes) -> None:
        """Raise unless the client signed this for this round of this count."""
        signed = _signed(terms.context(round_, self.client, downlink), self.commitment, self.ephemeral, self.sealed)
        if not verify(registered, self.signature, signed):
            raise SecAggError(
                f"client {self.client}: the ballot's signature is not its own, or of another round or run"
            )


def ballot_size(length: int) -> int:
    """Return the bytes of a whole message: ceil(d / 8) + 144.

    >>> ballot_size(8_317), ballot_size(1_663_370)
    (1184, 208066)
    """
    return (length + 7) // 8 + SEAL


def cast(
    terms: BallotTerms,
    round_: int,
    client: int,
    ballot: bytes,
    *,
    downlink: bytes,
    signing_key: bytes,
    entropy: Entropy,
) -> bytes:
    """Return the one message of a client in a round; `ballot` has the bits, lowest first, and zeros after the last."""
    terms.check_round(round_)
    if len(ballot) != (terms.length + 7) // 8 or not _padded(ballot, terms.length):
        raise InputError(f"a ballot of {terms.length} votes was expected, with zeros after the last one")
    context = terms.context(round_, client, downlink)
    seed, blind, private = entropy(_SEED), entropy(BLIND), entropy(KEY)
    pad = pad_of(terms, context, seed).take((terms.length + 7) // 8)
    masked = np.frombuffer(ballot, np.uint8) ^ pad
    if terms.length % 8:
        masked[-1] &= (1 << terms.length % 8) - 1
    commitment = commit(masked.tobytes(), blind)
    ephemeral = exchange_key(private)
    key = _sealing_key(X25519PrivateKey.from_private_bytes(private), terms.helper_exchange, terms, context, ephemeral)
    sealed = ChaCha20Poly1305(key).encrypt(
        bytes(NONCE), seed, context + commitment
    )  # the key seals this and nothing else
    signature = sign(signing_key, _signed(context, commitment, ephemeral, sealed))
    return masked.tobytes() + blind + ephemeral + sealed + signature


def commit(masked: bytes, blind: bytes) -> bytes:
    """Return what binds a masked ballot, and tells nothing about it to whoever does not know the blind."""
    return hashlib.sha256(b"sottovoce masked ballot" + blind + masked).digest()


def read(terms: BallotTerms, client: int, payload: bytes) -> tuple[bytes, HelperEnvelope]:
    """Return the masked ballot and the envelope of a message, or refuse another length or bits after the last vote."""
    size = (terms.length + 7) // 8
    if len(payload) != size + SEAL:
        raise SecAggError(f"client {client}: a ballot has {size + SEAL} bytes, got {len(payload)}")
    masked = payload[:size]
    if not _padded(masked, terms.length):
        raise SecAggError(f"client {client}: the bits after the last vote of a ballot must be zero")
    blind, packed = payload[size : size + BLIND], payload[size + BLIND :]
    return masked, unpack_envelope(client, commit(masked, blind), packed)


def unpack_envelope(client: int, commitment: bytes, packed: bytes) -> HelperEnvelope:
    """Return the envelope that 128 bytes are."""
    sealed, signature = packed[KEY : KEY + _SEALED], packed[KEY + _SEALED : ENVELOPE]
    return HelperEnvelope(client, commitment, packed[:KEY], sealed, signature)


def open_seed(terms: BallotTerms, envelope: HelperEnvelope, context: bytes, private: bytes) -> bytes:
    """Return the seed that was sealed to the helper, or refuse what was tampered with or meant for another place."""
    own = X25519PrivateKey.from_private_bytes(private)
    key = _sealing_key(own, envelope.ephemeral, terms, context, envelope.ephemeral)
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(NONCE), envelope.sealed, context + envelope.commitment)
    except InvalidTag:
        raise SecAggError(f"client {envelope.client}: the sealed seed does not open") from None


class Pad:
    """The pad of a ballot, byte after byte."""

    def __init__(self, key: bytes) -> None:
        self._cipher: Any = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def take(self, size: int) -> NDArray[np.uint8]:
        """Return the next bytes."""
        return np.frombuffer(self._cipher.update(bytes(size)), np.uint8)


def pad_of(terms: BallotTerms, context: bytes, seed: bytes) -> Pad:
    """Return the pad of a seed, in this place and no other."""
    return Pad(derive(seed, salt=terms.session, info=b"pad" + context))


def _sealing_key(own: X25519PrivateKey, other: bytes, terms: BallotTerms, context: bytes, ephemeral: bytes) -> bytes:
    info = b"seal" + context + ephemeral + terms.helper_exchange
    return derive(agree(own, other), salt=terms.session, info=info)


def _signed(context: bytes, commitment: bytes, ephemeral: bytes, sealed: bytes) -> bytes:
    return b"cast" + context + commitment + ephemeral + sealed


def _padded(ballot: bytes, length: int) -> bool:
    return not length % 8 or not ballot[-1] >> length % 8
