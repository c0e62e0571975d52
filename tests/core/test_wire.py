from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core import wire
from sottovoce.core.errors import InputError, WireError


def naive_pack(values: list[int], bits: int) -> bytes:
    """Write the bit string out and cut it into bytes: the obvious twin of `pack_bits`."""
    stream = "".join(format(value, f"0{bits}b")[::-1] for value in values)
    stream += "0" * (-len(stream) % 8)
    return bytes(int(stream[start : start + 8][::-1], 2) for start in range(0, len(stream), 8))


@given(bits=st.integers(1, 32), data=st.data())
def test_packing_agrees_with_the_naive_bit_string(bits: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=200))

    packed = wire.pack_bits(np.array(values, np.uint32), bits)

    assert packed.tobytes() == naive_pack(values, bits)
    assert wire.unpack_bits(packed, bits, len(values)).tolist() == values


@pytest.mark.parametrize("bits", range(1, 33))
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 1001])
def test_every_width_and_odd_length_survives_the_wire(bits: int, length: int) -> None:
    values = np.random.default_rng(bits).integers(0, 1 << bits, length, np.uint64).astype(np.uint32)

    payload = wire.pack(values, bits=bits)

    assert len(payload) == wire.HEADER + (length * bits + 7) // 8 == wire.frame_size(length, bits)
    assert np.array_equal(wire.unpack(payload, length=length, bits=bits), values)


def test_the_header_is_small_and_floats_take_four_bytes_each() -> None:
    assert wire.HEADER <= 64
    assert len(wire.pack(np.ones(1000, np.float32))) == wire.HEADER + 4000


def test_special_floats_survive_bit_for_bit() -> None:
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45], np.float32)

    back = wire.unpack_floats(wire.pack(values), length=6)

    assert back.tobytes() == values.tobytes()


@given(length=st.integers(0, 700), position=st.integers(0), flip=st.integers(1, 255))
@settings(max_examples=300)
def test_any_changed_byte_is_refused(length: int, position: int, flip: int) -> None:
    payload = bytearray(wire.pack(np.arange(length, dtype=np.float32)))
    payload[position % len(payload)] ^= flip

    with pytest.raises(WireError):
        wire.unpack_floats(bytes(payload), length=length)


@given(st.binary(max_size=400))
def test_foreign_bytes_are_refused_and_never_crash(payload: bytes) -> None:
    with pytest.raises(WireError):
        wire.unpack(payload, length=10)


@given(cut=st.integers(1, 200), data=st.binary(min_size=1, max_size=50))
def test_truncated_and_oversized_payloads_are_refused(cut: int, data: bytes) -> None:
    payload = wire.pack(np.ones(50, np.float32))

    with pytest.raises(WireError):
        wire.unpack_floats(payload[: len(payload) - cut], length=50)
    with pytest.raises(WireError, match="oversized"):
        wire.unpack_floats(payload + data, length=50)


def test_a_header_that_claims_a_petabyte_allocates_nothing() -> None:
    claim = struct.pack("<4sBBHQII", wire.MAGIC, wire.VERSION, wire.FLOAT, 32, 2**50, 0, 0)

    with pytest.raises(WireError, match="announces"):
        wire.unpack_floats(claim, length=10)
    with pytest.raises(WireError, match="truncated"):
        wire.unpack_floats(claim, length=2**50)


def test_a_reader_gets_only_the_kind_and_length_it_asked_for() -> None:
    payload = wire.pack(np.ones(32, np.uint32), bits=1)

    with pytest.raises(WireError, match="announces 32 values of kind 2 and 1 bits, expected 33"):
        wire.unpack(payload, length=33, bits=1)
    with pytest.raises(WireError):
        wire.unpack(payload, length=1)


def test_bits_after_the_last_word_must_be_zero() -> None:
    with pytest.raises(WireError, match="after its last word"):
        wire.open_frame(wire.frame(bytes([0b1111]), length=3, bits=1), length=3, bits=1)


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="do not fit 3 bits"):
        wire.pack(np.array([8]), bits=3)
    with pytest.raises(InputError, match="do not fit"):
        wire.pack(np.array([-1]), bits=3)
    with pytest.raises(InputError, match=r"bits must be in \[1, 32\], got 33"):
        wire.pack(np.array([1]), bits=33)
    with pytest.raises(InputError, match="only float32"):
        wire.pack(np.ones(3))


def test_frames_can_be_joined_and_split() -> None:
    first, second = wire.pack(np.ones(3, np.float32)), wire.pack(np.array([5, 6]), bits=32)

    parts = wire.split(wire.join([first, second]), [len(first), len(second)])

    assert [bytes(part) for part in parts] == [first, second]
    with pytest.raises(WireError, match="frames take"):
        wire.split(first + second + b"x", [len(first), len(second)])
