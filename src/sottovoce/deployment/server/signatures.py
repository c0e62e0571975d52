"""Collect, at the end of a run, the signatures of those who took part: `signatures.json` in the run folder.

    {"version": 1, "roster": {...}, "claim": {...}, "signatures": [{"signer": "server", ...}, {"signer": 0, ...}]}

Who of the roster is not among the signers did not sign; nobody need say so. All of it may be published.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

from sottovoce.core.errors import RunError, SottovoceError, WireError
from sottovoce.core.files import replace_file
from sottovoce.deployment.countersign import HELPER_NAME, PHASE, SERVER_NAME, Claim, Countersignature
from sottovoce.deployment.party import Identity
from sottovoce.deployment.roster import Roster, canonical
from sottovoce.federation.engine import Engine, Request
from sottovoce.privacy.ledger import hash_of
from sottovoce.runs.digests import DIGESTS, SUMMARY

SIGNATURES: Final = "signatures.json"
_VERSION: Final = 1
_NOTHING: Final = "0" * 64  # the server's ledger is in the run folder: there is nothing to open

log = logging.getLogger(__name__)


class Cosigner(Protocol):
    """The way to a helper that signs."""

    def countersign(self, claim: bytes) -> bytes:
        """Return the helper's countersignature of a claim."""
        ...


def make_claim(folder: Path, roster: Roster, experiment: str, run: bytes) -> Claim:
    """Return what the files of a finished run say."""
    try:
        summary = json.loads((folder / SUMMARY).read_bytes())
        files = str(json.loads((folder / DIGESTS).read_bytes())["hash"])
        ledger = folder / "ledger.jsonl"
        lines = ledger.read_bytes().splitlines() if ledger.exists() else []
        entries = [json.loads(line) for line in lines]
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{folder} cannot be read, so nobody signs it: {error}") from None
    plan = summary.get("privacy") or {}
    return Claim(
        run=run.hex(),
        roster=roster.digest.hex(),
        experiment=experiment,
        plan=plan.get("digest"),
        epsilon=summary.get("epsilon"),
        epsilon_server=summary.get("epsilon_server"),
        delta=summary.get("delta"),
        rounds=int(summary["rounds"]),
        charges=sum(entry["kind"] == "torn" or (entry["kind"] == "charge" and entry["round"] > 0) for entry in entries),
        files=files,
    )


def collect_signatures(
    folder: Path, claim: Claim, engine: Engine, identity: Identity, roster: Roster, helper: Cosigner | None = None
) -> dict[str, Any]:
    """Show everybody the claim, keep who signed it, and return the document; who does not answer is not waited for."""
    own = Countersignature.make(claim, SERVER_NAME, identity.signing_key, agrees=True, commitment=_NOTHING)
    signed: dict[int | str, Countersignature] = {SERVER_NAME: own}

    def take(node: int, payload: bytes) -> None:
        answer = Countersignature.unpack(payload)
        if answer.signer != node or not answer.holds(claim, roster.keys[node]):
            raise WireError(f"node {node} did not sign the claim that it was shown")
        signed[node] = answer

    if helper is not None and roster.helper is not None:
        try:
            counted = Countersignature.unpack(helper.countersign(claim.pack()))
            if counted.signer == HELPER_NAME and counted.holds(claim, roster.helper.key):
                signed[HELPER_NAME] = counted
        except SottovoceError as error:
            log.warning("the helper did not sign the end of the run: %s", error)
    payloads = {entry.id: claim.pack() for entry in roster.entries}
    engine.send(Request(round=claim.rounds, phase=PHASE, payloads=payloads, take=take))
    document = signatures_document(identity.roster.read_bytes(), claim, list(signed.values()))
    replace_file(folder / SIGNATURES, signatures_text(document))
    disagree = [str(each.signer) for each in signed.values() if not each.agrees]
    log.info("%d of %d nodes signed the end of the run", sum(type(each) is int for each in signed), len(payloads))
    if disagree:
        log.warning("by their own accounts these do not agree: %s", ", ".join(disagree))
    return document


def signatures_document(roster: bytes, claim: Claim, signed: list[Countersignature]) -> dict[str, Any]:
    """Return the document of a claim and its signatures, in the order of the roster."""
    order = {SERVER_NAME: -2, HELPER_NAME: -1}
    ordered = sorted(
        signed, key=lambda each: order.get(str(each.signer), 0 if isinstance(each.signer, str) else each.signer)
    )
    document = {
        "version": _VERSION,
        "roster": json.loads(roster),
        "claim": asdict(claim),
        "signatures": [asdict(each) for each in ordered],
    }
    return document | {"hash": hash_of(document)}


def signatures_text(document: dict[str, Any]) -> str:
    """Return the text of the file."""
    return json.dumps(document, indent=2) + "\n"


def roster_bytes(document: dict[str, Any]) -> bytes:
    """Return the roster's file that a document of signatures holds."""
    return canonical(document["roster"]) + b"\n"


def read_signatures(folder: Path) -> dict[str, Any] | None:
    """Return the signatures of a run; None if nobody signed; raise RunError if the file was changed."""
    try:
        text = (folder / SIGNATURES).read_bytes().decode()
        document = json.loads(text)
        if not isinstance(document, dict) or signatures_text(document) != text:
            raise ValueError("it is not written as signatures are")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{folder / SIGNATURES} is damaged: {error}; restore it") from None
    return document
