"""Make 128 base transfers: the sender has two keys each time, the receiver gets the one of its choice.

The protocol is that of Masny and Rindal ("Endemic Oblivious Transfer", 2019) over a Diffie-Hellman group. For every
transfer the receiver, with choice c, sends two elements r_0, r_1: one random, the other such that it knows the
logarithm b of r_c * H(r_{1-c}) = g^b. The sender has one public value g^a and takes key j from (r_j * H(r_{1-j}))^a;
the receiver gets key c from (g^a)^b, and knows nothing about the other. What the receiver sends has the same
distribution whatever its choices are, so the sender learns nothing about them.
"""

from __future__ import annotations

from typing import Final

from sottovoce.core.errors import SecAggError
from sottovoce.secagg.ot import group
from sottovoce.secagg.primitives import Entropy, derive

__all__ = ["TRANSFERS", "BaseReceiver", "BaseSender"]

TRANSFERS: Final = 128


class BaseSender:
    """The side with two keys a transfer; used once."""

    def __init__(self, entropy: Entropy) -> None:
        self._secret = group.exponent(entropy)
        self._done = False

    def offer(self) -> bytes:
        """Return the public value g^a."""
        return group.pack(group.power(group.GENERATOR, self._secret))

    def keys(self, session: bytes, request: bytes) -> list[tuple[bytes, bytes]]:
        """Return both keys of every transfer, from what the receiver sent; the secret is forgotten.

        `session` is what the keys are bound to, the same on both sides and never used before.
        """
        if self._done:
            raise SecAggError("the base transfers of a session are made once; begin a new session")
        pairs = _read(request)
        self._done = True
        offer, keys = self.offer(), []
        for index, (zero, one) in enumerate(pairs):
            first = group.power(zero * _mask(session, index, 0, one) % group.PRIME, self._secret)
            second = group.power(one * _mask(session, index, 1, zero) % group.PRIME, self._secret)
            context = _context(session, index, offer, zero, one)
            keys.append((_key(first, context), _key(second, context)))
        self._secret = 0
        return keys


class BaseReceiver:
    """The side with a choice a transfer; used once."""

    def __init__(self, session: bytes, choices: list[int], entropy: Entropy) -> None:
        if len(choices) != TRANSFERS:
            raise SecAggError(f"there are {TRANSFERS} base transfers, got {len(choices)} choices")
        self._session = session
        self._choices = choices
        self._secrets = [group.exponent(entropy) for _ in choices]
        self._pairs: list[tuple[int, int]] = []
        for index, (choice, secret) in enumerate(zip(choices, self._secrets, strict=True)):
            other = group.hash_to_square(b"blind", entropy(48))
            known = group.power(group.GENERATOR, secret)  # g^2b: the squaring of `power`, as on the other side
            mine = known * pow(_mask(session, index, choice, other), -1, group.PRIME) % group.PRIME
            self._pairs.append((other, mine) if choice else (mine, other))

    def request(self) -> bytes:
        """Return the two elements of every transfer."""
        return b"".join(group.pack(zero) + group.pack(one) for zero, one in self._pairs)

    def keys(self, offer: bytes) -> list[bytes]:
        """Return the chosen key of every transfer, from the sender's public value; the secrets are forgotten."""
        if not self._secrets:
            raise SecAggError("the base transfers of a session are made once; begin a new session")
        value = group.unpack(offer)
        keys = []
        for index, (secret, (zero, one)) in enumerate(zip(self._secrets, self._pairs, strict=True)):
            context = _context(self._session, index, offer, zero, one)
            keys.append(_key(group.power(value, secret), context))
        self._secrets, self._choices = [], []
        return keys


def _read(request: bytes) -> list[tuple[int, int]]:
    size = group.ELEMENT
    if len(request) != 2 * TRANSFERS * size:
        raise SecAggError(f"{TRANSFERS} base transfers take {2 * TRANSFERS * size} bytes, got {len(request)}")
    parts = [group.unpack(request[place : place + size]) for place in range(0, len(request), size)]
    return list(zip(parts[::2], parts[1::2], strict=True))


def _mask(session: bytes, index: int, place: int, other: int) -> int:
    """Return H(r_{1-j}) of place j, for one transfer of one session."""
    return group.hash_to_square(b"mask", session, index.to_bytes(4, "little"), bytes([place]), group.pack(other))


def _context(session: bytes, index: int, offer: bytes, zero: int, one: int) -> bytes:
    return session + index.to_bytes(4, "little") + offer + group.pack(zero) + group.pack(one)


def _key(element: int, context: bytes) -> bytes:
    return derive(group.pack(element), salt=b"sottovoce base ot", info=context)
