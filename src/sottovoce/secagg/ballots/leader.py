"""The leader of a count, as a state machine: it gets the masked ballots, and talks to the helper.

`answer` is the helper's side of a request, wherever it runs: `(kind, payload) -> reply`, or SecAggError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import SecAggError
from sottovoce.secagg.ballots.chunks import Chunk, chunks_of, flat_bits
from sottovoce.secagg.ballots.message import Envelope, read
from sottovoce.secagg.ballots.terms import BallotTerms, accepted_digest
from sottovoce.secagg.ot.base import BaseSender
from sottovoce.secagg.ot.extension import ExtensionReceiver, word_type
from sottovoce.secagg.primitives import SIGNATURE, Entropy, sign, verify, verifying_key

__all__ = ["NONCE_SIZE", "Answer", "Leader", "hello_digest", "session_of"]

NONCE_SIZE: Final = 16

Answer = Callable[[str, bytes], bytes]


class Leader:
    """The leader's side of all rounds of a run.

    Guarantee: each registered client that was asked is counted with one ballot of +1 and -1 or not at all, whatever it
    sends, if the helper follows the protocol. After any error in a round the transfers of the session are not used
    again: the next round begins with new ones.
    """

    def __init__(
        self, terms: BallotTerms, signing_key: bytes, keys: Mapping[int, bytes], answer: Answer, entropy: Entropy
    ) -> None:
        if verifying_key(signing_key) != terms.leader_key:
            raise SecAggError("the leader's signing key is not the one of the count's terms")
        self.terms = terms
        self._signing_key = signing_key
        self._keys = keys
        self._answer = answer
        self._entropy = entropy
        self._extension: ExtensionReceiver | None = None
        self._round = 0
        self._downlink = b""
        self._asked: frozenset[int] = frozenset()
        self._masked: dict[int, NDArray[np.uint8]] = {}
        self._envelopes: dict[int, Envelope] = {}
        self._share: NDArray[Any] | None = None

    def begin(self, round_: int, asked: Collection[int], downlink: bytes) -> None:
        """Begin a round with the clients that are asked; what is left of another round is forgotten."""
        self.terms.check_round(round_)
        self._forget()
        self._round, self._asked, self._downlink = round_, frozenset(asked), downlink

    def accept(self, client: int, payload: bytes) -> None:
        """Take a client's message, or refuse it and stay as before."""
        if client not in self._asked:
            raise SecAggError(f"client {client} was not asked in round {self._round}")
        if client in self._envelopes:
            raise SecAggError(f"client {client} has cast a ballot in round {self._round} already")
        masked, envelope = read(self.terms, client, payload)
        try:
            registered = self._keys[client]
        except KeyError:
            raise SecAggError(f"client {client} is not registered") from None
        envelope.check(self.terms, self._round, self._downlink, registered)
        self._envelopes[client] = envelope
        self._masked[client] = np.frombuffer(masked, np.uint8)

    def agree(self) -> list[int]:
        """Agree with the helper on the ballots that count, and return their clients; raise if they are too few."""
        ordered = sorted(self._envelopes)
        listed = b"".join(_entry(self._envelopes[client]) for client in ordered)
        if self._extension is None:
            self._begin_session()
        reply = self._ask("roll", self._round.to_bytes(8, "little") + self._downlink + listed)
        body, signature = reply[:-SIGNATURE], reply[-SIGNATURE:]
        accepted = [int.from_bytes(body[place : place + 8], "little") for place in range(0, len(body), 8)]
        if len(body) % 8 or not set(accepted) <= set(ordered) or accepted != sorted(set(accepted)):
            raise SecAggError("the helper accepted ballots that it was not sent; the round is over")
        pairs = [(client, self._envelopes[client].commitment) for client in accepted]
        digest = accepted_digest(self.terms, self._round, pairs)
        if not verify(self.terms.helper_key, signature, digest):
            raise SecAggError("the helper's signature of the accepted ballots is wrong; the round is over")
        self.terms.check_number(len(accepted))
        self._ask("confirm", sign(self._signing_key, digest))
        self._masked = {client: self._masked[client] for client in accepted}
        return accepted

    def multiply(self) -> None:
        """Make the transfers of all ballots; only sums over the clients are kept."""
        extension = self._extension
        if extension is None:
            raise SecAggError("no session of transfers has begun")
        kind, ballots = word_type(self.terms.bits), list(self._masked.values())
        share = np.zeros(self.terms.length, kind)
        try:
            for chunk in chunks_of(len(ballots), self.terms.length):
                share[chunk.start : chunk.stop] = self._chunk(extension, chunk, ballots, kind)
        except BaseException:
            self._extension = None  # rows may be used up on one side alone: never go on with them
            raise
        self._share = share

    def open(self, noise: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the votes with both noises; call it when the leader's own charge is on disk, and never before."""
        if self._share is None:
            raise SecAggError("there is nothing to open: no ballots were multiplied")
        kind, ballots = word_type(self.terms.bits), len(self._masked)
        other = self._ask("open", b"")
        if len(other) != self.terms.length * kind().itemsize:
            raise SecAggError(f"the helper's share of {self.terms.length} votes has {len(other)} bytes; refused")
        words = self._share + self._share + np.frombuffer(other, kind) + noise.astype(kind) - kind(ballots)
        self._forget()
        signed = words.view(np.int16 if self.terms.bits == 16 else np.int32)
        return np.asarray(signed, np.int64)

    def forsake(self) -> None:
        """Give the session of transfers up, as after a helper that was restarted."""
        self._extension = None
        self._forget()

    def _begin_session(self) -> None:
        base = BaseSender(self._entropy)
        hello = self.terms.digest() + self._entropy(NONCE_SIZE) + base.offer()
        reply = self._ask("hello", hello + sign(self._signing_key, b"hello" + hello))
        body, signature = reply[:-SIGNATURE], reply[-SIGNATURE:]
        if not verify(self.terms.helper_key, signature, hello_digest(hello, body)):
            raise SecAggError("the helper's greeting is not signed by its key; no session begins")
        keys = base.keys(session_of(hello, body[:NONCE_SIZE]), body[NONCE_SIZE:])
        self._extension = ExtensionReceiver(keys, self._entropy, self.terms.bits)

    def _chunk(self, extension: ExtensionReceiver, chunk: Chunk, ballots: list[Any], kind: Any) -> NDArray[Any]:
        bits = flat_bits(chunk, [ballot[chunk.bytes] for ballot in ballots])
        sent = extension.choose(np.packbits(bits, bitorder="little"), chunk.transfers)
        point = self._ask("transfer", extension.counter.to_bytes(8, "little") + sent)
        products = extension.shares(self._ask("check", extension.check(point)))
        own = bits.astype(kind) - products - products  # y - 2 a
        return np.asarray(own.reshape(chunk.ballots, chunk.width).sum(axis=0, dtype=kind))

    def _ask(self, kind: str, payload: bytes) -> bytes:
        try:
            return self._answer(kind, payload)
        except SecAggError:
            if kind not in ("roll", "confirm"):
                self._extension = None
            raise

    def _forget(self) -> None:
        if self._share is not None:
            self._share.fill(0)
        self._masked, self._envelopes, self._share = {}, {}, None


def hello_digest(hello: bytes, body: bytes) -> bytes:
    """Return what the helper signs when a session begins."""
    return hashlib.sha256(b"sottovoce ballot hello" + hello + body).digest()


def session_of(hello: bytes, nonce: bytes) -> bytes:
    """Return what the transfers of a session are bound to: both aggregators have chosen a part of it."""
    return hashlib.sha256(b"sottovoce ballot transfers" + hello + nonce).digest()


def _entry(envelope: Envelope) -> bytes:
    packed = envelope.client.to_bytes(8, "little") + envelope.commitment
    return packed + envelope.ephemeral + envelope.sealed + envelope.signature
