"""What server and nodes tell each other before a run, and how they find out that they would not play the same one.

A hello says what a node would play: the digest of its experiment file, its version, the hash of its w_0 and the scores
that w_0 gives to a few made-up records. A welcome repeats the server's own and brings the run's set-up. Each side
compares by itself, and says in one sentence what differs.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from sottovoce.core.errors import WireError
from sottovoce.core.remote import one_line, read_json

PROTOCOL: Final = 3  # 3: long messages go in parts where links are thin
_LONGEST: Final = 48 << 10  # bytes of what is JSON in a greeting
_GONE = struct.Struct("<8sI")


@dataclass(frozen=True)
class Facts:
    """What both sides must have in common: the experiment, the protocol and the model that training begins at.

    Versions of the package may differ, so that a federation is upgraded node by node; whether two of them compute the
    same is told by the model and its scores.
    """

    version: str
    config: str  # digest of the tables that decide the result
    roster: str  # digest of who takes part
    start: str  # hash of w_0
    probe: tuple[float, ...]  # scores of made-up records
    protocol: int = PROTOCOL
    columns: tuple[tuple[str, str], ...] = ()  # of a table: each column with a hash of how its schema reads it

    def difference(self, other: Facts) -> str | None:
        """Say what of `other`, the server's or a node's, is not as here; None if nothing is."""
        for name, words, hint in (
            ("protocol", "another version of the protocol", "install the same version of sottovoce"),
            ("config", "another experiment", "compare the files and every --set"),
            ("roster", "another roster", "take the newest on both sides"),
            ("start", "another model to begin at", "compare the versions of numpy"),
        ):
            if (ours := getattr(self, name)) != (theirs := getattr(other, name)):
                return f"{words}: {_short(ours)} here, {_short(theirs)} there; {hint}"
            if name == "config" and self.columns != other.columns:
                return f"another schema: {_columns_differ(dict(self.columns), dict(other.columns))}; compare the files"
        if len(self.probe) != len(other.probe) or not all(map(_near, self.probe, other.probe)):
            return "the same model gives other scores there; compare the versions of the packages"
        return None


@dataclass(frozen=True)
class Hello:
    """A node's first words: what it would play, which life of it speaks, and over which connection of that life.

    `run` is the one that it has joined already, in hex: its set-up need not travel again. Of a request that came in
    parts it says how much it has. What it says of its link sets how it is spoken to, and no limit that a run has.
    """

    facts: Facts
    life: str
    connection: int
    run: str = ""
    expires: int | None = None  # when its certificate does, in seconds since 1970
    round_trip: int = 0  # of its link, in milliseconds
    rate: int = 0  # in bytes a second; 0: it shows no limit
    has: str = ""  # digest of the request that it has, or has a part of, in hex
    held: int = 0  # bytes of it

    def pack(self) -> bytes:
        """Return the payload."""
        return _json(asdict(self))

    @classmethod
    def unpack(cls, payload: bytes) -> Hello:
        """Read a payload, or refuse it."""
        told = _object(payload, tuple(each.name for each in fields(cls)))
        expires = None if told["expires"] is None else _number(told["expires"])
        facts, connection = _facts(told["facts"]), _number(told["connection"])
        link = _number(told["round_trip"]), _number(told["rate"])
        part = _text(told["has"]), _number(told["held"])
        return cls(facts, _text(told["life"]), connection, _text(told["run"]), expires, *link, *part)


@dataclass(frozen=True)
class Welcome:
    """The server's answer to a hello: its own facts, and what every client is told once."""

    facts: Facts
    life: str  # of the node that was heard: a welcome for another is old
    stage: str  # name of the scheme that is played
    setup: bytes = b""  # empty for a node that has joined the run already

    def pack(self) -> bytes:
        """Return the payload."""
        words = _json(asdict(replace(self, setup=b"")) | {"setup": len(self.setup)})
        return len(words).to_bytes(4, "little") + words + self.setup

    @classmethod
    def unpack(cls, payload: bytes) -> Welcome:
        """Read a payload, or refuse it."""
        size = int.from_bytes(payload[:4], "little")
        told = _object(payload[4 : 4 + size], ("facts", "life", "stage", "setup"))
        setup = payload[4 + size :]
        if told["setup"] != len(setup):
            raise WireError(f"greeting: a set-up of {len(setup)} bytes came, {_short(told['setup'])} were announced")
        return cls(_facts(told["facts"]), _text(told["life"]), _text(told["stage"]), setup)


@dataclass(frozen=True)
class Gone:
    """A node's last words, signed beforehand: which connection of which life of it was lost."""

    life: str
    connection: int

    def pack(self) -> bytes:
        """Return the payload."""
        return _GONE.pack(bytes.fromhex(self.life), self.connection)

    @classmethod
    def unpack(cls, payload: bytes) -> Gone:
        """Read a payload, or refuse it."""
        if len(payload) != _GONE.size:
            raise WireError(f"last words have {_GONE.size} bytes, got {len(payload)}")
        life, connection = _GONE.unpack(payload)
        return cls(life.hex(), connection)


@dataclass(frozen=True)
class Refusal:
    """The server's answer to a hello that does not fit its run: whose, and why, in one sentence."""

    life: str
    reason: str

    def pack(self) -> bytes:
        """Return the payload."""
        return _json(asdict(self))

    @classmethod
    def unpack(cls, payload: bytes) -> Refusal:
        """Read a payload, or refuse it."""
        told = _object(payload, ("life", "reason"))
        return cls(_text(told["life"]), one_line(str(told["reason"])))


def _facts(told: Any) -> Facts:
    names = ("version", "config", "roster", "start", "probe", "protocol", "columns")
    if not isinstance(told, dict) or set(told) != set(names):
        raise WireError("greeting: the facts are not those of this protocol")
    probe = told["probe"]
    if not isinstance(probe, list) or not all(isinstance(value, int | float) for value in probe):
        raise WireError("greeting: the scores must be numbers")
    try:
        scores = tuple(map(float, probe))
    except OverflowError:
        raise WireError("greeting: the scores must be numbers that a float can hold") from None
    version, config, roster, start = (_text(told[name]) for name in names[:4])
    return Facts(version, config, roster, start, scores, _number(told["protocol"]), _columns(told["columns"]))


def _columns(told: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(told, list) or not all(isinstance(each, list) and len(each) == 2 for each in told):
        raise WireError("greeting: the columns must be names with hashes")
    return tuple((_text(name), _text(hashed)) for name, hashed in told)


def _columns_differ(ours: dict[str, str], theirs: dict[str, str]) -> str:
    """Say which columns two schemas read differently, or one of them does not have."""
    here, there = (sorted(set(one) - set(two)) for one, two in ((ours, theirs), (theirs, ours)))
    other = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    kinds = (("only here", here), ("only there", there), ("read differently", other))
    told = [f"{_few(names)} {'is' if len(names) == 1 else 'are'} {how}" for how, names in kinds if names]
    return ", ".join(told) if told else "its columns stand in another order"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(repr(one_line(name)) for name in names[:3]) + more


def _object(payload: bytes, names: Sequence[str]) -> dict[str, Any]:
    try:
        told = read_json(payload, most=_LONGEST)
    except WireError as error:
        raise WireError(f"greeting: {error}") from None
    if not isinstance(told, dict) or set(told) != set(names):
        raise WireError(f"greeting: it must have {', '.join(names)}")
    return told


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise WireError(f"greeting: a short text was expected, got {_short(value)}")
    return value if value.isprintable() else one_line(value)  # it may be shown


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise WireError(f"greeting: a number was expected, got {_short(value)}")
    return value


def _short(value: object) -> str:
    return one_line(str(value)[:24])


def _near(ours: float, theirs: float) -> bool:
    """Compare scores of two machines, whose arithmetic may round differently."""
    return abs(ours - theirs) <= 1e-3 * (1 + abs(ours))


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
