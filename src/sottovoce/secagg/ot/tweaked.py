"""The hash of the extension: fixed-key AES, tweaked by the number of the transfer.

    H(x, i) = P(P(x) xor i) xor P(x),   P = AES-128 under a fixed public key

This is the construction TMMO of Guo, Katz, Wang and Yu ("Efficient and Secure Multiparty Computation from Fixed-Key
Block Ciphers", S&P 2020): tweakable circular correlation robust if AES is an ideal cipher. The same paper shows
attacks on the shorter P(x) xor x where a secret difference is shared by many transfers, as it is here.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from sottovoce.secagg.ot.bits import Words

__all__ = ["tweaked_hash"]

_KEY: Final = hashlib.sha256(b"sottovoce ot fixed key").digest()[:16]


def tweaked_hash(rows: Words, first: int) -> Words:
    """Return H(row j, first + j) for rows of 128 bits."""
    permuted = _permute(rows)
    inner = permuted.copy()
    inner[:, 0] ^= np.arange(first, first + len(rows), dtype=np.uint64)
    hashed = _permute(inner)
    hashed ^= permuted
    return hashed


def _permute(rows: Words) -> Words:
    out = np.empty((len(rows) + 1, 2), np.uint64)  # the cipher asks for a block more than it fills
    cipher = Cipher(algorithms.AES(_KEY), modes.ECB()).encryptor()
    cipher.update_into(np.ascontiguousarray(rows).data.cast("B"), out.data.cast("B"))
    return out[:-1]
