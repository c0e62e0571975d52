"""Check a run or a statement without data, network or trust in who wrote it.

What follows from something else is computed again: the plan by the accountant from the recorded request, epsilons from
the plan, the odometer from the ledger, a statement from its evidence. What does not follow from anything, such as the
accuracy, is bound by hashes: a change shows, a lie from the beginning does not. The ledgers of others are the remedy
for what the server says of rounds; what nobody can check here is listed.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.errors import InputError, PrivacyError, RunError, SottovoceError
from sottovoce.deployment.countersign import SERVER_NAME
from sottovoce.federation.stages.local_evaluation import records_aside
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.budget import cost_of
from sottovoce.privacy.ledger import hash_of
from sottovoce.privacy.plan.request import PrivacyRequest, read_request
from sottovoce.report.units import epsilon as epsilon_words
from sottovoce.runs.digests import DIGESTS, SUMMARY, digests_problem, read_digests, sha256_of, summary_text
from sottovoce.runs.folder import read_environment, read_rounds
from sottovoce.statement.evidence import LEFT_OUT, Evidence, gather_evidence
from sottovoce.statement.findings import Findings
from sottovoce.statement.ledgers import LEDGER, LedgerRecord, check_ledger, find_ledgers, read_ledger
from sottovoce.statement.odds import odds
from sottovoce.statement.page import claims_a_statement, read_statement, statement_page
from sottovoce.statement.signatures import Signed, check_own_signature, check_signatures
from sottovoce.statement.statement import make_statement
from sottovoce.statement.twin import twin_record

_TOLERANCE: Final = 1e-6  # of numbers that another version of the accountant found
_NOT_FROM_TABLE: Final = {"clip_norm", "spent", "answer_rate", "floor_share"}  # found elsewhere, or beside the table


def verify_run(folder: Path, ledgers: Iterable[Path] = (), root: str | None = None) -> Findings:
    """Check a run folder: its files, its ledger against its rounds, its plan and its numbers."""
    findings = Findings()
    if not (folder / SUMMARY).exists() and (folder / "config.toml").exists():
        _check_unfinished(folder, findings)
        return findings
    try:
        _check_files(folder, findings)
        evidence = gather_evidence(folder, whole=True)
    except RunError as error:
        findings.false("files", str(error))
        return findings
    plan, signed = check_evidence(evidence, findings, root)
    own = None
    if signed is not None:
        _check_run_id(folder, signed, findings)
    if (folder / LEDGER).exists():
        own = read_ledger(folder / LEDGER)
        check_ledger(own, findings)
    _check_rounds(folder, evidence, plan, own, findings)
    paths = list(ledgers)
    _check_others(find_all(paths), evidence, own, signed, findings)
    _name_unchecked(evidence, findings, others=bool(paths), signed=signed)
    return findings


def _check_run_id(folder: Path, signed: Signed, findings: Findings) -> None:
    own = read_environment(folder).get("run")
    findings.decide(
        "run that was signed", own == signed.claim.run, f"{signed.claim.run[:8]}", f"the folder is of run {own!r}"
    )


def verify_statement(
    path: Path, ledgers: Iterable[Path] = (), run: Path | None = None, root: str | None = None
) -> Findings:
    """Check a statement, JSON or a page: written again from its evidence it must be the same."""
    findings, paths = Findings(), list(ledgers)
    if not claims_a_statement(path):
        raise InputError(f"{path} is no statement: name one that sottovoce statement wrote, or a run folder")
    try:
        statement, page = read_statement(path)
        evidence = Evidence.read(statement.get("evidence"))
        again = make_statement(evidence)
    except (InputError, RunError) as error:
        findings.false("statement", str(error))
        return findings
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        findings.false("statement", f"no statement can be written from its evidence: {error}")
        return findings
    bare = {key: value for key, value in statement.items() if key != "hash"}
    findings.decide("hash", statement.get("hash") == hash_of(bare), "over the whole statement", "it was changed")
    known = evidence.same_software
    wrong = [] if statement == again else list(_differences(bare, {k: v for k, v in again.items() if k != "hash"}, 0.0))
    if wrong and not known:
        findings.unchecked("statement from evidence", "another version wrote it; its words were not compared")
        _check_adversaries(statement.get("against"), evidence, findings)
    else:
        findings.decide("statement from evidence", not wrong, "written again, it is the same", "; ".join(wrong[:5]))
    if page is not None and known:
        same = page == statement_page(again)  # a statement that was changed may not even be drawn
        findings.decide(
            "page", same, "drawn again, it is the same to the byte", "its text is not that of its statement"
        )
    elif page is not None:
        findings.unchecked("page", "another version drew it; compare its text with its JSON")
    _, signed = check_evidence(evidence, findings, root)
    own = None
    if run is not None:
        own = _check_run_of(evidence, run, findings)
    else:
        findings.unchecked("run folder", "not given; name it with --run to compare the model, rounds and ledger")
    _check_others(find_all(paths), evidence, own, signed, findings)
    _name_unchecked(evidence, findings, others=bool(paths), signed=signed)
    return findings


def _check_adversaries(against: Any, evidence: Evidence, findings: Findings) -> None:
    """Check the numbers of a statement of another version: no epsilon that the summary does not tell."""
    told = {value for record in (evidence.summary, evidence.plan) for value in record.values() if _is_number(value)}
    try:
        wrong = [
            str(each["who"])
            for each in against
            if (each["epsilon"] is not None and each["epsilon"] not in told)
            or list(_differences(each["odds"], odds(each["epsilon"], evidence.summary.get("delta")), _TOLERANCE))
        ]
    except (TypeError, KeyError, ValueError) as error:
        wrong = [str(error)]
    findings.decide(
        "epsilons of the statement", not wrong, "all are the summary's", f"not so against {', '.join(wrong)}"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_run_of(evidence: Evidence, run: Path, findings: Findings) -> LedgerRecord | None:
    """Compare a statement's evidence with a run folder, and check that folder."""
    try:
        other = gather_evidence(run)
    except RunError as error:
        findings.false("run folder", str(error))
        return None
    kept = {**other.record(), "twin": evidence.twin}  # the run folder knows of no twin
    parts = [name for name, value in evidence.record().items() if kept[name] != value]
    findings.decide(
        "run folder", not parts, "the statement is about this run", f"the run has another {', '.join(parts)}"
    )
    checked = {each.claim: each for each in verify_run(run).found if each.state in ("true", "false")}
    open_ = [each for each in findings.found if each.state == "unchecked" and each.claim in checked]
    findings.found = [each for each in findings.found if each not in open_]  # the folder decides them
    there = {finding.claim for finding in findings.found}
    findings.found += [each for claim, each in checked.items() if claim not in there]
    return read_ledger(run / LEDGER) if (run / LEDGER).exists() else None


def find_all(paths: Iterable[Path]) -> list[Path]:
    """Return all ledgers that paths name."""
    return [ledger for path in paths for ledger in find_ledgers(path)]


def check_evidence(
    evidence: Evidence, findings: Findings, root: str | None = None
) -> tuple[PrivacyPlan | None, Signed | None]:
    """Check evidence against itself and the accountant; return the plan that was solved again, and who signed."""
    _check_digests(evidence, findings)
    _check_twin(evidence, findings)
    experiment = _check_config(evidence, findings)
    plan = _check_plan(evidence, findings)
    if plan is not None and experiment is not None:
        _check_request(evidence, experiment, plan.request, findings)
    if evidence.private:
        _check_epsilons(evidence, plan, findings)
    else:
        _check_no_promise(evidence, findings)
    return plan, check_signatures(evidence, experiment, findings, root)


def _check_unfinished(folder: Path, findings: Findings) -> None:
    findings.unchecked("summary", "the run is not finished: it has no summary yet")
    if (folder / LEDGER).exists():
        check_ledger(read_ledger(folder / LEDGER), findings)


def _check_files(folder: Path, findings: Findings) -> None:
    """Compare every file with its digest."""
    try:
        digests = read_digests(folder)
    except RunError as error:
        findings.false(DIGESTS, str(error))
        return
    if digests is None:
        findings.unchecked(DIGESTS, "there is none: a run of an older version; changes in its files do not show")
        return
    for name, digest in digests["files"].items():
        path = folder / name
        there = path.is_file()
        findings.decide(
            f"file {name}",
            there and sha256_of(path) == digest,
            f"SHA-256 {digest[:16]}, as when the run ended",
            "it was changed after the run ended" if there else "it is missing",
        )


def _check_digests(evidence: Evidence, findings: Findings) -> None:
    """Compare the config and the summary that the evidence holds with their digests."""
    if evidence.digests is None:
        findings.unchecked("digests", "the evidence has none: a run of an older version")
        return
    if problem := digests_problem(evidence.digests):
        findings.false("digests", problem)
        return
    files = evidence.digests["files"]
    for name, text in (("config.toml", evidence.config), (SUMMARY, summary_text(evidence.summary))):
        if text.startswith(LEFT_OUT):
            findings.unchecked(f"digest of {name}", "folders of the machine were left out; name the run with --run")
            continue
        digest = hashlib.sha256(text.encode()).hexdigest()
        findings.decide(
            f"digest of {name}",
            files.get(name) == digest,
            f"SHA-256 {digest[:16]}",
            f"SHA-256 is {digest[:16]}, but {str(files.get(name))[:16]} was recorded when the run ended",
        )


def _check_twin(evidence: Evidence, findings: Findings) -> None:
    """Check that the twin is one, and its files those that its own digests name."""
    if evidence.twin is None:
        return
    try:
        own = Evidence.read(
            dict.fromkeys(Evidence.__dataclass_fields__)
            | {"software": {}}
            | {name: evidence.twin.get(name) for name in ("config", "summary", "digests")}
        )
        twin_record(evidence.config, own.record(), str(evidence.twin.get("public")))
    except (InputError, PrivacyError, TypeError, AttributeError) as error:
        findings.false("twin", str(error))
        return
    inner = Findings()
    _check_digests(own, inner)
    findings.found += [each._replace(claim=f"twin: {each.claim}") for each in inner.found]


def _check_config(evidence: Evidence, findings: Findings) -> Experiment | None:
    """Read the config, and compare what the summary says of it."""
    summary = evidence.summary
    try:
        experiment = parse(tomllib.loads(evidence.config))
    except (tomllib.TOMLDecodeError, InputError) as error:
        findings.false("config", f"config.toml cannot be read: {error}")
        return None
    claims = {
        "name": experiment.experiment.name,
        "rounds_planned": experiment.experiment.rounds,
        "secure": experiment.secure,
        "private": experiment.privacy is not None,
        "chosen_on": experiment.experiment.chosen_on,
    }
    wrong = [
        f"{key} is {summary.get(key)!r}, not {value!r}" for key, value in claims.items() if summary.get(key) != value
    ]
    findings.decide("summary against config", not wrong, ", ".join(claims) + " agree", "; ".join(wrong))
    return experiment


def _check_plan(evidence: Evidence, findings: Findings) -> PrivacyPlan | None:
    """Solve the plan again from the recorded request, and compare it number by number."""
    if not evidence.private:
        return None
    recorded = evidence.plan
    if "request" not in recorded:
        findings.unchecked("plan", "the summary records no request: a run of an older version; repeat it, or trust it")
        return None
    try:
        plan = PrivacyPlan.solve(**vars(read_request(recorded["request"])))
    except (SottovoceError, TypeError, ValueError, ArithmeticError) as error:  # values of any kind may stand there
        findings.false("plan", f"the recorded request has no such plan: {error}")
        return None
    told, exposed = json.loads(json.dumps(plan.describe())), recorded.get("epsilon") is None
    cost = cost_of(plan).exposed() if exposed and plan.epsilon_reason is None else cost_of(plan)
    told |= {"cost": json.loads(json.dumps(cost.told())), "request": recorded["request"], "digest": plan.digest()}
    if exposed and recorded.get("epsilon_reason"):  # outsiders saw a failure: no epsilon is claimed
        told |= {"epsilon": None, "epsilon_reason": recorded["epsilon_reason"]}
    same = evidence.same_software
    if not same:
        told.pop("digest")
        findings.unchecked(
            "plan to the last bit", "the run was accounted by other versions; its numbers are compared to 1e-6"
        )
    compared = recorded if same else {key: value for key, value in recorded.items() if key in told}
    wrong = list(_differences(compared, told, 0.0 if same else _TOLERANCE))
    findings.decide(
        "plan",
        not wrong,
        f"solved again from the recorded request by the {plan.request.accountant} accountant: epsilon "
        f"{epsilon_words(plan.epsilon)}, epsilon_server {epsilon_words(plan.epsilon_server)}, "
        f"delta {plan.request.delta:g}, noise multiplier {plan.noise_multiplier:.4g}",
        "; ".join(wrong[:5]),
    )
    return plan


def _differences(told: Any, expected: Any, tolerance: float, where: str = "") -> Iterable[str]:
    """Yield where two JSON values differ."""
    if isinstance(told, Mapping) and isinstance(expected, Mapping):
        for key in sorted({*told, *expected}):
            if key not in told or key not in expected:
                yield f"{where}{key} is {'missing' if key not in told else 'not known'}"
            else:
                yield from _differences(told[key], expected[key], tolerance, f"{where}{key}.")
    elif isinstance(told, list) and isinstance(expected, list) and len(told) == len(expected):
        for index, pair in enumerate(zip(told, expected, strict=True)):
            yield from _differences(*pair, tolerance, f"{where}{index}.")
    elif not _equal(told, expected, tolerance):
        yield f"{where.rstrip('.')} is {_short(told)}, computed {_short(expected)}"


def _equal(told: Any, expected: Any, tolerance: float) -> bool:
    if tolerance and _is_number(told) and _is_number(expected):
        return math.isclose(told, expected, rel_tol=tolerance, abs_tol=1e-300)
    return type(told) is type(expected) and bool(told == expected)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _check_request(evidence: Evidence, experiment: Experiment, request: PrivacyRequest, findings: Findings) -> None:
    """Compare the request with the config: the plan must be that of the experiment, and not of a kinder one."""
    table = experiment.privacy
    if table is None:
        return
    claims: dict[str, Any] = {
        "rounds": experiment.experiment.rounds,
        "sampling": experiment.cohort.sampling,
        "colluders": experiment.aggregation.colluders,
        "noise_by": experiment.noise_by,
        "deployment": bool(evidence.summary.get("deployed")),
    }
    if request.sampling == "poisson":
        claims["sample_rate"] = float(experiment.cohort.sample_rate)
    if not evidence.software.get("given"):
        claims["clients"] = evidence.summary.get("clients")
    names = {field.name for field in fields(PrivacyRequest)} & set(type(table).model_fields) - _NOT_FROM_TABLE
    claims |= {name: getattr(table, name) for name in sorted(names)}
    if table.unit != "client":
        claims["units"] = _units(experiment, evidence)
    wrong = [
        f"{name} is {getattr(request, name)!r}, the config has {value!r}"
        for name, value in claims.items()
        if getattr(request, name) != value
    ]
    if table.clip_norm is not None and request.form == "floats" and request.clip_norm != table.clip_norm:
        wrong.append(f"clip_norm is {request.clip_norm!r}, the config has {table.clip_norm!r}")
    if evidence.summary.get("message_length") != request.length:
        wrong.append(f"length is {request.length!r}, the summary has {evidence.summary.get('message_length')!r}")
    findings.decide(
        "request against config", not wrong, f"{len(claims) + 1} keys agree with config.toml", "; ".join(wrong[:5])
    )


def _units(experiment: Experiment, evidence: Evidence) -> Any:
    """Return how many units train: those of the config without what is set aside, or what the summary tells."""
    told = None if experiment.privacy is None else experiment.privacy.units
    if told is None:  # as many as there are
        return evidence.summary.get("units")
    share = experiment.client.held_out
    return sum(
        count - (records_aside(count, share) if share else 0) for count in ([told] if isinstance(told, int) else told)
    )


def _check_epsilons(evidence: Evidence, plan: PrivacyPlan | None, findings: Findings) -> None:
    """Compare the epsilons on top of the summary with the plan, and the odometer with the ledger."""
    summary, ledger = evidence.summary, evidence.ledger
    told = evidence.plan
    wrong = [
        f"{key} is {summary.get(key)!r}, but {told.get(inner)!r} in its plan"
        for key, inner in (
            *((name, name) for name in ("epsilon", "epsilon_server", "epsilon_reason", "delta", "noise_multiplier")),
            ("epsilon_best_round", "epsilon"),
            ("note", "note"),
            ("cohort_floor", "cohort_floor"),
        )
        if summary.get(key) != told.get(inner)
    ]
    findings.decide("epsilons", not wrong, "the summary says what its plan says", "; ".join(wrong[:5]))
    if ledger is None:
        findings.unchecked("ledger", "no ledger was given; the server must keep one")
        return
    wrong = []
    if ledger.get("deployment") != bool(summary.get("deployed")):
        wrong.append("one of summary and ledger says that it was a deployment")
    if "digest" in told and ledger.get("plan") != told["digest"]:
        wrong.append(f"the ledger charges plan {str(ledger.get('plan'))[:12]}, the summary's is {told['digest'][:12]}")
    if plan is not None:
        if ledger.get("limit") != plan.rounds:
            wrong.append(f"its limit is {ledger.get('limit')!r}, the plan affords {plan.rounds}")
        spent = ledger.get("charges")
        if not isinstance(spent, int) or not 0 <= spent <= plan.rounds:
            wrong.append(f"{spent!r} charges, and the plan affords {plan.rounds}")
        elif summary.get("epsilon") is not None:
            after = plan.epsilon_after(spent)
            tolerance = 0.0 if evidence.same_software else _TOLERANCE
            if not _equal(summary.get("epsilon_spent"), after, tolerance):
                wrong.append(f"epsilon_spent is {summary.get('epsilon_spent')!r}, {spent} charges make {after!r}")
    findings.decide(
        "ledger against plan",
        not wrong,
        f"{ledger.get('charges')} of {ledger.get('limit')} rounds charged, for this plan",
        "; ".join(wrong[:5]),
    )


def _check_no_promise(evidence: Evidence, findings: Findings) -> None:
    """See that a run without a plan promises nothing."""
    claimed = [
        key for key in ("epsilon", "epsilon_spent", "epsilon_server", "delta") if evidence.summary.get(key) is not None
    ]
    findings.decide(
        "no promise",
        not claimed and not evidence.plan,
        "the run is not private and claims no epsilon",
        f"the run is not private and claims {', '.join(claimed) or 'a plan'}",
    )


def _check_rounds(
    folder: Path, evidence: Evidence, plan: PrivacyPlan | None, ledger: LedgerRecord | None, findings: Findings
) -> None:
    """Compare the rounds with the summary, and with what was charged for them."""
    summary, wrong = evidence.summary, []
    try:
        records = read_rounds(folder)
    except RunError as error:
        findings.false("rounds", str(error))
        return
    numbers = [record["round"] for record in records]
    if numbers != list(range(1, len(records) + 1)) or len(records) != summary.get("rounds"):
        wrong.append(
            f"rounds.jsonl has {len(records)} rounds, the summary {summary.get('rounds')!r}, or they are not in order"
        )
    if not evidence.private:
        for key in ("bytes_up", "bytes_down"):
            total = sum(record.get(key, 0) for record in records)
            if summary.get(f"{key}_total") != total:
                wrong.append(f"{key} of all rounds is {total}, the summary has {summary.get(f'{key}_total')!r}")
    best = summary.get("best_round")
    found = next((record for record in records if record["round"] == best), {})
    if best is not None and found.get("accuracy") != summary.get("accuracy_best"):
        wrong.append(
            f"accuracy of round {best} is {found.get('accuracy')!r}, the summary has {summary.get('accuracy_best')!r}"
        )
    claims = {record.get("epsilon") for record in records} - {None}
    if plan is not None and any(not _equal(value, plan.epsilon, _TOLERANCE) for value in claims):
        wrong.append(f"rounds.jsonl tells epsilon {sorted(map(str, claims))}, the plan {plan.epsilon!r}")
    findings.decide("rounds against summary", not wrong, f"{len(records)} rounds agree", "; ".join(wrong[:5]))
    if not evidence.private:
        return
    if ledger is None:
        findings.false("rounds against ledger", f"a private run without {LEDGER}")
        return
    released = {record["round"] for record in records if not {"aborted", "void"} & record.keys()}
    free, later = released - set(ledger.charged), [round_ for round_ in ledger.charged if round_ > len(records)]
    problem = f"round {min(free)} was released and is not charged" if free and not ledger.torn else ""
    if later:
        problem = f"round {later[0]} is charged, and rounds.jsonl ends at {len(records)}"
    findings.decide(
        "rounds against ledger", not problem, f"all {len(released)} rounds that were released are charged", problem
    )


def _check_others(
    paths: Iterable[Path],
    evidence: Evidence,
    own: LedgerRecord | None,
    signed: Signed | None,
    findings: Findings,
) -> None:
    """Compare the ledgers that sites and helpers kept with the plan, and with what the server says it charged."""
    digest, most = evidence.plan.get("digest"), evidence.plan.get("max_participations")
    for path in paths:
        ledger = read_ledger(path)
        check_ledger(ledger, findings)
        if ledger.problem is not None:
            continue
        check_own_signature(ledger, signed, findings)
        wrong = []
        if digest is not None and ledger.opening["digest"] != digest:
            wrong.append(
                f"it is of plan {ledger.opening['digest'][:12]}, not {str(digest)[:12]}: others were told another plan"
            )
        if ledger.keeper == "site" and most is not None and ledger.opening["limit"] != most:
            wrong.append(f"it allows {ledger.opening['limit']} participations, the plan {most}")
        if own is not None:
            unknown = sorted(set(ledger.charged) - set(own.charged))
            if unknown and not own.torn:
                wrong.append(f"round {unknown[0]} is charged here and not by the server")
        elif evidence.ledger is not None and ledger.spent > int(evidence.ledger.get("charges") or 0):
            wrong.append(f"{ledger.spent} charges, more than the {evidence.ledger.get('charges')} of the server")
        findings.decide(
            f"{path}: agrees with the server",
            not wrong,
            f"the same plan, and {ledger.spent} of its rounds",
            "; ".join(wrong),
        )


def _name_unchecked(evidence: Evidence, findings: Findings, *, others: bool, signed: Signed | None) -> None:
    """Name what this check cannot know, so that nobody takes silence for a yes."""
    countersigned = signed is not None and any(each.signer != SERVER_NAME for each in signed.signatures)
    if evidence.private and not others and not countersigned and evidence.summary.get("deployed"):
        findings.unchecked(
            "sites' ledgers", "none was given; name them with --ledgers to find a server that told sites otherwise"
        )
    if evidence.private:
        findings.beyond(
            "noise and clipping", "that each client added its noise is what sottovoce audit tests; no file shows it"
        )
        findings.beyond("other runs", "what else was released about the same records is in no file of this run")
    if evidence.audit is not None:
        findings.beyond("audit", "what it found is its author's word; repeat it: sottovoce audit RUN")
    findings.beyond("quality", "that the accuracy is true needs the model and the test records; hashes only bind it")
    if signed is None:
        findings.beyond("author", "nothing is signed: hashes show a change, not who wrote it")
