"""Tell what attacked runs say of their attack: which it was, how far it came, and whether the model outlived it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from sottovoce.report.units import percent

Record = Mapping[str, Any]

DIVERGED: Final = "-"  # in place of an accuracy, as the papers print it
HONEST: Final = "none"  # the attack of a run in which nobody misbehaves

_OUTCOMES: Final = ("attack_success", "class_accuracy")


def attack_of(threat: Record) -> tuple[str | None, float | None]:
    """Return the attack that a `[threat]` table names and the share of malicious clients; None where nobody attacks.

    >>> attack_of({"attack": "random", "fraction": "1/10"}), attack_of({})
    (('random', 0.1), (None, None))
    """
    name = threat.get("attack")
    if not name or name == HONEST:
        return None, None
    try:
        return str(name), float(Fraction(str(threat.get("fraction"))))
    except (ValueError, ZeroDivisionError, OverflowError):
        return str(name), None


def attack_facts(threat: Record) -> dict[str, Any]:
    """Return the facts that the config alone tells; none if nobody attacks."""
    name, fraction = attack_of(threat)
    return {} if name is None else {"attack": name, "attack_fraction": fraction}


def facts_of_rounds(rounds: Sequence[Record], best: Record, last: Record) -> dict[str, Any]:
    """Return what the rounds so far tell, under the names of the summary; `last` is the last one that was evaluated."""
    told: dict[str, Any] = {}
    for key in _OUTCOMES:
        if any(record.get(key) is not None for record in rounds):
            told |= {f"{key}_best": best.get(key), f"{key}_final": last.get(key)}
    # As in the summary, the last measurement decides: any model is at the level of guessing in its first rounds. It
    # may have no accuracy at all, and then it is not `last`.
    measured = [record for record in rounds if "accuracy" in record]
    if measured and measured[-1].get("diverged") is True:
        told["diverged"] = True
    rejected = sum(record.get("rejected") is True for record in rounds)
    return told | ({"rejected_rounds": rejected} if rejected else {})


def diverged(record: Record) -> bool:
    """Tell whether a run ended at the level of guessing or without finite scores; its accuracy is no result then."""
    return record.get("diverged") is True


def attack_words(record: Record) -> str:
    """Return the attack of a run and the share of malicious clients, for people.

    >>> attack_words({"attack": "in-backdoor", "attack_fraction": 0.1}), attack_words({})
    ('in-backdoor 10 %', 'none')
    """
    name, fraction = record.get("attack"), record.get("attack_fraction")
    if not name or name == HONEST:
        return HONEST
    return str(name) if fraction is None else f"{name} {percent(fraction)}"
