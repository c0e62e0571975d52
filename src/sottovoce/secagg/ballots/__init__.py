"""Count secret ballots by two aggregators that do not collude; see docs/ballots.md.

`message` is what a client sends, `leader` and `helper` are the two aggregators as state machines, `terms` is what all
of them must have in common, `chunks` how ballots are laid out for the transfers, `comparison` how both aggregators see
that two counts are the same.
"""

from sottovoce.secagg.ballots.chunks import bytes_between
from sottovoce.secagg.ballots.comparison import PROOF, CountsDifferError
from sottovoce.secagg.ballots.helper import Helper, HelperLedger
from sottovoce.secagg.ballots.leader import Leader, Record
from sottovoce.secagg.ballots.message import SEAL, ballot_size, cast
from sottovoce.secagg.ballots.terms import BallotTerms

__all__ = [
    "PROOF",
    "SEAL",
    "BallotTerms",
    "CountsDifferError",
    "Helper",
    "HelperLedger",
    "Leader",
    "Record",
    "ballot_size",
    "bytes_between",
    "cast",
]
