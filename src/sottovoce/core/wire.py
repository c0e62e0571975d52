"""Frame vectors as bytes: a 24-byte header, then float32 values or unsigned words of exactly b bits.

    offset  size  field
    0       4     magic  b"svce"
    4       1     version
    5       1     kind   1 = float32, 2 = packed words
    6       2     bits   of one value
    8       8     length number of values
    16      4     check  of everything else (see `_check`)
    20      4     zero

All numbers are little-endian. Packed words fill each byte from its lowest bit; the bits after the last word are zero.
A reader says what it expects. It compares sizes before it looks further, so it never allocates what a header claims.
"""

from __future__ import annotations

import struct
import zlib
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.errors import InputError, WireError
from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector

HEADER: Final = 24
MAGIC: Final = b"svce"
VERSION: Final = 1
FLOAT: Final = 1
WORDS: Final = 2

Buffer = bytes | bytearray | memoryview
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint32]

_FIELDS = struct.Struct("<4sBBHQ")
_LANES: Final = 64
_CHUNK: Final = 1 << 14  # words at a time, whole bytes at any width
_FACTOR: Final = np.uint32(0x9E3779B1)


class Traffic(NamedTuple):
    """Bytes that one party sends (`up`) and receives (`down`)."""

    up: int
    down: int


def pack(values: NDArray[np.generic], bits: int | None = None) -> bytes:
    """Serialise float32 values as they are, or unsigned integers at `bits` bits each.

    >>> len(pack(np.ones(10, np.float32))) - HEADER, len(pack(np.arange(10, dtype=np.uint32), bits=5)) - HEADER
    (40, 7)
    """
    if bits is None:
        if values.dtype != np.float32:
            raise InputError(f"values of type {values.dtype} need a bit width; only float32 travels as it is")
        return frame(np.ascontiguousarray(values).view(np.uint8), length=values.size)
    return frame(pack_bits(values, bits), length=values.size, bits=bits)


def pack_rows(rows: Words, bits: int) -> list[bytes]:
    """Return `pack` of each row of words, which must be below 2^bits."""
    count, length = rows.shape
    if (library := native.library()) is None or not rows.flags.c_contiguous:
        return [pack(row, bits) for row in rows]
    size = _body_size(length, bits)
    frames = np.empty(count * (HEADER + size) + 8, np.uint8)
    fields, table = _expected(length, bits)
    library.frame_rows(native.place(rows), count, length, bits, fields, native.place(table), size, native.place(frames))
    whole = frames.data
    return [bytes(whole[start : start + HEADER + size]) for start in range(0, frames.size - 8, HEADER + size)]


def add_words(total: Words, payload: Buffer, bits: int) -> None:
    """Add a frame of words to a total, modulo 2^32, or raise and leave it as it was."""
    if (library := native.library()) is not None and isinstance(payload, bytes):
        fields, table = _expected(total.size, bits)
        place = native.place(total)
        if library.add_frame(place, total.size, payload, len(payload), bits, fields, native.place(table)):
            return
    total += unpack(payload, length=total.size, bits=bits).view(np.uint32)


@cache
def _expected(length: int, bits: int) -> tuple[bytes, Words]:
    """Return the first fields of a frame of words, and the table of CRC-32."""
    return _FIELDS.pack(MAGIC, VERSION, WORDS, bits, length), _crc_table()


@cache
def _crc_table() -> Words:
    """Return CRC-32 of each byte, for the same sum in C."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0xEDB88320) ^ (table >> np.uint32(1)), table >> np.uint32(1))
    return table


def unpack(payload: Buffer, *, length: int, bits: int | None = None) -> NDArray[np.generic]:
    """Return the `length` values that the reader expects; float32 is a read-only view of `payload`."""
    body = open_frame(payload, length=length, bits=bits)
    if bits is None:
        return np.frombuffer(body, dtype="<f4")
    return unpack_bits(np.frombuffer(body, np.uint8), bits, length)


def unpack_floats(payload: Buffer, *, length: int) -> Vector:
    """Return `length` float32 values as a read-only view of `payload`."""
    return np.frombuffer(open_frame(payload, length=length), dtype="<f4")


def frame(body: Bytes | Buffer, *, length: int, bits: int | None = None) -> bytes:
    """Put the header before a body that is already in wire form."""
    view = memoryview(body).cast("B")  # type: ignore[arg-type]
    if view.nbytes != _body_size(length, bits):
        raise InputError(
            f"{length} values of {bits or 32} bits take {_body_size(length, bits)} bytes, got {view.nbytes}"
        )
    fields = _FIELDS.pack(MAGIC, VERSION, FLOAT if bits is None else WORDS, bits or 32, length)
    return b"".join((fields, struct.pack("<II", _check(fields, view), 0), view))


def open_frame(payload: Buffer, *, length: int, bits: int | None = None) -> memoryview:
    """Return the body of a frame after checking that it is exactly what the reader expects."""
    view = memoryview(payload).cast("B")
    if view.nbytes < HEADER:
        raise WireError(f"payload is truncated: {view.nbytes} bytes, the header alone takes {HEADER}")
    magic, version, kind, width, count = _FIELDS.unpack(view[:16])
    check, zero = struct.unpack("<II", view[16:HEADER])
    if magic != MAGIC:
        raise WireError(f"payload is foreign: it begins with {bytes(magic)!r}, not {MAGIC!r}")
    if version != VERSION:
        raise WireError(f"payload has wire version {version}, this reader knows {VERSION}")
    expected_kind = FLOAT if bits is None else WORDS
    if (kind, width, count, zero) != (expected_kind, bits or 32, length, 0):
        raise WireError(
            f"payload announces {count} values of kind {kind} and {width} bits, "
            f"expected {length} of kind {expected_kind} and {bits or 32} bits"
        )
    body = view[HEADER:]
    size = _body_size(length, bits)
    if body.nbytes != size:
        word = "truncated" if body.nbytes < size else "oversized"
        raise WireError(f"payload is {word}: {body.nbytes} bytes after the header, expected {size}")
    if check != _check(bytes(view[:16]), body):
        raise WireError("payload is corrupted: its checksum does not match")
    if bits is not None and (spare := 8 * size - length * bits) and body[-1] >> (8 - spare):
        raise WireError("payload has bits set after its last word")
    return body


def frame_size(length: int, bits: int | None = None) -> int:
    """Return the bytes that a frame of `length` values takes, header included."""
    return HEADER + _body_size(length, bits)


def join(frames: list[bytes]) -> bytes:
    """Put frames one after the other into one payload; the reader splits them by what it expects."""
    return b"".join(frames)


def split(payload: Buffer, sizes: list[int]) -> list[memoryview]:
    """Cut a payload of several frames at the sizes that the reader expects."""
    view = memoryview(payload).cast("B")
    if view.nbytes != sum(sizes):
        raise WireError(f"payload has {view.nbytes} bytes, its {len(sizes)} frames take {sum(sizes)}")
    ends = np.cumsum(sizes)
    return [view[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def pack_bits(values: NDArray[np.generic], bits: int) -> Bytes:
    """Pack unsigned integers below 2^bits, lowest bit first.

    >>> pack_bits(np.array([1, 2, 3]), 2).tolist()
    [57]
    """
    in_range("bits", bits, low=1, high=32)
    if values.size and (int(values.min()) < 0 or int(values.max()) >= 1 << bits):
        raise InputError(f"values do not fit {bits} bits without a sign")
    size = _body_size(values.size, bits)
    words = np.ascontiguousarray(values, dtype=np.uint32).reshape(-1)
    if (library := native.library()) is None:
        return _plain_pack(words, bits)
    packed = np.empty(size + 8, np.uint8)  # stores of eight bytes may end after the last word
    library.pack_bits(native.place(words), words.size, bits, native.place(packed))
    return packed[:size]


def unpack_bits(packed: Bytes, bits: int, length: int) -> Words:
    """Undo `pack_bits`."""
    in_range("bits", bits, low=1, high=32)
    if packed.size != _body_size(length, bits):
        raise WireError(f"{length} words of {bits} bits take {_body_size(length, bits)} bytes, got {packed.size}")
    if (library := native.library()) is None:
        return _plain_unpack(packed, bits, length)
    padded = np.zeros(packed.size + 8, np.uint8)  # the last value may be read with as many bytes after it
    padded[: packed.size] = packed
    words = np.empty(length, np.uint32)
    library.unpack_bits(native.place(padded), length, bits, native.place(words))
    return words


def _body_size(length: int, bits: int | None) -> int:
    return 4 * length if bits is None else (length * bits + 7) // 8


def _check(fields: bytes, body: memoryview) -> int:
    """Hash the words of the body in 64 independent lanes (h = h * odd + word), then the lanes by CRC-32.

    Any change within one word changes its lane, because an odd factor is invertible modulo 2^32. CRC-32 of the whole
    body would do as well at a tenth of the speed.
    """
    blocks = body.nbytes // (4 * _LANES)
    lanes = np.zeros(_LANES, np.uint32)
    if blocks:
        words = np.frombuffer(body, "<u4", count=blocks * _LANES)
        if (library := native.library()) is None:
            lanes = _plain_mix(words.reshape(blocks, _LANES))
        else:
            library.mix(native.place(words), blocks, native.place(lanes))
    check = zlib.crc32(fields)
    check = zlib.crc32(lanes.astype("<u4", copy=False).tobytes(), check)
    return zlib.crc32(body[4 * _LANES * blocks :], check)


def _plain_mix(blocks: NDArray[np.uint32]) -> Words:
    """Return the lanes as one sum: word i counts odd^(blocks - 1 - i), modulo 2^32."""
    powers = np.full(len(blocks), _FACTOR, np.uint32)
    powers[0] = 1
    np.multiply.accumulate(powers, out=powers)
    return np.asarray((blocks * powers[::-1, None]).sum(axis=0, dtype=np.uint32))


def _plain_pack(words: Words, bits: int) -> Bytes:
    places = np.arange(bits, dtype=np.uint32)
    parts = [
        np.packbits(((words[start : start + _CHUNK, None] >> places) & 1).astype(np.uint8), bitorder="little")
        for start in range(0, words.size, _CHUNK)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.uint8)


def _plain_unpack(packed: Bytes, bits: int, length: int) -> Words:
    words = np.empty(length, np.uint32)
    places = np.uint32(1) << np.arange(bits, dtype=np.uint32)
    for start in range(0, length, _CHUNK):
        part = words[start : start + _CHUNK]
        digits = np.unpackbits(packed[start * bits // 8 :][: -(-part.size * bits // 8)], bitorder="little")
        part[:] = digits[: part.size * bits].reshape(part.size, bits) @ places
    return words
