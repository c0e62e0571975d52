"""Tell how many bytes each phase takes for one client, before any message is made, when nobody drops out.

The sizes follow from the constants that write the messages. A private run publishes these at its expected cohort: the
bytes that really travelled would tell how many clients there were.
"""

from __future__ import annotations

from dataclasses import dataclass

from sottovoce.core import wire
from sottovoce.core.errors import InputError
from sottovoce.core.wire import Traffic
from sottovoce.secagg import dealing, messages, rules, shamir
from sottovoce.secagg.graph import Degree, choose
from sottovoce.secagg.primitives import KEY, SIGNATURE
from sottovoce.secagg.session import Extent, KeyLife, packed_size


@dataclass(frozen=True)
class Outline:
    """A round as far as its bytes go: all of it is public, and nobody has registered a key for it."""

    cohort: int
    length: int  # words of a message
    bits: int  # of a word
    needed: int = 0  # how many of the cohort must answer
    colluders: int = 0  # that a sparse graph stands
    neighbours: int = 0  # of a client, where messages are masked; 0: as few as the graph allows
    key_life: KeyLife = "round"
    coins: tuple[int, ...] = ()  # of a count of ballots: that leader and helper toss together

    @property
    def clients(self) -> range:
        """Return whoever takes part."""
        return range(self.cohort)

    @property
    def degree(self) -> Degree:
        """Return how many neighbours a client has and how many shares open its secrets; raise if there are none."""
        if self.cohort < 2:
            raise InputError("one client a round cannot be masked by anybody; raise [cohort] sample_rate")
        return choose(self.cohort, self.needed, self.colluders, self.neighbours)


def announcement_size(clients: int) -> int:
    """Return the bytes that a session's announcement adds to its first request."""
    return 4 + packed_size(clients)


def round_sizes(session: Extent, opening: int) -> dict[str, Traffic]:
    """Return the sizes of a round's phases; `opening` is the size of its first request.

    Without dropouts all clients of a session send and receive the same number of bytes.
    """
    peers = session.degree.neighbours
    names = messages.set_size(session)
    vector = wire.frame_size(session.length, session.bits)
    checked = {
        "consistency": Traffic(_reply(messages.CONSISTENCY), _request(names)),
        "unmask": Traffic(_reply(shamir.SHARE * (peers + 1) + 1), _request(rules.unmask_size(session))),
    }
    if session.key_life == "session":
        shares = messages.SINGLE * peers + dealing.RECEIPT
        checked["consistency"] = Traffic(_reply(messages.CONSISTENCY), _request(names + shares))
        return {"mask": Traffic(_reply(dealing.dealing_size(peers, 1) + vector), opening), **checked}
    shares = messages.PAIR * peers + dealing.RECEIPT
    return {
        "advertise": Traffic(_reply(2 * KEY), opening),
        "share": Traffic(_reply(dealing.dealing_size(peers, 2)), _request(names + rules.ENTRY * peers)),
        "mask": Traffic(_reply(vector), _request(names + shares)),
        **checked,
    }


def enrolment_sizes(session: Extent, opening: int) -> dict[str, Traffic]:
    """Return the sizes of the two phases that begin a session of rounds."""
    keys = messages.set_size(session) + rules.ENTRY * session.degree.neighbours
    return {"enrol": Traffic(_reply(2 * KEY), opening), "introduce": Traffic(0, _request(keys))}


def _reply(body: int) -> int:
    return messages.HEADER + body + SIGNATURE


def _request(body: int) -> int:
    return messages.HEADER + body + messages.DIGEST
