"""The extension, slowly and obviously: one Python integer a row, one bit at a time."""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

FIXED = hashlib.sha256(b"sottovoce ot fixed key").digest()[:16]


def stream(key: bytes, start: int, rows: int) -> list[int]:
    """Return bits start .. start + rows of a base key's stream, lowest bit of a byte first."""
    raw = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes((start + rows) // 8))
    return [raw[place // 8] >> place % 8 & 1 for place in range(start, start + rows)]


def permute(value: int) -> int:
    out = Cipher(algorithms.AES(FIXED), modes.ECB()).encryptor().update(value.to_bytes(16, "little"))
    return int.from_bytes(out, "little")


def tweaked(value: int, index: int) -> int:
    once = permute(value)
    return permute(once ^ index) ^ once


def product(first: int, second: int) -> int:
    """Multiply in GF(2^128), as polynomials divided by x^128 + x^7 + x^2 + x + 1."""
    whole = 0
    for bit in range(128):
        if second >> bit & 1:
            whole ^= first << bit
    for bit in range(255, 127, -1):
        if whole >> bit & 1:
            whole ^= (1 << 128 | 0x87) << (bit - 128)
    return whole


def column_hash(bits: list[int], point: int) -> int:
    total, weight = 0, 1
    for block in range(0, len(bits), 128):
        value = sum(bit << place for place, bit in enumerate(bits[block : block + 128]))
        total ^= product(value, weight)
        weight = product(weight, point)
    return total


def shares(
    keys: list[tuple[bytes, bytes]], secret: list[int], start: int, choices: list[int], bits: list[int], width: int
) -> tuple[list[int], list[int]]:
    """Return what receiver and sender end with: `choices` begin with 128 mask bits, `bits` are of the rest."""
    rows = len(choices)
    zero = [stream(key, start, rows) for key, _ in keys]
    one = [stream(key, start, rows) for _, key in keys]
    mine, theirs = [], []
    difference = sum(bit << place for place, bit in enumerate(secret))
    for row in range(128, 128 + len(bits)):
        told = [zero[i][row] ^ one[i][row] ^ choices[row] for i in range(128)]
        q = sum(((one[i][row] if secret[i] else zero[i][row]) ^ (secret[i] & told[i])) << i for i in range(128))
        t = sum(zero[i][row] << i for i in range(128))
        assert q == t ^ (difference if choices[row] else 0)
        word = tweaked(q, start + row) - tweaked(q ^ difference, start + row) + bits[row - 128]
        mine.append((tweaked(t, start + row) + choices[row] * word) % 2**width)
        theirs.append(-tweaked(q, start + row) % 2**width)
    return mine, theirs
