"""Tell the operator what came of the rounds: a run that learned nothing is a failure, whatever its files look like.

The sum of a round without quorum is covered for outsiders, so a private run looks the same with and without answers.
The operator must know, at the first such round and at the end. What is counted here is the operator's alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sottovoce.runs.folder import read_operator, read_rounds
from sottovoce.runs.records import Record

_WITHOUT = ("reason", "aborted", "void", "rejected")


def learned(record: Record) -> bool:
    """Tell whether a round, as the operator sees it, changed the model by what clients sent."""
    return bool(record.get("senders")) and not any(record.get(key) for key in _WITHOUT)


def shortfall(folder: Path, least: float) -> str | None:
    """Say in one sentence that a finished run learned in too small a share of its rounds; None if it did not.

    `least` is `[experiment] least_rounds`. A run that learned in no round falls short of any share.
    """
    rounds = _whole(folder)
    if not rounds:
        return None
    fruitful = sum(map(learned, rounds))
    if fruitful and fruitful >= least * len(rounds):
        return None
    operator = folder / "operator.jsonl"
    where = f"{operator if operator.exists() else folder / 'rounds.jsonl'} says why"
    advice = "see that clients are there and that their bytes fit into the time-outs; the model is not to be used"
    if not fruitful:
        return f"nothing was learned: none of {len(rounds)} rounds had enough answers; {where}; {advice}"
    asked = f"[experiment] least_rounds asks for {least:g} of them"
    return f"only {fruitful} of {len(rounds)} rounds had enough answers, {asked}; {where}; {advice}"


def warn_once(say: Callable[[str], None]) -> Callable[[Record], None]:
    """Return what takes in rounds as the operator sees them, and says of the first without a sum that it had none."""
    silent = True

    def take(record: Record) -> None:
        nonlocal silent
        if silent and record.get("cohort") != 0 and not learned(record):
            silent = False
            # A reason may follow from clients' records, and what a terminal shows ends up in logs.
            reason = "operator.jsonl says why" if record.get("private") else record.get("reason") or "nobody answered"
            say(f"warning: round {record['round']} taught the model nothing: {reason}; this is said once")

    return take


def _whole(folder: Path) -> list[Record]:
    """Return the rounds of a finished run with what its operator knows of each."""
    secret = {record["round"]: record for record in read_operator(folder)}
    return [{**record, **secret.get(record["round"], {})} for record in read_rounds(folder)]
