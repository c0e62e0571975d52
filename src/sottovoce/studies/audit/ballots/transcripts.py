"""What each side of the real protocol sees beside the sum, compared with the ballots: every bit is a fair coin.

With x a canary's ballot, y = x xor p what the leader gets of it and p the pad that the helper gets:

    leader    y; the words w of the transfers, whose lowest bits would be p without their masks; the helper's share
    helper    p; the columns u of the transfers, which would be y without theirs

Each of these is taken as a guess of x, with all that the side knows taken off. Right guesses are Binomial(bits, 1/2)
if the masks are uniform, and both sides' words and pads are that but for a distinguisher of AES.

By the protocol the helper's answer, 2 share + noise, follows from the opened votes and from what the leader had before:
it is T - own noise - 2 own share + ballots. So all that it tells the leader is the sum, which the games are about.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.secagg.ballots.chunks import chunks_of
from sottovoce.secagg.ot.extension import CHECK_SIZE, WIDTH
from sottovoce.studies.audit.ballots.federation import CountSight
from sottovoce.threats.audit.finding import AuditFinding

_BITS = 20_000_000  # guesses of one kind; more hardly show more

Bits = NDArray[np.uint8]


@dataclass
class Transcripts:
    """Right guesses of ballots from single parts of what a side sees."""

    length: int
    coins: tuple[int, ...] = ()
    right: Counter[str] = field(default_factory=Counter)
    guesses: Counter[str] = field(default_factory=Counter)

    @property
    def wanting(self) -> bool:
        """Tell whether more rounds would show more."""
        return max(self.guesses.values(), default=0) < _BITS

    def take(self, sight: CountSight) -> None:
        """Take in what a round of the real protocol showed; an ideal count shows nothing."""
        clients = sorted(sight.cast)
        if not sight.wire or not clients or sorted(sight.masked) != clients:
            return
        ballots = _unpacked([sight.cast[client] for client in clients], self.length)
        masked = _unpacked([sight.masked[client] for client in clients], self.length)
        self._guess("leader's view, masked ballots", masked, ballots)
        self._guess("helper's view, pads", masked ^ ballots, ballots)
        answers = [reply[CHECK_SIZE:] for kind, _, reply in sight.wire if kind == "check"]
        sent = [payload[8:] for kind, payload, _ in sight.wire if kind == "transfer"]
        for chunk, words, columns in zip(chunks_of(len(clients), self.length, self.coins), answers, sent, strict=True):
            here = slice(chunk.start, chunk.stop)
            shape = chunk.rows, chunk.width  # coins are the last
            lowest = np.frombuffer(words, np.uint8).reshape(chunk.transfers, -1)[:, 0] & 1
            self._guess(
                "leader's view, transfers", lowest.reshape(shape)[: chunk.ballots] ^ masked[:, here], ballots[:, here]
            )
            told = np.frombuffer(columns, np.uint8)[WIDTH // 8 :]  # the first column; its first block is a mask
            column = np.unpackbits(told, count=chunk.transfers, bitorder="little").reshape(shape)[: chunk.ballots]
            pads = masked[:, here] ^ ballots[:, here]
            self._guess("helper's view, transfers", column ^ pads, ballots[:, here])
        share = next(reply for kind, _, reply in sight.wire if kind == "open")
        highest = np.frombuffer(share, np.uint8).reshape(self.length, -1)[:, -1] >> 7
        self._guess("leader's view, the helper's share", (highest ^ 1) ^ masked, ballots)

    def findings(self) -> list[AuditFinding]:
        """Test each kind of guess against a fair coin, two-sided."""
        from scipy.stats import binom

        found = []
        for name, guesses in self.guesses.items():
            right = self.right[name]
            tail = min(float(binom.cdf(right, guesses, 0.5)), float(binom.sf(right - 1, guesses, 0.5)))
            found.append(
                AuditFinding(
                    name,
                    right / guesses,
                    min(1.0, 2 * tail),
                    f"{name.replace(',', ':')} tell votes of single clients: {right} of {guesses} guesses are right",
                )
            )
        return found

    def _guess(self, name: str, guessed: NDArray[Any], ballots: Bits) -> None:
        self.right[name] += int(np.count_nonzero(guessed == ballots))
        self.guesses[name] += ballots.size


def _unpacked(packed: list[Bits], length: int) -> Bits:
    return np.unpackbits(np.stack(packed), axis=1, count=length, bitorder="little")
