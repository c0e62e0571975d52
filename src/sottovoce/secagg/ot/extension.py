"""Extend 128 base transfers to any number: correlated transfers of words, in chunks.

The protocol is that of Ishai, Kilian, Nissim and Petrank (2003), with a consistency check of the kind of Keller, Orsini
and Scholl (2015). For every transfer j the receiver has a choice bit y_j and the sender a bit p_j, and they end with
shares of y_j p_j modulo 2^16 or 2^32:

    receiver                                        sender, with a secret string s of 128 bits
    t_i, t'_i = prg(k_i), prg(k'_i)   i < 128       q_i = prg(key chosen by s_i) xor s_i u_i
    u_i = t_i xor t'_i xor y          -- u -->      rows Q_j = T_j xor y_j s
                                      <- alpha -    a random point, once u is here
    hashes of the t_i and of y        -- check ->   hash(q_i) = hash(t_i) xor s_i hash(y) for all i, or the session ends
                                      <-- w --      w_j = H(Q_j) - H(Q_j xor s) + p_j
    a_j = H(T_j) + y_j w_j                          b_j = -H(Q_j);   a_j + b_j = y_j p_j

The check: hashes are polynomials over GF(2^128) at the point alpha, linear in the columns. A receiver whose columns of
u do not hold one and the same y passes with probability 2^-128 times the number of blocks for each wrong column whose
bit of s it did not guess. 128 rows of every chunk are random and serve as mask: they make the hashes uniform, so that
the check tells the sender nothing. This is the form in which Roy ("SoftSpokenOT", 2022) proves such checks.

Both sides count the rows that they have used up. A row is never used for two chunks, because the streams of the base
keys only go forward; a side that is asked for an earlier chunk refuses.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.errors import InputError, SecAggError
from sottovoce.secagg.ot.base import TRANSFERS
from sottovoce.secagg.primitives import Entropy

WIDTH = 128  # columns, and bits of a row
Words = NDArray[np.uint64]

_WHO = "the count of secret ballots"
_REDUCTION = 0x87  # x^128 = x^7 + x^2 + x + 1


def transpose(columns: Words) -> Words:
    """Return the rows of a matrix of 128 columns: bit i of row j is bit j of column i."""
    if len(columns) != WIDTH:
        raise InputError(f"{WIDTH} columns were expected, got {len(columns)}")
    columns, words = np.ascontiguousarray(columns, np.uint64), columns.shape[1]
    rows = np.empty((words * 64, 2), np.uint64)
    native.required(_WHO).transpose(native.place(columns), words, native.place(rows))
    return rows


def column_hashes(columns: Words, point: bytes) -> Words:
    """Return the hash of each column: its blocks of 128 bits as a polynomial over GF(2^128), evaluated at `point`.

    The first block is the constant term. Hashes are linear, and two different columns of n blocks have the same hash
    for at most n of the 2^128 points.
    """
    columns, table = np.ascontiguousarray(columns, np.uint64), _table(int.from_bytes(point, "little"))
    hashes = np.empty((len(columns), 2), np.uint64)
    compiled = native.required(_WHO)
    compiled.hash_columns(native.place(columns), *columns.shape, native.place(table), native.place(hashes))
    return hashes


def multiply(first: int, second: int) -> int:
    """Return a product in GF(2^128), bit by bit; lowest bit is the constant term."""
    product = 0
    while second:
        if second & 1:
            product ^= first
        first <<= 1
        if first >> WIDTH:
            first ^= 1 << WIDTH | _REDUCTION
        second >>= 1
    return product


def _table(point: int) -> Words:
    """Return, for each of 16 places and 256 values of a byte there, its product with `point`."""
    shifted = [point]
    for _ in range(WIDTH - 1):
        doubled = shifted[-1] << 1
        shifted.append(doubled ^ (1 << WIDTH | _REDUCTION) if doubled >> WIDTH else doubled)
    table = np.zeros((16, 256, 2), np.uint64)
    low = (1 << 64) - 1
    for place in range(16):
        for bit in range(8):
            value = shifted[8 * place + bit]
            size = 1 << bit
            table[place, size : 2 * size] = table[place, :size] ^ np.array([value & low, value >> 64], np.uint64)
    return table


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


POINT_SIZE: Final = 16
CHECK_SIZE: Final = 16 * (TRANSFERS + 1)
_MASK_ROWS: Final = WIDTH

Packed = NDArray[np.uint8]


def rows_of(transfers: int) -> int:
    """Return the rows that a chunk of so many transfers uses up: whole blocks, and one of masks."""
    return _MASK_ROWS + -(-transfers // WIDTH) * WIDTH


def word_type(bits: int) -> type[np.unsignedinteger[Any]]:
    """Return the type of shares modulo 2^16 or 2^32."""
    if bits not in (16, 32):
        raise SecAggError(f"shares have 16 or 32 bits, got {bits}")
    return np.uint16 if bits == 16 else np.uint32


class ExtensionReceiver:
    """The side with choice bits; it keeps both keys of every base transfer, as streams."""

    def __init__(self, keys: list[tuple[bytes, bytes]], entropy: Entropy, bits: int = 16) -> None:
        _check_keys(keys)
        self.counter = 0  # rows used up
        self._streams = [(_stream(zero), _stream(one)) for zero, one in keys]
        self._entropy = entropy
        self._type = word_type(bits)
        self._columns: Words | None = None
        self._choices: Words | None = None
        self._transfers = 0

    def choose(self, choices: Packed, transfers: int) -> bytes:
        """Return u for so many choices, packed lowest bit first; the rows are used up from here on."""
        if self._columns is not None:
            raise SecAggError("a chunk of transfers is begun before the last one ended")
        rows = rows_of(transfers)
        bits = np.zeros(rows // 8, np.uint8)
        bits[: _MASK_ROWS // 8] = np.frombuffer(self._entropy(_MASK_ROWS // 8), np.uint8)
        if choices.size != (transfers + 7) // 8:
            raise SecAggError(f"{transfers} choices take {(transfers + 7) // 8} bytes, got {choices.size}")
        bits[_MASK_ROWS // 8 : _MASK_ROWS // 8 + choices.size] = choices
        kept = bits.view(np.uint64)
        columns, sent = np.empty((TRANSFERS, rows // 64), np.uint64), np.empty((TRANSFERS, rows // 64), np.uint64)
        for (zero, one), column, told in zip(self._streams, columns, sent, strict=True):
            _fill(zero, column)
            _fill(one, told)
            told ^= column
            told ^= kept
        self._columns, self._choices, self._transfers = columns, kept, transfers
        return sent.tobytes()

    def check(self, point: bytes) -> bytes:
        """Return the hashes of the columns and of the choices at the sender's point."""
        columns, choices = self._begun()
        if len(point) != POINT_SIZE:
            raise SecAggError(f"the point of a check has {POINT_SIZE} bytes, got {len(point)}")
        return column_hashes(choices[None], point).tobytes() + column_hashes(columns, point).tobytes()

    def shares(self, reply: bytes) -> NDArray[Any]:
        """Return the shares of the products, from the sender's w; the chunk is over."""
        columns, choices = self._begun()
        first, transfers = self.counter + _MASK_ROWS, self._transfers
        if len(reply) != transfers * self._type().itemsize:
            raise SecAggError(f"{transfers} transfers are answered by as many words, got {len(reply)} bytes")
        hashed = _low_words(tweaked_hash(transpose(columns)[_MASK_ROWS:], first), self._type)[:transfers]
        chosen = np.unpackbits(choices.view(np.uint8)[_MASK_ROWS // 8 :], count=transfers, bitorder="little")
        hashed += chosen * np.frombuffer(reply, self._type)
        self.counter += rows_of(transfers)
        columns.fill(0)
        choices.fill(0)
        self._columns = self._choices = None
        return hashed

    def _begun(self) -> tuple[Words, Words]:
        if self._columns is None or self._choices is None:
            raise SecAggError("no chunk of transfers has begun")
        return self._columns, self._choices


class ExtensionSender:
    """The side with bits to multiply; it keeps the key of its choice of every base transfer, as streams.

    Guarantee: after a check that failed nothing is ever answered again, because a receiver that may try twice learns a
    bit of the secret string each time.
    """

    def __init__(self, secret: list[int], keys: list[bytes], entropy: Entropy, bits: int = 16) -> None:
        _check_keys(keys)
        self.counter = 0
        self._streams = [_stream(key) for key in keys]
        self._secret = np.array(secret, np.uint8)
        self._difference = np.packbits(self._secret, bitorder="little").view(np.uint64)
        self._entropy = entropy
        self._type = word_type(bits)
        self._columns: Words | None = None
        self._point = b""
        self._transfers = 0
        self._dead = False

    def challenge(self, sent: bytes, transfers: int) -> bytes:
        """Return a fresh point for the check of u; the rows are used up from here on."""
        if self._dead:
            raise SecAggError("a consistency check of this session failed; begin a new session")
        if self._columns is not None:
            raise SecAggError("a chunk of transfers is begun before the last one ended")
        rows = rows_of(transfers)
        if len(sent) != TRANSFERS * rows // 8:
            raise SecAggError(f"{transfers} transfers take {TRANSFERS * rows // 8} bytes, got {len(sent)}")
        told = np.frombuffer(sent, np.uint64).reshape(TRANSFERS, rows // 64)
        columns = np.empty((TRANSFERS, rows // 64), np.uint64)
        for stream, column, chosen, other in zip(self._streams, columns, self._secret, told, strict=True):
            _fill(stream, column)
            if chosen:
                column ^= other
        self._columns, self._transfers = columns, transfers
        self._point = self._entropy(POINT_SIZE)
        return self._point

    def answer(self, check: bytes, bits: NDArray[Any]) -> tuple[bytes, NDArray[Any]]:
        """Return w for these bits, and the shares of the products, if the check holds; the chunk is over."""
        columns, transfers = self._columns, self._transfers
        if columns is None or self._dead:
            raise SecAggError("no chunk of transfers has begun, or its session is over")
        if bits.shape != (transfers,):
            raise SecAggError(f"{transfers} bits were expected, got shape {bits.shape}")
        self._verify(columns, check)
        first = self.counter + _MASK_ROWS
        rows = transpose(columns)[_MASK_ROWS : _MASK_ROWS + transfers]
        mine = _low_words(tweaked_hash(rows, first), self._type)
        rows ^= self._difference
        reply = mine - _low_words(tweaked_hash(rows, first), self._type)
        reply += bits.astype(self._type)
        self.counter += rows_of(transfers)
        columns.fill(0)
        self._columns = None
        return reply.tobytes(), np.negative(mine)

    def _verify(self, columns: Words, check: bytes) -> None:
        if len(check) != CHECK_SIZE:
            self._dead = True
            raise SecAggError(f"a consistency check has {CHECK_SIZE} bytes, got {len(check)}; the session ends")
        told = np.frombuffer(check, np.uint64).reshape(-1, 2)
        expected = told[1:] ^ (self._secret[:, None].astype(np.uint64) * told[0])
        if not np.array_equal(column_hashes(columns, self._point), expected):
            self._dead = True
            raise SecAggError("the choices of a chunk are not the same in all columns; the session ends")


def _check_keys(keys: list[Any]) -> None:
    if len(keys) != TRANSFERS:
        raise SecAggError(f"an extension needs {TRANSFERS} base transfers, got {len(keys)}")


def _stream(key: bytes) -> Any:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


def _fill(stream: Any, column: Words) -> None:
    view = column.data.cast("B")
    stream.update_into(bytes(view.nbytes), view)


def _low_words(rows: Words, kind: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
    return rows[:, 0].astype(kind)
