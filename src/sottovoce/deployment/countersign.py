"""Countersign a run: nodes and helper sign, at its end, that what the server publishes is what their own accounts say.

The server shows everybody one claim, canonical JSON:

    {"charges":40,"delta":1e-05,"epsilon":4.0,"epsilon_server":17.7,"experiment":...,"files":...,"plan":...,
     "roster":...,"rounds":40,"run":...,"version":1}

`files` is the hash over the digests of the run's files, so that model, summary and ledger are bound too. A node
compares the claim with its own file, roster, plan and account, and signs whether they agree, once a run: a second,
different claim is refused. Everybody signs the same claim, and what a node adds of its own account is a salted hash:
how often one took part is nobody's to know. Who shows the salt later, with the account, opens it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from sottovoce.core.errors import PrivacyError, WireError
from sottovoce.core.remote import read_json
from sottovoce.deployment.roster import canonical
from sottovoce.secagg.primitives import SIGNATURE, sign, verify

PHASE: Final = "countersign"
SERVER_NAME: Final = "server"
HELPER_NAME: Final = "helper"
_DOMAIN: Final = b"sottovoce countersignature 1\n"
_COMMITMENT: Final = b"sottovoce account 1\n"
_LONGEST: Final = 4096  # bytes of a claim or an answer
_TOLERANCE: Final = 1e-6  # relative: machines round the accountant's numbers differently
_SALT: Final = 32
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_NUMBERS: Final = ("epsilon", "epsilon_server", "delta")


class Promise(NamedTuple):
    """What a party's own plan promises; None: nothing."""

    epsilon: float | None = None
    epsilon_server: float | None = None
    delta: float | None = None


NO_PROMISE: Final = Promise()


@final
@dataclass(frozen=True)
class Claim:
    """What a server says of a finished run, to nodes, helper and the public alike."""

    run: str
    roster: str  # digest
    experiment: str  # digest
    plan: str | None  # digest; None: the run is not private
    epsilon: float | None
    epsilon_server: float | None
    delta: float | None
    rounds: int  # that were begun
    charges: int  # in the server's ledger
    files: str  # hash over the digests of the run's files
    version: int = 1

    def pack(self) -> bytes:
        """Return the only bytes of this claim."""
        return canonical(asdict(self))

    @classmethod
    def unpack(cls, payload: bytes) -> Claim:
        """Read a claim that came over a network, or refuse it."""
        claim = cls.read(read_json(payload, most=_LONGEST))
        if claim.pack() != payload:
            raise WireError("claim: it is not written as claims are")
        return claim

    @classmethod
    def read(cls, document: Any) -> Claim:
        """Return the claim in a JSON document, or raise WireError."""
        if not isinstance(document, dict) or set(document) != {field.name for field in fields(cls)}:
            raise WireError(f"claim: it must hold {', '.join(sorted(field.name for field in fields(cls)))}")
        texts = all(_is_hash(document[name]) for name in ("roster", "experiment", "files"))
        texts = texts and (document["plan"] is None or _is_hash(document["plan"]))
        texts = texts and isinstance(document["run"], str) and bool(re.fullmatch("[0-9a-f]{32}", document["run"]))
        whole = all(type(document[name]) is int and document[name] >= 0 for name in ("rounds", "charges", "version"))
        numbers = all(_is_bound(document[name]) for name in _NUMBERS)
        if not (texts and whole and numbers and document["version"] == 1):
            raise WireError("claim: a value is of another kind than it must be")
        return cls(**document)

    def difference(
        self, *, run: str, roster: str, experiment: str, promise: Promise, begun: int, spent: int = 0
    ) -> str | None:
        """Say what of the claim is not so by a party's own account; None if nothing is.

        `begun` is the highest round that the party has answered, and `spent` how many it was charged for.
        """
        for name, own in (("run", run), ("roster", roster), ("experiment", experiment)):
            if getattr(self, name) != own:
                return f"the server claims another {name}"
        for name in _NUMBERS:
            told, own_number = getattr(self, name), getattr(promise, name)
            if told is not None and (own_number is None or not math.isclose(told, own_number, rel_tol=_TOLERANCE)):
                return f"the server claims {name} {told:.6g}, and the plan here has {own_number}"
        if self.plan is None and promise.delta is not None:
            return "the server claims that the run was not private"
        if max(begun, spent) > self.rounds:
            return f"the server claims {self.rounds} rounds, and more were given here"
        return None


@final
@dataclass(frozen=True)
class Countersignature:
    """One party's answer to a claim: whether its own account agrees, a commitment to that account, and a signature."""

    signer: int | str  # a node's number, "helper" or "server"
    agrees: bool
    commitment: str
    signature: str

    @classmethod
    def make(cls, claim: Claim, signer: int | str, key: bytes, *, agrees: bool, commitment: str) -> Countersignature:
        """Sign a claim."""
        return cls(signer, agrees, commitment, sign(key, _body(claim, signer, agrees, commitment)).hex())

    def holds(self, claim: Claim, key: bytes) -> bool:
        """Tell whether the owner of a verifying key signed exactly this."""
        body = _body(claim, self.signer, self.agrees, self.commitment)
        return verify(key, bytes.fromhex(self.signature), body)

    def pack(self) -> bytes:
        """Return the bytes that travel."""
        return canonical(asdict(self))

    @classmethod
    def unpack(cls, payload: bytes) -> Countersignature:
        """Read what came over a network, or refuse it."""
        return cls.read(read_json(payload, most=_LONGEST))

    @classmethod
    def read(cls, document: Any) -> Countersignature:
        """Return the countersignature in a JSON document, or raise WireError."""
        if not isinstance(document, dict) or set(document) != {field.name for field in fields(cls)}:
            raise WireError("countersignature: it must hold agrees, commitment, signature and signer")
        signer, agrees, signature = document["signer"], document["agrees"], document["signature"]
        known = type(signer) is int or signer in (SERVER_NAME, HELPER_NAME)
        signed = isinstance(signature, str) and re.fullmatch(rf"[0-9a-f]{{{2 * SIGNATURE}}}", signature)
        if not (known and type(agrees) is bool and signed and _is_hash(document["commitment"])):
            raise WireError("countersignature: a value is of another kind than it must be")
        return cls(**document)


class Opening(NamedTuple):
    """What opens a commitment: the salt, and how far the account had come."""

    salt: str
    lines: int
    hash: str

    @classmethod
    def make(cls, lines: int, head: str) -> Opening:
        """Return what opens a commitment to an account of so many lines, the last with this hash."""
        return cls(os.urandom(_SALT).hex(), lines, head)

    @property
    def commitment(self) -> str:
        """Return the salted hash; without the salt nobody can try accounts out."""
        return hashlib.sha256(_COMMITMENT + canonical(self._asdict())).hexdigest()


def signed_text(claim: Claim, agrees: bool, opening: Opening) -> str:
    """Return what a party keeps of what it has signed; its salt is a secret until its owner shows it."""
    return json.dumps({"claim": asdict(claim), "agrees": agrees, "opening": opening._asdict()}, indent=2) + "\n"


def read_signed(path: Path) -> tuple[Claim, bool, Opening] | None:
    """Return what a party has signed; None if nothing."""
    try:
        told = json.loads(path.read_bytes())
        opening = Opening(str(told["opening"]["salt"]), int(told["opening"]["lines"]), str(told["opening"]["hash"]))
        return Claim.read(told["claim"]), bool(told["agrees"]), opening
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, WireError):
        raise PrivacyError(f"{path} is damaged, and says what was signed; nothing else is signed") from None


def _body(claim: Claim, signer: int | str, agrees: bool, commitment: str) -> bytes:
    return _DOMAIN + canonical({"claim": asdict(claim), "signer": signer, "agrees": agrees, "commitment": commitment})


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and bool(_HASH.fullmatch(value))


def _is_bound(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0)
