"""Check what a run folder says of its own privacy: each release charged, and to the plan that its config solves to.

These checks have no chance in them. What they compute of the cohorts that were drawn stays here: an audit may be
published, and the size of a cohort may not.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.config.experiment import Experiment, load
from sottovoce.core.errors import InputError, RunError
from sottovoce.federation.aggregation.ballots.account import HELPER_LEDGER
from sottovoce.federation.round import draws_commitment
from sottovoce.federation.stages.vote import VOTE
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.ledger import verify
from sottovoce.runs.folder import read_operator, read_rounds, read_summary
from sottovoce.runs.records import OPERATOR_ONLY
from sottovoce.studies.audit.accounts import Names, check_account
from sottovoce.studies.audit.ballots.records import check_helper
from sottovoce.studies.audit.verdict import FALSE_ALARM
from sottovoce.threats.audit.finding import AuditFinding, checked

_LEDGER = Names("ledger chain", "ledger plan", "rounds charged", "charges within the budget", "the ledger")
_FEWEST = 8  # rounds that show a line
_ROUNDED = 1e-3  # of an epsilon: another version of the accountant may differ by as much


def read_experiment(run: Path) -> Experiment:
    """Return the experiment of a run folder, if its config names all of its parts."""
    config = run / "config.toml"
    if not config.is_file():
        raise InputError(f"{run} holds no run: it has no config.toml")
    try:
        given = json.loads((run / "environment.json").read_text(encoding="utf-8")).get("given", [])
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(f"{run / 'environment.json'} is damaged: {error}") from None
    if given:
        raise InputError(
            f"these parts of {run} were given as Python objects, which a run folder does not hold: {', '.join(given)}; "
            "audit an experiment file with the same [privacy], [cohort] and [scheme] in its place"
        )
    return load(config)


def check_folder(run: Path, plan: PrivacyPlan) -> list[AuditFinding]:
    """Return the checks of a folder's records against the plan that its config solves to."""
    rounds, summary = read_rounds(run), read_summary(run)
    chain = verify(run / "ledger.jsonl")
    entries = _entries(run / "ledger.jsonl")
    opened = entries[0] if entries else {}
    if opened.get("deployment"):
        plan = _between_machines(plan)
    told = {int(record["round"]) for record in rounds if "aborted" not in record}
    experiment = load(run / "config.toml")
    if told and _opens(experiment):
        told |= {VOTE}
    if experiment.experiment.evaluation == "federated":  # a measurement is charged under its number below 0
        told |= {-int(record["round"]) for record in rounds if record.get("accuracy") is not None}
    leaked = sorted(_secret_keys([rounds, summary])) + _followers(rounds, read_operator(run))
    found = [
        *check_account(_LEDGER, chain, opened, plan, told),
        checked(
            "secrets of cohorts",
            not leaked,
            f"rounds.jsonl and summary.json may be published and tell {', '.join(leaked)}, from which cohorts can be "
            "computed",
        ),
        _epsilons(rounds, summary, plan, chain.charged),
    ]
    if plan.shares.by_aggregators and not opened.get("deployment"):  # elsewhere the helper keeps its own
        found += check_helper(run, plan, told, _entries(run / HELPER_LEDGER))
    return [*found, *_draws(run, plan, entries)]


def _opens(experiment: Experiment) -> bool:
    """Tell whether there is a private round before round 1: a vote or a warm start."""
    table = experiment.privacy
    return table is not None and (table.vote_noise_multiplier, table.warm_noise_multiplier) != (None, None)


def _secret_keys(document: Any) -> set[str]:
    """Return the operator's keys in a document, however deep, that hold something."""
    if isinstance(document, list):
        return {key for part in document for key in _secret_keys(part)}
    if not isinstance(document, dict):
        return set()
    own = {key for key, value in document.items() if key in OPERATOR_ONLY and value is not None}
    return own.union(*map(_secret_keys, document.values()))


def _followers(rounds: list[dict[str, Any]], operator: list[dict[str, Any]]) -> list[str]:
    """Return keys of the rounds that are a linear function of a secret of the operator, whatever they are called."""
    secrets = {int(record["round"]): record for record in operator if record["round"]}
    both = [(record, secrets[record["round"]]) for record in rounds if record["round"] in secrets]
    found = []
    for key in sorted({key for record, _ in both for key in record} - {"round"}):
        for secret in ("cohort", "senders", "bytes_up", "bytes_down"):
            pairs = [(own.get(secret), record.get(key)) for record, own in both]
            known = np.array([pair for pair in pairs if all(type(each) in (int, float) for each in pair)], float)
            if len(known) < _FEWEST or len(set(known[:, 0])) < 3 or np.ptp(known[:, 1]) == 0:
                continue  # a few sizes lie on a line with anything
            line = np.polynomial.Polynomial.fit(known[:, 0], known[:, 1], 1)
            if np.max(np.abs(line(known[:, 0]) - known[:, 1])) < 1e-9 * np.ptp(known[:, 1]):
                found.append(f"{key} (which follows from {secret})")
                break
    return found


def _between_machines(plan: PrivacyPlan) -> PrivacyPlan:
    """Return the plan as machines solve it: the same numbers, for noise that comes from the operating system."""
    keys = {field.name: getattr(plan.request, field.name) for field in fields(plan.request)}
    return PrivacyPlan.solve(**keys | {"deployment": True})


def _epsilons(
    rounds: list[dict[str, Any]], summary: dict[str, Any] | None, plan: PrivacyPlan, charged: list[int]
) -> AuditFinding:
    """Check that no epsilon that was written down is below what the plan says."""
    low: list[str] = []
    for record in rounds:
        spent = len({round_ for round_ in charged if 0 < round_ <= record["round"]})
        reading = plan.epsilon_after(min(spent, plan.rounds))
        old = "epsilon_spent" not in record  # an older version wrote the reading as epsilon
        real = {"epsilon": reading if old else plan.epsilon, "epsilon_spent": reading}
        low += [f"{key} of round {record['round']}" for key, value in real.items() if _below(record.get(key), value)]
    if summary is not None:
        spent = len({round_ for round_ in charged if round_ > 0})
        real = {"epsilon": plan.epsilon, "epsilon_server": plan.epsilon_server, "epsilon_best_round": plan.epsilon}
        real["epsilon_spent"] = plan.epsilon_after(min(spent, plan.rounds))
        low += [f"{key} of the summary" for key, value in real.items() if _below(summary.get(key), value)]
        if summary.get("noise_multiplier") is not None and _below(plan.noise_multiplier, summary["noise_multiplier"]):
            low.append("noise_multiplier of the summary")
    first = low[0] if low else ""
    return checked("epsilons told", not low, f"{len(low)} figures promise more than the plan does: {first}")


def _below(told: Any, real: float) -> bool:
    """Tell whether a figure promises less than it really is; null promises nothing."""
    if told is None:
        return False
    return math.isinf(real) or float(told) < real * (1 - _ROUNDED)


def _draws(run: Path, plan: PrivacyPlan, entries: list[dict[str, Any]]) -> list[AuditFinding]:
    """Check how often clients were drawn: as the ledger has bound it, and no oftener than coins of that rate give."""
    path = run / "checkpoint" / "state.npz"
    if not path.is_file():
        return []
    try:
        with np.load(path, allow_pickle=False) as arrays:
            state = {name: arrays[name] for name in ("draws", "draws_salt")}
            round_ = int(arrays["round"])
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    bound = [entry.get("commitment") for entry in entries if entry.get("kind") == "draws" and entry["round"] == round_]
    total, trials = int(state["draws"].sum()), plan.request.clients * round_
    if plan.request.sampling == "fixed":
        plausible = total == plan.request.cohort_size * round_
    else:
        from scipy.stats import binom

        rate = plan.request.sample_rate
        plausible = min(binom.cdf(total, trials, rate), binom.sf(total - 1, trials, rate)) > FALSE_ALARM / 100
    return [
        checked(
            "draws bound",
            bool(bound) and bound[-1] == draws_commitment(state),
            "the checkpoint counts other draws than the ledger has bound",
        ),
        checked("draws of the run", plausible, "clients were drawn at another rate than the plan is charged for"),
    ]


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
        entries = [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return []
    return [entry for entry in entries if isinstance(entry, dict)]
