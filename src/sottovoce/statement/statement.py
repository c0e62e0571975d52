"""The statement of a run: what was asked, of whom, what left, what is promised against whom, and what is not.

It is a function of its evidence alone, so that whoever has the evidence can write it again and compare.
"""

from __future__ import annotations

import json
import math
import tomllib
from typing import Any, Final

from sottovoce.core.errors import InputError
from sottovoce.privacy.ledger import hash_of
from sottovoce.report.quality import quality_of
from sottovoce.report.units import epsilon as epsilon_words
from sottovoce.runs.population import source_words
from sottovoce.statement.evidence import Evidence
from sottovoce.statement.odds import odds
from sottovoce.statement.questions import model_card, nist_answers, registry_fields
from sottovoce.statement.signatures import describe_signed
from sottovoce.statement.twin import price_of_privacy

VERSION: Final = 1
_QUALITY: Final = (
    "accuracy",
    "balanced_accuracy",
    "auroc",
    "auprc",
    "f1",
    "loss",
    "brier",
    "sensitivity",
    "specificity",
)
_SECURE: Final = {
    "none": "Updates reach the server one by one, in the clear for it.",
    "ideal": "The secure sum was computed in the simulation, without its cryptography.",
    "real": "Each client masks its words with keys that it agrees with others; the server opens the sum alone. "
    "Round keys are made by each client and erased after the round; signing keys stay with their owners.",
    "ballot": "Each value is one secret vote, split between leader and helper; neither reads a ballot, both together "
    "do. Each of the two holds its own keys and adds its own noise.",
}
_NEVER: Final = (
    "That a site is enrolled, and how many sites there are: both are public.",
    "Facts about everybody: what is true of the whole population is learnt, whoever takes part.",
    "A record that its owner, or somebody with access to the site, tells elsewhere.",
)


def make_statement(evidence: Evidence) -> dict[str, Any]:
    """Return the statement of a run as JSON has it; `hash` is over all the rest."""
    try:
        config = tomllib.loads(evidence.config)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"config.toml cannot be read: {error}") from None
    summary, plan = evidence.summary, evidence.plan
    adversaries = _adversaries(evidence)
    body: dict[str, Any] = {
        "statement": VERSION,
        "name": summary.get("name"),
        "in_one_sentence": _sentence(evidence, adversaries),
        "simulated": not summary.get("deployed"),
        "trial": bool(summary.get("trial")),
        "private": evidence.private,
        "asked": _asked(config, summary),
        "records": _records(config, summary, plan),
        "left_each_site": _left(summary),
        "unit_of_protection": _unit(plan),
        "against": adversaries,
        "keys": _SECURE.get(str(summary.get("secure")), "unknown"),
        "signed": describe_signed(evidence.signatures, deployed=bool(summary.get("deployed"))),
        "audit": _audit(evidence),
        "quality": _quality(evidence),
        "cost": _cost(summary),
        "not_protected": _not_protected(evidence),
        "software": evidence.software,
        "digests": None if evidence.digests is None else evidence.digests["files"],
        "ledger": evidence.ledger,
        "model_card": model_card(evidence),
        "nist_sp_800_226": nist_answers(evidence),
        "registry": registry_fields(evidence),
        "how_to_check": [
            "sottovoce verify STATEMENT (offline; solves the plan again, compares every number)",
            "sottovoce verify STATEMENT --run RUN (compares with the run folder and its model too)",
            "sottovoce verify STATEMENT --ledgers PATH (compares with what sites and helpers wrote down)",
            "sottovoce verify STATEMENT --root FINGERPRINT (the root key of the roster is the one that you know)",
        ],
        "evidence": evidence.record(),
    }
    body = json.loads(json.dumps(body))
    return body | {"hash": hash_of(body)}


def _sentence(evidence: Evidence, adversaries: list[dict[str, Any]]) -> str:
    summary = evidence.summary
    if not evidence.private:
        return "This run is not private: it promises nothing about anybody's records."
    epsilon, delta = summary.get("epsilon"), summary.get("delta")
    server = next((each for each in adversaries if each["who"] == "the server"), None)
    begin = ""
    if not summary.get("deployed"):
        begin = "This was a simulation on one machine, and protects nobody. Between machines it would promise: "
    elif summary.get("trial"):
        begin = (
            "This was a trial: one machine held all records and keys, and nobody is protected from whoever ran it. "
            "Between machines it would promise: "
        )
    unit = _unit(evidence.plan)["is"]
    first = "nothing is promised against outsiders beyond what is promised against the server"
    if epsilon is not None and delta is not None:
        right = percent(adversaries[0]["odds"]["right_guesses_at_most"])
        first = (
            f"an outsider who is unsure whether a given {unit} took part, and must decide, is right in at most {right} "
            f"of cases (epsilon {number(epsilon)}, delta {delta:g})"
        )
    second = ""
    if server is not None and server["epsilon"] is not None:
        right = percent(server["odds"]["right_guesses_at_most"])
        second = f"; the server, in at most {right} (epsilon {number(server['epsilon'])})"
        if epsilon is None:
            second = (
                f": who is unsure whether a given {unit} took part, and must decide, is right in at most {right} of "
                f"cases (epsilon {number(server['epsilon'])}, delta {delta:g})"
            )
    elif server is not None:
        second = "; against the server there is no bound"
    text = first + second + "."
    return begin + text if begin else text[0].upper() + text[1:]


def _asked(config: dict[str, Any], summary: dict[str, Any]) -> dict[str, Any]:
    model, data = config.get("model", {}), config.get("data", {})
    task = "tell statistics of" if "statistics" in config else f"train the model {model.get('name')!r} on"
    return {
        "task": f"{task} {source_words(data.get('source'))!r}",
        "scheme": summary.get("scheme"),
        "rounds": summary.get("rounds"),
        "rounds_planned": summary.get("rounds_planned"),
        "parameters": summary.get("parameters", summary.get("dim")),
        "sites_asked_each_round": summary.get("expected_cohort"),
        "stopped_early": summary.get("stopped_early"),
    }


def _records(config: dict[str, Any], summary: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    population = summary.get("population")
    source = source_words(config.get("data", {}).get("source"))
    name = population.get("name") if isinstance(population, dict) else source
    return {
        "population": name,
        "sites": summary.get("clients"),
        "measured_on": summary.get("test_data"),
        "public": summary.get("public"),
        "chosen_on": summary.get("chosen_on"),
        "unsafe_keys": plan.get("unsafe", []),
    }


def _left(summary: dict[str, Any]) -> dict[str, Any]:
    private = bool(summary.get("private"))
    what = "sums over the site's records" if "statistics" in summary else "the update of the model"
    kinds = [what + (", clipped and with noise" if private else "")]
    if summary.get("secure") in ("real", "ballot"):
        kinds = [f"{kinds[0]}, masked so that only the sum can be read", "public keys, sealed shares and signatures"]
    if summary.get("vote"):
        kinds.append("one vote for coordinates before round 1, with noise")
    if summary.get("warm_start"):
        kinds.append("one message before round 1 that finds where to begin")
    if summary.get("whitening"):
        noise = ", with noise" if private else ""
        kinds.append(f"one message before round 1 with the mean and second moments of the site's features{noise}")
    if summary.get("measurements"):
        kinds.append(
            "how often the model is right on a part of the site's records" + (", with noise" if private else "")
        )
    return {
        "kinds": kinds,
        "never": "records, labels and single results never leave a site",
        "bytes_up_per_round": summary.get("bytes_up_per_client_round"),
        "bytes_down_per_round": summary.get("bytes_down_per_client_round"),
        "bytes_once": summary.get("bytes_setup_per_client"),
        "bytes_are": "expected values: measured ones would tell how many took part" if private else "measured",
        "most_rounds_of_one_site": (summary.get("privacy") or {}).get("max_participations"),
    }


def _unit(plan: dict[str, Any]) -> dict[str, Any]:
    request = plan.get("request")
    unit = request.get("unit", "client") if isinstance(request, dict) else "client"
    return {
        "is": {"client": "client (site)"}.get(str(unit), str(unit)),
        "adjacency": plan.get("adjacency"),
        "clip_norm": plan.get("clip_norm"),
        "clipping": plan.get("clipping"),
    }


def _adversaries(evidence: Evidence) -> list[dict[str, Any]]:
    """Return who could look, what they are assumed to know, and what is promised against them."""
    summary, plan = evidence.summary, evidence.plan
    if not evidence.private:
        return [
            {"who": who, "knows": knows, "epsilon": None, "delta": None, "note": "no promise", "odds": odds(None, None)}
            for who, knows in (("outsiders", "the model"), ("the server", "what it receives"))
        ]
    ballots = str(plan.get("noise_by")).startswith("two aggregators")
    rows: list[tuple[str, str, Any, str | None]] = [
        ("outsiders", str(plan.get("epsilon_against")), summary.get("epsilon"), summary.get("epsilon_reason")),
        (
            "the server",
            str(plan.get("epsilon_server_against") or "who was asked in which round, and all sums"),
            summary.get("epsilon_server"),
            None,
        ),
        ("another site of the same round", "its own update and noise", plan.get("epsilon_member"), None),
    ]
    if ballots:
        rows.append(("both aggregators together", "every ballot", None, str(plan.get("epsilon_both_aggregators_is"))))
    else:
        third = plan.get("epsilon_server_if_a_third_colludes")
        rows.append(("the server with a third of each round's sites", "their noise too", third, None))
    if not summary.get("deployed"):
        rows.append(("whoever ran this simulation", "every record and every seed", None, "one machine saw everything"))
    elif summary.get("trial"):
        rows.append(("whoever ran this trial", "every record and every key", None, "one machine saw everything"))
    if summary.get("epsilon_not_against"):
        rows.append(
            ("who watches the network", "who was asked", summary.get("epsilon_server"), summary["epsilon_not_against"])
        )
    if "epsilon_under_attack" in summary:
        rows.append(("outsiders, under the attack that was played", "the same", summary["epsilon_under_attack"], None))
    delta = summary.get("delta")
    return [
        {
            "who": who,
            "knows": knows,
            "epsilon": epsilon,
            "delta": None if epsilon is None else delta,
            "note": note or ("no bound" if epsilon is None else None),
            "odds": odds(epsilon, delta),
        }
        for who, knows, epsilon, note in rows
    ]


def _audit(evidence: Evidence) -> dict[str, Any]:
    told: dict[str, Any] = {"attack_played": evidence.summary.get("attack"), "found": evidence.audit}
    if evidence.audit is None:
        return told | {"says": "nobody audited this run; type: sottovoce audit RUN"}
    if evidence.audit.get("accused"):
        return told | {"says": "the audit contradicts the promise; do not rely on it"}
    return told | {"says": "the audit found nothing above what is promised; it can only accuse, never prove"}


def _quality(evidence: Evidence) -> dict[str, Any]:
    """Return what the summary tells of quality, with every interval, baseline and subgroup that it has."""
    summary = evidence.summary
    told = {key: value for key, value in summary.items() if key.startswith(_QUALITY) and value is not None}
    told.pop("accuracy_by_class_final", None)
    judged = quality_of(summary)
    reason = summary.get("quality_reason") or f"nobody measured ({summary.get('test_data')})"
    missing = f"unknown: {reason}"
    level, intervals = judged.get("level"), judged.get("intervals")
    classes = dict(zip(judged.get("classes") or (), judged.get("accuracy_by_class") or (), strict=False))
    return {
        "measured_on": summary.get("test_data"),
        "verdict": judged.get("verdict") or ("above its baseline" if judged else missing),
        "numbers": told,
        "intervals": {"level": level, **intervals} if isinstance(intervals, dict) and intervals else missing,
        "noise": judged.get("noise") or "none in the numbers",
        "baseline": judged.get("baseline") or missing,
        "by_class": classes or missing,
        "worst_class": judged.get("worst_class") or missing,
        "by_subgroup": judged.get("subgroups")
        or judged.get("subgroups_reason")
        or "unknown: no [data] subgroup was declared",
        "by_site": judged.get("sites") or judged.get("sites_reason") or "unknown: no site's own numbers are told",
        "calibration_error": judged.get("calibration_error"),
        "price_of_privacy": price_of_privacy(evidence.config, summary, evidence.twin),
    }


def _cost(summary: dict[str, Any]) -> dict[str, Any]:
    joules = summary.get("joules_per_client")
    return {
        "bytes_up_total": summary.get("bytes_up_total"),
        "bytes_down_total": summary.get("bytes_down_total"),
        "joules_per_site": joules,
        "energy": "estimated from a device profile" if joules is not None else "not estimated: no [devices] profile",
    }


def _not_protected(evidence: Evidence) -> list[str]:
    """Name what nobody should take to be protected."""
    summary, plan = evidence.summary, evidence.plan
    if not evidence.private:
        return ["Anybody: the model, and every update that the server saw, may tell about single records.", *_NEVER]
    said = []
    if not summary.get("deployed"):
        said.append("Anything: this was a simulation, and one machine held all records and seeds.")
    elif summary.get("trial"):
        said.append("Anything, from whoever ran this trial: one machine held all records and keys.")
    if plan.get("unsafe"):
        said.append(f"What these keys let through without a charge: {', '.join(plan['unsafe'])}.")
    if summary.get("epsilon_not_against"):
        said.append(f"Against {summary['epsilon_not_against']}.")
    if str(summary.get("test_data", "")).startswith("none") and "statistics" not in summary:
        said.append("Quality was not measured.")
    population = summary.get("population")
    if isinstance(population, dict) and not population.get("budget"):
        said.append("Other runs on the same records add to this one, and no budget file counts them.")
    said.append("Who took part is visible to the server, and poisoning by a site is not prevented by noise.")
    return [*said, *_NEVER]


def number(value: float | None) -> str:
    """Return an epsilon, rounded up to four digits; ∞ where there is no bound."""
    return "∞" if value is None else str(epsilon_words(value))


def percent(share: float) -> str:
    r"""Return a bound in per cent, rounded up to one place.

    >>> percent(0.7310585786)
    '73.2\xa0%'
    """
    return f"{min(100.0, math.ceil(share * 1000 - 1e-9) / 10):g}\u00a0%"
