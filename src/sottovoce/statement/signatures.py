"""Who signed a run at its end, who did not, and whether what they signed is what is published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError, PrivacyError, WireError
from sottovoce.deployment.countersign import (
    HELPER_NAME,
    SERVER_NAME,
    Claim,
    Countersignature,
    read_signed,
)
from sottovoce.deployment.node.build import config_digest
from sottovoce.deployment.roster import Roster, check_pin, fingerprint
from sottovoce.deployment.server.signatures import roster_bytes
from sottovoce.privacy.ledger import hash_of
from sottovoce.statement.evidence import Evidence
from sottovoce.statement.findings import Findings
from sottovoce.statement.ledgers import LedgerRecord

_FIELDS: Final = {"version", "roster", "claim", "signatures", "hash"}


@dataclass(frozen=True)
class Signed:
    """A claim about a run and its signatures, read from a document; nothing of it is believed yet."""

    roster: Roster
    claim: Claim
    signatures: tuple[Countersignature, ...]

    @classmethod
    def read(cls, document: Any) -> Signed:
        """Return what a document holds; raise InputError if it is none, or the roster is not its root's."""
        if not isinstance(document, Mapping) or set(document) != _FIELDS or document["version"] != 1:
            raise InputError(f"signatures must hold {', '.join(sorted(_FIELDS))}, of version 1")
        if document["hash"] != hash_of({key: value for key, value in document.items() if key != "hash"}):
            raise InputError("the hash over the signatures is another one: they were changed")
        try:
            claim = Claim.read(document["claim"])
            signed = tuple(Countersignature.read(each) for each in document["signatures"])
            root = bytes.fromhex(document["roster"]["root"])
            roster = Roster.parse(roster_bytes(dict(document)), fingerprint(root))
        except (WireError, TypeError, KeyError, ValueError, AttributeError) as error:
            raise InputError(f"the signatures are damaged: {error}") from None
        return cls(roster, claim, signed)

    def key_of(self, signer: int | str) -> bytes | None:
        """Return the key that a signer has by the roster; None: it is not there."""
        if signer == SERVER_NAME:
            return self.roster.server
        if signer == HELPER_NAME:
            return None if self.roster.helper is None else self.roster.helper.key
        return self.roster.keys.get(int(signer))

    def name_of(self, signer: int | str) -> str:
        """Return the name of a signer, as the roster has it."""
        if signer == HELPER_NAME and self.roster.helper is not None:
            return f"{self.roster.helper.name} (helper)"
        return str(signer) if isinstance(signer, str) else self.roster.entries[signer].name

    @property
    def missing(self) -> list[str]:
        """Return the names of all who did not sign."""
        expected: list[int | str] = [SERVER_NAME, *([HELPER_NAME] if self.roster.helper is not None else [])]
        expected += [entry.id for entry in self.roster.entries]
        there = {each.signer for each in self.signatures}
        return [self.name_of(signer) for signer in expected if signer not in there]


def describe_signed(document: Mapping[str, Any] | None, *, deployed: bool) -> dict[str, Any]:
    """Return what a statement says of signatures."""
    if document is None:
        words = "nobody signed this run" if deployed else "nobody signed: a simulation has no parties that could"
        return {"says": words}
    signed = Signed.read(document)
    agree = [signed.name_of(each.signer) for each in signed.signatures if each.agrees]
    differ = [signed.name_of(each.signer) for each in signed.signatures if not each.agrees]
    return {
        "says": f"{len(agree)} signed that their own accounts agree with these numbers; {len(signed.missing)} did not "
        f"sign; {len(differ)} signed that theirs do not",
        "agree": agree,
        "did_not_sign": signed.missing,
        "disagree": differ,
        "rounds": signed.claim.rounds,
        "experiment": signed.claim.experiment,
        "root_key": signed.roster.fingerprint,
    }


def check_signatures(
    evidence: Evidence, experiment: Experiment | None, findings: Findings, root: str | None = None
) -> Signed | None:
    """Check the signatures of a run: the roster's, everybody's, and that what was signed is what is published."""
    if evidence.signatures is None:
        if evidence.summary.get("deployed"):
            findings.unchecked("signatures", "nobody signed the end of this run; sites' ledgers are the remedy")
        return None
    try:
        signed = Signed.read(evidence.signatures)
    except InputError as error:
        findings.false("signatures", str(error))
        return None
    _check_root(signed, findings, root)
    _check_each(signed, findings)
    _check_claim(signed.claim, evidence, experiment, findings)
    clients, sites = evidence.summary.get("clients"), len(signed.roster.entries)
    if clients != sites:
        findings.false("roster", f"it has {sites} nodes, and the summary {clients!r} clients")
    return signed


def _check_root(signed: Signed, findings: Findings, root: str | None) -> None:
    own = signed.roster.fingerprint
    if root is None:
        findings.unchecked(
            "root key", f"the roster is signed by {own[:16]}...; give the fingerprint that you know with --root"
        )
    else:
        findings.decide(
            "root key",
            check_pin(root) == own,
            f"the roster is signed by the key that you named, {own[:16]}",
            f"the roster is signed by {own[:16]}, and not by the key that you named: its sites may be made up",
        )


def _check_each(signed: Signed, findings: Findings) -> None:
    """Check every signature, and name who did not sign and who disagrees."""
    signers = [each.signer for each in signed.signatures]
    wrong = sorted({f"{signer} twice" for signer in signers if signers.count(signer) > 1})
    for each in signed.signatures:
        key = signed.key_of(each.signer)
        if key is None or not each.holds(signed.claim, key):
            wrong.append(f"{each.signer} did not sign this")
    findings.decide(
        "signatures", not wrong, f"{len(signers)} hold, by the keys of the roster", "; ".join(map(str, wrong[:5]))
    )
    if wrong:
        return
    if SERVER_NAME in signers:
        findings.true("author", "the training server of the roster signed these numbers")
    if differ := [signed.name_of(each.signer) for each in signed.signatures if not each.agrees]:
        findings.false("countersigned", f"by their own accounts these do not agree: {', '.join(differ)}")
    else:
        findings.true("countersigned", f"the accounts of all {len(signers)} who signed agree")
    if missing := signed.missing:
        more = "" if len(missing) <= 12 else f" and {len(missing) - 12} more"
        findings.unchecked("who did not sign", ", ".join(missing[:12]) + more)


def _check_claim(claim: Claim, evidence: Evidence, experiment: Experiment | None, findings: Findings) -> None:
    """Compare what was signed with what is published: a server that tells both different numbers is found here."""
    summary, ledger, digests = evidence.summary, evidence.ledger or {}, evidence.digests or {}
    published = {
        "plan": evidence.plan.get("digest"),
        "epsilon": summary.get("epsilon"),
        "epsilon_server": summary.get("epsilon_server"),
        "delta": summary.get("delta"),
        "rounds": summary.get("rounds"),
        "charges": ledger.get("charges", 0),
        "files": digests.get("hash"),
    }
    if experiment is not None:
        published["experiment"] = config_digest(experiment)
    wrong = [
        f"{name} {getattr(claim, name)!r} was signed, and {value!r} is published"
        for name, value in published.items()
        if getattr(claim, name) != value
    ]
    findings.decide("what was signed", not wrong, f"{', '.join(published)} are what is published", "; ".join(wrong[:5]))


def check_own_signature(ledger: LedgerRecord, signed: Signed | None, findings: Findings) -> None:
    """Compare what a site or helper keeps of its own signature with the published one, and open its commitment."""
    if signed is None:
        return
    path = ledger.path.with_name(f"signed-{signed.claim.run}")
    try:
        kept = read_signed(path)
    except PrivacyError as error:
        findings.false(f"{path}", str(error))
        return
    if kept is None:
        findings.unchecked(
            f"{ledger.path}: its signature", f"{path.name}, which opens its commitment, does not lie beside it"
        )
        return
    claim, _, opening = kept
    there = {each.commitment for each in signed.signatures}
    before = 0 < opening.lines <= len(ledger.entries) and ledger.entries[opening.lines - 1]["hash"] == opening.hash
    problem = ""
    if claim != signed.claim:
        problem = "its owner was shown other numbers than those that are published"
    elif opening.commitment not in there:
        problem = "its owner's signature is not among those that are published"
    elif not before:
        problem = f"it is not the account that its owner signed: line {opening.lines} is another one"
    findings.decide(
        f"{ledger.path}: its signature",
        not problem,
        f"it is the account of {opening.lines} lines that its owner signed",
        problem,
    )
