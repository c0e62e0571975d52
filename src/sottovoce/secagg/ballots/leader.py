"""The leader of a count, as a state machine: it gets the masked ballots, and talks to the helper.

`answer` is the helper's side of a request, wherever it runs: `(kind, payload) -> reply`, or SecAggError.

Every product of a masked bit and a bit of a pad is shared twice, by transfers in both directions. A sender can add
anything to a product that the receiver chooses, but in the other direction it is the receiver itself and can choose
bits alone. So both sides compare the two counts (`comparison`) before any noise is drawn and anything is opened.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import SecAggError
from sottovoce.secagg.ballots.chunks import Chunk, chunks_of, compared, flat_bits, votes_of
from sottovoce.secagg.ballots.comparison import Comparison, CountsDifferError
from sottovoce.secagg.ballots.message import HelperEnvelope, read
from sottovoce.secagg.ballots.terms import BallotTerms, accepted_digest
from sottovoce.secagg.ot.base import TRANSFERS, BaseReceiver, BaseSender
from sottovoce.secagg.ot.extension import CHECK_SIZE, POINT_SIZE, ExtensionReceiver, ExtensionSender, word_type
from sottovoce.secagg.ot.group import ELEMENT
from sottovoce.secagg.primitives import SIGNATURE, Entropy, sign, verify, verifying_key

NONCE_SIZE: Final = 16

Answer = Callable[[str, bytes], bytes]
Toss = Callable[[int], NDArray[np.uint8]]  # of a round: a side's bits of all coins, packed


class Record(Protocol):
    """What a leader keeps of comparisons, so that neither side can call a failed one a lost connection."""

    def begin(self, round_: int, own: bytes, expected: bytes) -> None:
        """Write down both proofs of a comparison before the helper's is asked for; on return they are on disk."""
        ...

    def differ(self, round_: int) -> None:
        """Write down that the counts of a round differ, so that the run is over; on return it is on disk."""
        ...


class Transfers(NamedTuple):
    """One side of the transfers of a session: a sender in one direction, a receiver in the other."""

    sender: ExtensionSender
    receiver: ExtensionReceiver


class Leader:
    """The leader's side of all rounds of a run.

    Guarantee: each registered client that was asked is counted with one ballot of +1 and -1 or not at all, whatever it
    sends, or nothing is opened. After any error in a round the transfers of the session are not used again: the next
    round begins with new ones. After counts that differ there is no next round.
    """

    def __init__(
        self,
        terms: BallotTerms,
        signing_key: bytes,
        keys: Mapping[int, bytes],
        answer: Answer,
        entropy: Entropy,
        record: Record | None = None,
        toss: Toss | None = None,
    ) -> None:
        if verifying_key(signing_key) != terms.leader_key:
            raise SecAggError("the leader's signing key is not the one of the count's terms")
        self.terms = terms
        self._signing_key = signing_key
        self._keys = keys
        self._answer = answer
        self._entropy = entropy
        self._record = record
        self._toss = toss
        self._transfers: Transfers | None = None
        self._session = b""
        self._round = 0
        self._downlink = b""
        self._asked: frozenset[int] = frozenset()
        self._masked: dict[int, NDArray[np.uint8]] = {}
        self._envelopes: dict[int, HelperEnvelope] = {}
        self._accepted = b""  # the digest that both signed
        self._share: NDArray[Any] | None = None
        self._difference = new_difference()
        self._proof = b""  # that both counts are the same; the helper opens nothing without it
        self._over: CountsDifferError | None = None

    def begin(self, round_: int, asked: Collection[int], downlink: bytes) -> None:
        """Begin a round with the clients that are asked; what is left of another round is forgotten."""
        if self._over is not None:
            raise self._over
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
        if self._transfers is None:
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
        self._masked, self._accepted = {client: self._masked[client] for client in accepted}, digest
        return accepted

    def multiply(self) -> None:
        """Make the transfers of all ballots, in both directions; only sums over the clients are kept."""
        transfers = self._transfers
        if transfers is None:
            raise SecAggError("no session of transfers has begun")
        kind, ballots = word_type(self.terms.bits), list(self._masked.values())
        rows = ballots + list(tossed(self.terms, self._toss, self._round))
        share = np.zeros(self.terms.length, kind)
        try:
            for chunk in chunks_of(len(ballots), self.terms.length, self.terms.coins):
                share[chunk.start : chunk.stop] = self._chunk(transfers, chunk, rows, kind)
        except BaseException:
            self._transfers = None  # rows may be used up on one side alone: never go on with them
            raise
        self._share = share

    def compare(self) -> None:
        """Compare both counts with the helper; raise if they differ, and then for ever.

        The helper shows its proof first, so that it learns of a failure only when this side has written it down.
        """
        if self._share is None:
            raise SecAggError("there is nothing to compare: no ballots were multiplied")
        context = context_of(self._session, self._accepted)
        comparison = Comparison("leader", self._difference.digest(), context, self._entropy)
        own, expected = comparison.proofs(self._ask("compare", comparison.offer))
        if self._record is not None:
            self._record.begin(self._round, own, expected)
        if not hmac.compare_digest(self._ask("prove", b""), expected):
            self._over = CountsDifferError(self._round)
            self.forsake()
            if self._record is not None:
                self._record.differ(self._round)
            raise self._over
        self._proof = own

    def open(self, noise: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the votes with both noises; call it when the leader's own charge is on disk, and never before."""
        if self._share is None or not self._proof:
            raise SecAggError("there is nothing to open: no ballots were multiplied, or their counts not compared")
        kind, ballots = word_type(self.terms.bits), len(self._masked)
        other = self._ask("open", self._proof)
        if len(other) != self.terms.length * kind().itemsize:
            raise SecAggError(f"the helper's share of {self.terms.length} votes has {len(other)} bytes; refused")
        words = self._share + np.frombuffer(other, kind) + noise.astype(kind) - kind(ballots)
        self._forget()
        signed = words.view(np.int16 if self.terms.bits == 16 else np.int32)
        return np.asarray(signed, np.int64)

    def forsake(self) -> None:
        """Give the session of transfers up, as after a helper that was restarted."""
        self._transfers = None
        self._forget()

    def _begin_session(self) -> None:
        base = BaseSender(self._entropy)
        hello = self.terms.digest() + self._entropy(NONCE_SIZE) + base.offer()
        reply = self._ask("hello", hello + sign(self._signing_key, b"hello" + hello))
        body, signature = reply[:-SIGNATURE], reply[-SIGNATURE:]
        if not verify(self.terms.helper_key, signature, hello_digest(hello, body)):
            raise SecAggError("the helper's greeting is not signed by its key; no session begins")
        nonce, offer, request = body[:NONCE_SIZE], body[NONCE_SIZE:][:ELEMENT], body[NONCE_SIZE + ELEMENT :]
        session = session_of(hello, nonce)
        receiver = ExtensionReceiver(base.keys(session, request), self._entropy, self.terms.bits)
        second, secret = second_session(session), [byte & 1 for byte in self._entropy(TRANSFERS)]
        other = BaseReceiver(second, secret, self._entropy)
        asked = other.request()
        self._ask("keys", asked + sign(self._signing_key, keys_digest(second, asked)))
        sender = ExtensionSender(secret, other.keys(offer), self._entropy, self.terms.bits)
        self._transfers, self._session = Transfers(sender, receiver), session

    def _chunk(self, transfers: Transfers, chunk: Chunk, rows: list[Any], kind: Any) -> NDArray[Any]:
        sender, receiver = transfers
        bits = flat_bits(chunk, [row[chunk.bytes] for row in rows])
        sent = receiver.choose(np.packbits(bits, bitorder="little"), chunk.transfers)
        reply = self._ask("transfer", receiver.counter.to_bytes(8, "little") + sent)
        point, counter, theirs = reply[:POINT_SIZE], reply[POINT_SIZE:][:8], reply[POINT_SIZE + 8 :]
        if int.from_bytes(counter, "little") != sender.counter:
            raise SecAggError(f"the helper's transfers are refused: {sender.counter} are used up, and it has others")
        asked = receiver.check(point) + sender.challenge(theirs, chunk.transfers)
        reply = self._ask("check", asked)
        words, second = sender.answer(reply[:CHECK_SIZE], bits)
        first = receiver.shares(reply[CHECK_SIZE:])
        self._ask("words", words)
        self._difference.update(compared(chunk, first - second, kind))
        products = votes_of(chunk, first, kind)
        return np.asarray(votes_of(chunk, bits, kind) - products - products)  # y - 2 a

    def _ask(self, kind: str, payload: bytes) -> bytes:
        try:
            return self._answer(kind, payload)
        except SecAggError:
            if kind not in ("roll", "confirm"):
                self._transfers = None
            raise

    def _forget(self) -> None:
        if self._share is not None:
            self._share.fill(0)
        self._masked, self._envelopes, self._share = {}, {}, None
        self._accepted = self._proof = b""
        self._difference = new_difference()


def tossed(terms: BallotTerms, toss: Toss | None, round_: int) -> NDArray[np.uint8]:
    """Return a side's bits of the coins of a round; without coins there are none."""
    size, rows = (terms.length + 7) // 8, sum(terms.coins)
    bits = np.zeros((0, size), np.uint8) if toss is None else toss(round_)
    if bits.shape != (rows, size):
        raise SecAggError(f"a round has {rows} coins of {size} bytes, and {bits.shape} were tossed")
    return bits


def hello_digest(hello: bytes, body: bytes) -> bytes:
    """Return what the helper signs when a session begins."""
    return hashlib.sha256(b"sottovoce ballot hello" + hello + body).digest()


def session_of(hello: bytes, nonce: bytes) -> bytes:
    """Return what the transfers of a session are bound to: both aggregators have chosen a part of it."""
    return hashlib.sha256(b"sottovoce ballot transfers" + hello + nonce).digest()


def second_session(session: bytes) -> bytes:
    """Return what the transfers of the second count are bound to, in which the helper receives."""
    return hashlib.sha256(b"sottovoce ballot second count" + session).digest()


def keys_digest(second: bytes, request: bytes) -> bytes:
    """Return what the leader signs of its request for the keys of the second count."""
    return hashlib.sha256(b"sottovoce ballot keys" + second + request).digest()


def context_of(session: bytes, accepted: bytes) -> bytes:
    """Return what a comparison is bound to: the transfers, and by the accepted set terms, round and ballots."""
    return b"sottovoce ballot comparison" + session + accepted


def new_difference() -> hashlib._Hash:
    """Return the digest, before the first chunk, of the difference of a side's shares of both counts."""
    return hashlib.sha256(b"sottovoce ballot difference")


def _entry(envelope: HelperEnvelope) -> bytes:
    packed = envelope.client.to_bytes(8, "little") + envelope.commitment
    return packed + envelope.ephemeral + envelope.sealed + envelope.signature
