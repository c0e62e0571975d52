"""Three arms at the same epsilon: noisy shares under attack, ballots under attack, and nobody attacking.

The shares are today's private scheme, whose malicious clients leave out their noise and boost their words as far as
they like. A ballot's malicious clients may send any bytes too, which is one vote each. Every cell is a run folder, so
that a study that was interrupted goes on, and `sottovoce report` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.errors import InputError
from sottovoce.search.runner import Campaign, Tell

ARMS: Final = {"shares": "ideal", "ballots": "ideal-ballot"}


class BallotRow(NamedTuple):
    """One arm under one attack, over all seeds; without an attack `attack` is empty."""

    arm: str
    attack: str
    fraction: float
    seeds: int
    accuracy: float
    accuracy_lowest: float
    attack_success: float | None
    lost: int  # runs whose model is at the level of guessing
    votes: float  # honest contributions that one client can pass for
    bytes_up: int  # of one client in a round


class _Cell(NamedTuple):
    arm: str
    attack: str
    fraction: float
    seed: int
    experiment: Experiment


def play_arms(
    experiment: Experiment,
    out: Path,
    *,
    attacks: Sequence[str],
    fractions: Sequence[float],
    seeds: int,
    tell: Tell = lambda done, cells, what: None,
) -> list[dict[str, Any]]:
    """Play every arm, attack, fraction and seed that is not there yet, and return the summaries of all."""
    cells = list(_cells(experiment, attacks, fractions, seeds))
    summaries = Campaign(out).play_all([cell.experiment for cell in cells], tell=tell)
    return [
        {"arm": cell.arm, "of": cell.attack, "part": cell.fraction, "seed": cell.seed, **summary}
        for cell, summary in zip(cells, summaries, strict=True)
    ]


def rows_of(cells: Sequence[dict[str, Any]], votes: dict[str, float]) -> list[BallotRow]:
    """Return one row an arm, attack and fraction; `votes` is A of each arm."""
    rows = []
    for key in dict.fromkeys((cell["arm"], cell["of"], cell["part"]) for cell in cells):
        some = [cell for cell in cells if (cell["arm"], cell["of"], cell["part"]) == key]
        accuracies = [cell["accuracy_final"] or 0.0 for cell in some]
        successes = [cell["attack_success_final"] for cell in some if cell.get("attack_success_final") is not None]
        rows.append(
            BallotRow(
                *key,
                seeds=len(some),
                accuracy=float(np.mean(accuracies)),
                accuracy_lowest=min(accuracies),
                attack_success=float(np.mean(successes)) if successes else None,
                lost=sum(bool(cell.get("diverged")) for cell in some),
                votes=votes[key[0]],
                bytes_up=int(some[0]["bytes_up_per_client_round"]),
            )
        )
    return rows


def _cells(experiment: Experiment, attacks: Sequence[str], fractions: Sequence[float], seeds: int) -> Iterator[_Cell]:
    kinds = [("", 0.0), *((attack, fraction) for attack in attacks for fraction in fractions)]
    first = experiment.experiment.seed
    for attack, fraction in kinds:
        for arm in ARMS:
            for seed in range(first, first + seeds):
                yield _Cell(arm, attack, fraction, seed, arm_of(experiment, arm, attack, fraction, seed))


def arm_of(experiment: Experiment, arm: str, attack: str, fraction: float, seed: int) -> Experiment:
    """Return the experiment of one cell; a boost that the file's `[threat]` has is for shares, a bit cannot have it."""
    if experiment.privacy is None:
        raise InputError("the arms of a study of ballots have one epsilon; add [privacy]")
    tables = experiment.tables()
    tables.pop("threat", None)
    name = f"{arm}-{attack or 'honest'}-{fraction:g}-seed-{seed}"
    tables["experiment"] |= {"seed": seed, "name": name}
    tables["aggregation"] |= {"secure": ARMS[arm]}
    if arm == "shares":
        tables["aggregation"].pop("ballot", None)
    if attack:
        given = {} if experiment.threat is None else experiment.threat.model_dump(mode="json", exclude_unset=True)
        given |= given.pop("keys", {})  # of an attack of one's own
        kept = {key: value for key, value in given.items() if key != "boost" or arm == "shares"}
        tables["threat"] = {**kept, "attack": attack, "fraction": fraction}
    return parse(tables, where=name)
