"""The comparison of two counts: a test that tells both aggregators whether they hold the same, and nothing else.

Each side has the difference of its shares of the two counts. If both counts are of the same bits the differences are
the same. A hash of one would be no secret: whoever added errors on k votes knows the difference up to 2^k cases, and
would try them all. So the digest is the password of CPace, a password-authenticated key exchange (Abdalla, Haase and
Hesse, 2021), over `secagg.ot.group`:

    leader                                                helper
    G = H(digest, context), a random                      G = H(digest, context), b random
    a G                                   -->
                                          <--             b G
    key = KDF(a b G, context, both)                       the same, if both digests are
    asks for the helper's proof           -->
    differs: the run is over              <--             MAC(key, "helper")
    MAC(key, "leader")                    -->             differs: the run is over

Guarantee: a side learns one bit, whether the *one* digest on which its own message was built is the other's. What it
has seen before its proof is checked is independent of the other's digest, under the Diffie-Hellman assumption.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, Literal

from sottovoce.core.errors import PrivacyError, SecAggError
from sottovoce.secagg.ot import group
from sottovoce.secagg.primitives import Entropy, derive

OFFER: Final = group.ELEMENT
PROOF: Final = 32

Side = Literal["leader", "helper"]


class CountsDifferError(PrivacyError):
    """Two counts of the same ballots that differ: an aggregator has left the protocol, or a machine is broken."""

    def __init__(self, round_: int, why: str = "the two counts of its ballots differ") -> None:
        super().__init__(
            f"round {round_}: {why}, so an aggregator left the protocol or a machine is faulty; nothing of the round "
            "was opened and the run is over: find out which, and begin another run"
        )
        self.round = round_


class Comparison:
    """One side of a comparison, for one digest; used once."""

    def __init__(self, side: Side, digest: bytes, context: bytes, entropy: Entropy) -> None:
        self._side, self._context = side, context
        self._secret = group.scalar(entropy)
        self.offer = group.times(self._secret, group.hash_to_element(b"compare", context, digest))

    def proofs(self, other: bytes) -> tuple[bytes, bytes]:
        """Return this side's proof, and the one that the other must show, from its offer; the secret is forgotten."""
        if not self._secret:
            raise SecAggError("a comparison is made once; begin another round")
        secret, self._secret = self._secret, b""
        shared = group.times(secret, other)
        both = self.offer + other if self._side == "leader" else other + self.offer
        key = derive(shared, salt=b"sottovoce comparison", info=self._context + both)
        leader, helper = (hmac.digest(key, side, hashlib.sha256) for side in (b"leader", b"helper"))
        return (leader, helper) if self._side == "leader" else (helper, leader)
