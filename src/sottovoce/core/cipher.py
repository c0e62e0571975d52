"""Make random numbers of a secret key: HKDF-SHA256 derives keys, AES-256-CTR makes bits, numpy makes distributions."""

from __future__ import annotations

import ctypes
import operator
import struct
from functools import partial
from itertools import chain, repeat
from threading import Lock
from typing import Final, NoReturn

from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.random import Generator

from sottovoce.core.errors import InputError, PrivacyError

KEY_SIZE: Final = 32
_WORDS: Final = struct.Struct("<512Q")  # read from the cipher at a time
_ZEROS: Final = bytes(_WORDS.size)
_CAPSULE: Final = ctypes.c_char_p(b"BitGenerator")  # the name numpy asks for; a capsule does not keep it alive

_Next64: Final = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
_Next32: Final = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
_NextDouble: Final = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)
_new_capsule: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


class _Bitgen(ctypes.Structure):
    """The struct `bitgen_t` of numpy/random/bitgen.h, which distributions draw from."""

    _fields_ = (
        ("state", ctypes.c_void_p),
        ("next_uint64", _Next64),
        ("next_uint32", _Next32),
        ("next_double", _NextDouble),
        ("next_raw", _Next64),
    )


class CipherGenerator:
    """The bits of one AES-256-CTR stream, in the form that numpy's `Generator` reads.

    One stream of 64-bit words serves all calls: a 32-bit number is the lower half of a word, a double its upper 53
    bits. What numpy calls back is compiled code throughout (iterators, no Python function): a Ctrl-C in the middle of a
    draw is then raised after it. In a Python function it would be raised inside, where ctypes can only drop it and
    hand numpy a number that no cipher made.

    Guarantee: it is never pickled or copied, and its repr does not show the key.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_SIZE:
            raise InputError(f"a cipher key must have {KEY_SIZE} bytes, got {len(key)}")
        blocks = map(keystream(key).update, repeat(_ZEROS))
        words = chain.from_iterable(map(_WORDS.unpack, blocks))
        doubles = map((2.0**-53).__mul__, map(operator.rshift, words, repeat(11)))
        # numpy passes a state, here the null pointer: `next` takes it for the default of a stream that has no end.
        word, double = partial(next, words), partial(next, doubles)
        self._bitgen = _Bitgen(None, _Next64(word), _Next32(word), _NextDouble(double), _Next64(word))
        self._key, self._children = key, 0
        self.lock = Lock()
        self.capsule = _new_capsule(ctypes.byref(self._bitgen), _CAPSULE, None)

    def spawn(self, n_children: int) -> list[CipherGenerator]:
        """Return bits of other streams, as `Generator.spawn` asks for; each call goes on where the last one stopped."""
        first, self._children = self._children, self._children + n_children
        numbers = range(first, self._children)
        return [CipherGenerator(derive(self._key, salt=b"spawned", info=b"%d" % number)) for number in numbers]

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("a stream of secret random numbers is never copied, written or sent")


def generator(key: bytes) -> Generator:
    """Return a numpy generator whose bits are the AES-256-CTR stream of a key.

    >>> generator(bytes(32)).integers(2**32) == generator(bytes(32)).integers(2**32)
    True
    """
    return Generator(CipherGenerator(key))  # type: ignore[arg-type]


def keystream(key: bytes) -> CipherContext:
    """Return the AES-256-CTR stream of a key, from counter 0: what it makes of zeros are the bits."""
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


def derive(secret: bytes, *, salt: bytes, info: bytes, size: int = KEY_SIZE) -> bytes:
    """Return a key by HKDF-SHA256; every use has its own `info`."""
    return HKDF(algorithm=SHA256(), length=size, salt=salt, info=info).derive(secret)
