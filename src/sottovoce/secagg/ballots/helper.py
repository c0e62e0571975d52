"""The helper of a count, as a state machine: it gets the seeds of the pads, and answers the leader.

    hello     base transfers of a session          keys      the leader's side of those of the second count
    roll      envelopes of a round; answers with those that count
    confirm   the leader counts the same
    transfer  choices of a chunk; answers with the point of its check, and with choices of its own: the pads' bits
    check     the check, and the point of the helper's; answers with its own check and w
    words     the leader's w
    compare   the leader's offer of a comparison of both counts; answers with its own
    prove     answers with the proof that it has counted the same
    open      the leader's proof; charges the round, and answers with its share and noise

Whatever is out of order, wrong or repeated is refused; what fails once transfers have begun ends the session. Counts
that differ end the run.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import SecAggError
from sottovoce.secagg.ballots.chunks import Chunk, chunks_of, compared, flat_bits, rows_needed, votes_of
from sottovoce.secagg.ballots.comparison import Comparison, CountsDifferError
from sottovoce.secagg.ballots.leader import (
    NONCE_SIZE,
    Toss,
    Transfers,
    context_of,
    hello_digest,
    keys_digest,
    new_difference,
    second_session,
    session_of,
    tossed,
)
from sottovoce.secagg.ballots.message import ENVELOPE, HelperEnvelope, Pad, open_seed, pad_of, unpack_envelope
from sottovoce.secagg.ballots.terms import HASH, BallotTerms, accepted_digest
from sottovoce.secagg.ot.base import TRANSFERS, BaseReceiver, BaseSender
from sottovoce.secagg.ot.extension import CHECK_SIZE, ExtensionReceiver, ExtensionSender, word_type
from sottovoce.secagg.ot.group import ELEMENT
from sottovoce.secagg.primitives import SIGNATURE, Entropy, exchange_key, sign, verify, verifying_key

_ENTRY: Final = 8 + HASH + ENVELOPE
_STEPS: Final = ("hello", "keys", "roll", "confirm", "transfer", "check", "words", "compare", "prove", "open")
_COUNTED: Final = ("transfer", "check", "words", "compare", "prove", "open")  # what is expected once rows are reserved

Noise = Callable[[int], NDArray[np.int64]]


class HelperLedger(Protocol):
    """The helper's own ledger."""

    def check_round(self, round_: int) -> None:
        """Raise if a round cannot be counted any more."""
        ...

    def admits(self, client: int, round_: int) -> bool:
        """Tell whether a client may be counted once more."""
        ...

    def reserve(self, round_: int, clients: list[int], *, counter: int, session: str) -> None:
        """Write down whom a round counts and how far its transfers reach; on return it is on disk."""
        ...

    def compare(self, round_: int, own: bytes, expected: bytes) -> None:
        """Write down both proofs of a comparison before the own one leaves; on return they are on disk."""
        ...

    def differ(self, round_: int) -> None:
        """Write down that the counts of a round differ, so that the run is over; on return it is on disk."""
        ...

    def charge(self, round_: int) -> None:
        """Charge a round; on return it is on disk."""
        ...


@dataclass
class _Count:
    """What the helper has of a running round."""

    share: NDArray[Any]
    round: int = 0
    accepted: list[tuple[int, bytes]] = field(default_factory=list)
    pads: dict[int, Pad] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)
    bits: NDArray[np.uint8] | None = None  # of the pads, in the first of the chunks
    products: NDArray[Any] | None = None  # its shares of the first count, in the first of the chunks
    coins: NDArray[np.uint8] | None = None  # its bits of the coins, packed
    difference: hashlib._Hash = field(default_factory=new_difference)
    proofs: tuple[bytes, bytes] = (b"", b"")  # its own, and the leader's


class Helper:
    """The helper's side of all rounds of a run.

    Guarantee: no client is counted twice in a round or more often than the account admits; the account knows of a round
    before its first transfer, and is charged before the helper's share, with its noise, is answered. Nothing is
    answered for a leader that does not prove that both counts are the same.
    """

    def __init__(
        self,
        terms: BallotTerms,
        signing_key: bytes,
        exchange: bytes,
        keys: Mapping[int, bytes],
        *,
        account: HelperLedger,
        noise: Noise,
        entropy: Entropy,
        toss: Toss | None = None,
    ) -> None:
        if (verifying_key(signing_key), exchange_key(exchange)) != (terms.helper_key, terms.helper_exchange):
            raise SecAggError("the helper's keys are not those of the count's terms")
        self.terms = terms
        self._signing_key, self._exchange, self._keys = signing_key, exchange, keys
        self._account, self._noise, self._entropy, self._toss = account, noise, entropy, toss
        self._transfers: Transfers | None = None
        self._session = b""
        self._base: tuple[ExtensionSender, BaseSender] | None = None  # between hello and keys
        self._over: CountsDifferError | None = None
        self._seen: set[bytes] = set()  # hashes of all seeds of this run
        self._expects: tuple[str, ...] = ("hello",)
        self._count = self._nothing()

    def answer(self, kind: str, payload: bytes) -> bytes:
        """Return the answer to one request of the leader, or raise why it is refused."""
        if kind not in _STEPS:
            raise SecAggError(f"the helper knows no request {kind!r}")
        if self._over is not None:
            raise self._over
        if kind != "hello" and kind not in self._expects:  # a leader that was restarted may always begin anew
            self._end_session(kind)
            raise SecAggError(f"{kind} is out of order: the helper expects {' or '.join(self._expects)}")
        try:
            return {
                "hello": self._hello,
                "keys": self._keys_of_leader,
                "roll": self._roll,
                "confirm": self._confirm,
                "transfer": self._transfer,
                "check": self._check,
                "words": self._words,
                "compare": self._compare,
                "prove": self._prove,
                "open": self._open,
            }[kind](payload)
        except BaseException:
            self._end_session(kind)
            raise

    def _hello(self, payload: bytes) -> bytes:
        hello, signature = payload[:-SIGNATURE], payload[-SIGNATURE:]
        if len(hello) != HASH + NONCE_SIZE + ELEMENT or hello[:HASH] != self.terms.digest():
            raise SecAggError("the leader has other terms than the helper: another configuration, keys or run")
        if not verify(self.terms.leader_key, signature, b"hello" + hello):
            raise SecAggError("the leader's greeting is not signed by its key; no session begins")
        nonce = self._entropy(NONCE_SIZE)
        session = session_of(hello, nonce)
        secret = [byte & 1 for byte in self._entropy(TRANSFERS)]
        base, second = BaseReceiver(session, secret, self._entropy), BaseSender(self._entropy)
        body = nonce + second.offer() + base.request()
        keys = base.keys(hello[HASH + NONCE_SIZE :])
        self._transfers, self._session = None, session
        self._base = ExtensionSender(secret, keys, self._entropy, self.terms.bits), second
        self._forget()
        self._expects = ("keys",)
        return body + sign(self._signing_key, hello_digest(hello, body))

    def _keys_of_leader(self, payload: bytes) -> bytes:
        request, signature = payload[:-SIGNATURE], payload[-SIGNATURE:]
        second = second_session(self._session)
        if self._base is None or not verify(self.terms.leader_key, signature, keys_digest(second, request)):
            raise SecAggError("the leader's request for keys is not signed by its key; no session begins")
        (sender, base), self._base = self._base, None
        receiver = ExtensionReceiver(base.keys(second, request), self._entropy, self.terms.bits)
        self._transfers = Transfers(sender, receiver)
        self._expects = ("roll",)
        return b""

    def _roll(self, payload: bytes) -> bytes:
        self._forget()
        head, listed = payload[: 8 + HASH], payload[8 + HASH :]
        if len(head) != 8 + HASH or len(listed) % _ENTRY:
            raise SecAggError(f"the roll of a round has {_ENTRY} bytes a ballot, got {len(payload)}")
        round_, downlink = int.from_bytes(head[:8], "little"), head[8:]
        self.terms.check_round(round_)
        self._account.check_round(round_)
        self._count.round = round_
        for place in range(0, len(listed), _ENTRY):
            entry = listed[place : place + _ENTRY]
            client = int.from_bytes(entry[:8], "little")
            envelope = unpack_envelope(client, entry[8 : 8 + HASH], entry[8 + HASH :])
            if client in self._count.pads or not self._account.admits(client, round_):
                continue
            try:
                self._count.pads[client] = self._opened(envelope, round_, downlink)
            except SecAggError:
                continue
            self._count.accepted.append((client, envelope.commitment))
        self._count.accepted.sort()
        self._expects = ("roll", "confirm")
        body = b"".join(client.to_bytes(8, "little") for client, _ in self._count.accepted)
        return body + sign(self._signing_key, self._digest())

    def _confirm(self, payload: bytes) -> bytes:
        if not verify(self.terms.leader_key, payload, self._digest()):
            raise SecAggError("the leader's signature of the accepted ballots is wrong; the round is over")
        self.terms.check_number(len(self._count.accepted))
        self._count.chunks = chunks_of(len(self._count.accepted), self.terms.length, self.terms.coins)
        self._count.coins = tossed(self.terms, self._toss, self._count.round)
        reach = self._running().sender.counter + rows_needed(self._count.chunks)  # in either direction
        clients = [client for client, _ in self._count.accepted]
        self._account.reserve(self._count.round, clients, counter=reach, session=self._session.hex())
        self._expects = ("transfer",) if self._count.chunks else ("compare",)
        return b""

    def _transfer(self, payload: bytes) -> bytes:
        (sender, receiver), chunk = self._running(), self._count.chunks[0]
        counter = int.from_bytes(payload[:8], "little")
        if counter != sender.counter:
            raise SecAggError(f"transfers from {counter} on are refused: {sender.counter} are used up")
        size = chunk.bytes.stop - chunk.bytes.start
        pads = [self._count.pads[client].take(size) for client in self._order]
        bits = flat_bits(chunk, [*pads, *self._coins[:, chunk.bytes]])
        point = sender.challenge(payload[8:], chunk.transfers)
        sent = receiver.choose(np.packbits(bits, bitorder="little"), chunk.transfers)
        self._count.bits = bits
        self._expects = ("check",)
        return point + receiver.counter.to_bytes(8, "little") + sent

    def _check(self, payload: bytes) -> bytes:
        (sender, receiver), chunk, bits = self._running(), self._count.chunks[0], self._count.bits
        if bits is None:
            raise SecAggError("no chunk of transfers has begun")
        kind = word_type(self.terms.bits)
        words, shares = sender.answer(payload[:CHECK_SIZE], bits)
        self._count.products = shares
        products = votes_of(chunk, shares, kind)
        self._count.share[chunk.start : chunk.stop] = votes_of(chunk, bits, kind) - products - products  # p - 2 b
        self._expects = ("words",)
        return receiver.check(payload[CHECK_SIZE:]) + words

    def _words(self, payload: bytes) -> bytes:
        chunk, products, kind = self._count.chunks.pop(0), self._count.products, word_type(self.terms.bits)
        if products is None:
            raise SecAggError("no chunk of transfers has begun")
        second = self._running().receiver.shares(payload)
        self._count.difference.update(compared(chunk, second - products, kind))
        self._count.bits = self._count.products = None
        self._expects = ("transfer",) if self._count.chunks else ("compare",)
        return b""

    def _compare(self, payload: bytes) -> bytes:
        context = context_of(self._session, self._digest())
        comparison = Comparison("helper", self._count.difference.digest(), context, self._entropy)
        self._count.proofs = comparison.proofs(payload)
        self._expects = ("prove",)
        return comparison.offer

    def _prove(self, payload: bytes) -> bytes:
        if payload:
            raise SecAggError("a request for a proof has no payload")
        self._account.compare(self._count.round, *self._count.proofs)  # from here on the leader knows whether it holds
        self._expects = ("open",)
        return self._count.proofs[0]

    def _open(self, payload: bytes) -> bytes:
        if not hmac.compare_digest(payload, self._count.proofs[1]):
            self._over = CountsDifferError(self._count.round)
            self._account.differ(self._count.round)
            raise self._over
        kind = word_type(self.terms.bits)
        words = self._count.share + self._noise(self._count.round).astype(kind)
        self._account.charge(self._count.round)  # before the answer: from then on the leader can open the votes
        self._forget()
        self._expects = ("roll",)
        return bytes(words.tobytes())

    def _opened(self, envelope: HelperEnvelope, round_: int, downlink: bytes) -> Pad:
        """Return the pad of a ballot, or refuse it: not registered, not signed, not for this place, or seen before."""
        registered = self._keys.get(envelope.client)
        if registered is None:
            raise SecAggError(f"client {envelope.client} is not registered")
        envelope.check(self.terms, round_, downlink, registered)
        context = self.terms.context(round_, envelope.client, downlink)
        seed = open_seed(self.terms, envelope, context, self._exchange)
        mark = hashlib.sha256(b"sottovoce ballot seed" + seed).digest()
        if mark in self._seen:
            raise SecAggError(f"client {envelope.client}: the seed was used before")
        self._seen.add(mark)
        return pad_of(self.terms, context, seed)

    @property
    def _order(self) -> list[int]:
        return [client for client, _ in self._count.accepted]

    @property
    def _coins(self) -> NDArray[np.uint8]:
        if self._count.coins is None:
            raise SecAggError("no coins were tossed for this round")
        return self._count.coins

    def _digest(self) -> bytes:
        return accepted_digest(self.terms, self._count.round, self._count.accepted)

    def _running(self) -> Transfers:
        if self._transfers is None:
            raise SecAggError("no session of transfers has begun")
        return self._transfers

    def _end_session(self, kind: str) -> None:
        """Go on after a request that failed: with new transfers if those of this round had begun."""
        self._forget()
        begun = any(step in self._expects for step in _COUNTED)
        if begun or self._transfers is None or kind == "hello":
            self._transfers = self._base = None
            self._expects = ("hello",)
        else:
            self._expects = ("roll",)

    def _forget(self) -> None:
        self._count.share.fill(0)
        self._count.coins = None
        self._count = self._nothing()

    def _nothing(self) -> _Count:
        return _Count(np.zeros(self.terms.length, word_type(self.terms.bits)))
