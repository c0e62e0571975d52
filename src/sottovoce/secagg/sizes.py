"""Tell how many bytes each phase takes for one client, before any message is made, when nobody drops out.

The sizes follow from the constants that write the messages. A private run publishes these at its expected cohort: the
bytes that really travelled would tell how many clients there were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from sottovoce.core import wire
from sottovoce.secagg import agreement, dealing, keylist, messages, shamir
from sottovoce.secagg.graph import Degree
from sottovoce.secagg.primitives import KEY, SIGNATURE
from sottovoce.secagg.session import Extent, packed_size

__all__ = ["Outline", "Sizes", "announcement_size", "enrolment_sizes", "round_sizes"]


class Sizes(NamedTuple):
    """Bytes that one client sends and receives in one phase."""

    up: int
    down: int


@dataclass(frozen=True)
class Outline:
    """A session as far as its sizes go: nobody has registered a key for it."""

    clients: range
    degree: Degree
    length: int
    bits: int
    key_life: Literal["round", "session"] = "round"


def announcement_size(clients: int) -> int:
    """Return the bytes that a session's announcement adds to its first request."""
    return 4 + packed_size(clients)


def round_sizes(session: Extent, opening: int) -> dict[str, Sizes]:
    """Return the sizes of a round's phases; `opening` is the size of its first request.

    Without dropouts all clients of a session send and receive the same number of bytes.
    """
    peers = session.degree.neighbours
    names = messages.set_size(session)
    vector = wire.frame_size(session.length, session.bits)
    checked = {
        "consistency": Sizes(_reply(messages.CONSISTENCY), _request(names)),
        "unmask": Sizes(_reply(shamir.SHARE * (peers + 1) + 1), _request(agreement.unmask_size(session))),
    }
    if session.key_life == "session":
        shares = messages.SINGLE * peers + dealing.RECEIPT
        checked["consistency"] = Sizes(_reply(messages.CONSISTENCY), _request(names + shares))
        return {"mask": Sizes(_reply(dealing.dealing_size(peers, 1) + vector), opening), **checked}
    shares = messages.PAIR * peers + dealing.RECEIPT
    return {
        "advertise": Sizes(_reply(2 * KEY), opening),
        "share": Sizes(_reply(dealing.dealing_size(peers, 2)), _request(names + keylist.ENTRY * peers)),
        "mask": Sizes(_reply(vector), _request(names + shares)),
        **checked,
    }


def enrolment_sizes(session: Extent, opening: int) -> dict[str, Sizes]:
    """Return the sizes of the two phases that begin a session of rounds."""
    keys = messages.set_size(session) + keylist.ENTRY * session.degree.neighbours
    return {"enrol": Sizes(_reply(2 * KEY), opening), "introduce": Sizes(0, _request(keys))}


def _reply(body: int) -> int:
    return messages.HEADER + body + SIGNATURE


def _request(body: int) -> int:
    return messages.HEADER + body + messages.DIGEST
