"""Make 128 base transfers: the sender has two keys each time, the receiver gets the one of its choice.

The protocol is that of Masny and Rindal ("Endemic Oblivious Transfer", 2019) over a Diffie-Hellman group, written as
sums. For every transfer the receiver, with choice c, sends two elements r_0, r_1: one random, the other such that it
knows the logarithm b of r_c + H(r_{1-c}) = b G. The sender has one public value a G and takes key j from
a (r_j + H(r_{1-j})); the receiver gets key c from b (a G), and knows nothing about the other. What the receiver sends
has the same distribution whatever its choices are, so the sender learns nothing about them.
"""

from __future__ import annotations

from typing import Final

from sottovoce.core.errors import SecAggError
from sottovoce.secagg.ot import group
from sottovoce.secagg.primitives import Entropy, derive

TRANSFERS: Final = 128


class BaseSender:
    """The side with two keys a transfer; used once."""

    def __init__(self, entropy: Entropy) -> None:
        self._secret = group.scalar(entropy)
        self._done = False

    def offer(self) -> bytes:
        """Return the public value a G."""
        return group.public(self._secret)

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
            first = group.times(self._secret, group.add(zero, _mask(session, index, 0, one)))
            second = group.times(self._secret, group.add(one, _mask(session, index, 1, zero)))
            context = _context(session, index, offer, zero, one)
            keys.append((_key(first, context), _key(second, context)))
        self._secret = b""
        return keys


class BaseReceiver:
    """The side with a choice a transfer; used once."""

    def __init__(self, session: bytes, choices: list[int], entropy: Entropy) -> None:
        if len(choices) != TRANSFERS:
            raise SecAggError(f"there are {TRANSFERS} base transfers, got {len(choices)} choices")
        self._session = session
        self._choices = choices
        self._secrets = [group.scalar(entropy) for _ in choices]
        self._pairs: list[tuple[bytes, bytes]] = []
        for index, (choice, secret) in enumerate(zip(choices, self._secrets, strict=True)):
            other = group.hash_to_element(b"blind", entropy(48))
            mine = group.subtract(group.public(secret), _mask(session, index, choice, other))
            self._pairs.append((other, mine) if choice else (mine, other))

    def request(self) -> bytes:
        """Return the two elements of every transfer."""
        return b"".join(zero + one for zero, one in self._pairs)

    def keys(self, offer: bytes) -> list[bytes]:
        """Return the chosen key of every transfer, from the sender's public value; the secrets are forgotten."""
        if not self._secrets:
            raise SecAggError("the base transfers of a session are made once; begin a new session")
        keys = []
        for index, (secret, (zero, one)) in enumerate(zip(self._secrets, self._pairs, strict=True)):
            context = _context(self._session, index, offer, zero, one)
            keys.append(_key(group.times(secret, offer), context))
        self._secrets, self._choices = [], []
        return keys


def _read(request: bytes) -> list[tuple[bytes, bytes]]:
    size = group.ELEMENT
    if len(request) != 2 * TRANSFERS * size:
        raise SecAggError(f"{TRANSFERS} base transfers take {2 * TRANSFERS * size} bytes, got {len(request)}")
    parts = [request[place : place + size] for place in range(0, len(request), size)]
    for part in parts:
        group.check(part)
    return list(zip(parts[::2], parts[1::2], strict=True))


def _mask(session: bytes, index: int, place: int, other: bytes) -> bytes:
    """Return H(r_{1-j}) of place j, for one transfer of one session."""
    return group.hash_to_element(b"mask", session, index.to_bytes(4, "little"), bytes([place]), other)


def _context(session: bytes, index: int, offer: bytes, zero: bytes, one: bytes) -> bytes:
    return session + index.to_bytes(4, "little") + offer + zero + one


def _key(element: bytes, context: bytes) -> bytes:
    return derive(element, salt=b"sottovoce base ot", info=context)
