"""The `[threat]` table of an experiment file, and what it cannot be combined with."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from sottovoce.config.table import Rate, Table, named
from sottovoce.core.registry import check_keys
from sottovoce.threats.attacks import ATTACKS

if TYPE_CHECKING:
    from sottovoce.config.experiment import Experiment
    from sottovoce.schemes import Scheme


class ThreatTable(Table):
    """The `[threat]` table: malicious clients and what they do; without this table everyone is honest."""

    attack: Annotated[str, named(ATTACKS)] = Field(
        description="What malicious clients do; `sottovoce attacks` explains each. An attack of your own is named "
        '"module:Class".'
    )
    fraction: Rate = Field(
        Fraction(1, 10),
        ge=0,
        lt=1,
        description="Share of malicious clients, a number or a fraction, rounded up to whole clients. 0: everyone is "
        "honest, but the records are dealt as under the attack, to compare with.",
    )
    of: Literal["cohort", "population"] = Field(
        "cohort",
        description='What it is a share of. "cohort": of the clients asked in each round, other ones every time, as '
        'the papers say. "population": the same clients in all rounds; a round has as many of them as it draws.',
    )
    boost: float | None = Field(
        None,
        gt=0,
        description="Factor by which malicious messages are made larger. Not set: the papers' value, which is 1 for "
        "fl-cs and where a message is one bit, and 5000 for private fl-sign.",
    )
    collude: bool | None = Field(
        None,
        description="Whether malicious clients of a round pool their records and all send the same. Not set: as the "
        "attack's paper has it.",
    )
    pool: Literal["round", "all"] = Field(
        "round",
        description='Whose records they pool. "round": those of the malicious clients of the round. "all": of all '
        "malicious clients of the population, in every round, as the thesis writes.",
    )
    rounds: list[Annotated[list[int], Field(min_length=2, max_length=2)]] | None = Field(
        None,
        description="Stretches of rounds with an attack, such as [[1, 20], [60, 80]], both ends included; in the other "
        "rounds everyone is honest. Not set: every round.",
    )
    source: int | str | None = Field(
        None,
        description="Class whose records are to be taken for another, by number or name. Not set: the papers' (5 for "
        "in-backdoor and the like, 0 for out-backdoor and on cifar10).",
    )
    target: int | str | None = Field(
        None,
        description="Class that they are to be taken for. Not set: the papers' (7 for source 5, 1 for source 0, 8 on "
        "cifar10).",
    )
    remove: list[int | str] | None = Field(
        None,
        description="Classes that nobody has and nothing is measured on. Not set: none, but birds and trucks (2 and 9) "
        "for out-backdoor on cifar10, as in the thesis.",
    )
    stddev: float = Field(
        200.0, gt=0, description="For random-update: standard deviation of the noise (sigma_Adv of the papers)."
    )
    edge: float = Field(
        0.05,
        gt=0,
        le=0.5,
        description="For edge-case-backdoor: share of the source class, furthest from its mean, that is the tail.",
    )
    omit_noise: bool = Field(
        True,
        description="In a private run: malicious clients add no noise. Nobody can see it under a secure sum.",
    )
    skip_clipping: bool = Field(
        True,
        description="In a private run: malicious clients do not clip. Nobody can see it under a secure sum.",
    )
    give_up: int = Field(
        0,
        ge=0,
        description="End the run after so many measurements in a row at the level of guessing. 0: play all rounds.",
    )
    keys: dict[str, Any] = Field(
        default_factory=dict,
        description="The attack's own keys; in a file they stand in [threat] itself.",
    )


def aims(attack: Any) -> bool:
    """Tell whether an attack may have a source and a target class; an unknown one is refused elsewhere."""
    return not (isinstance(attack, str) and attack in ATTACKS) or ATTACKS[attack].poison != "nothing"


def check_threat(experiment: Experiment, scheme: Scheme) -> None:
    """Raise if an attack cannot be played with the other tables; ValueError is one sentence of the config's."""
    table = experiment.threat
    if table is None:
        return
    key = f'[threat] attack = "{table.attack}"'
    kind = ATTACKS[table.attack]
    check_keys(table.attack, kind, table.keys)
    if not aims(table.attack) and (table.source, table.target) != (None, None):
        raise ValueError(f"{key} aims at no class; remove [threat] source and target")
    if table.source is not None and table.source == table.target:
        raise ValueError(f"[threat] source and target must be two classes, got {table.source!r} for both")
    for stretch in table.rounds or ():
        if not 1 <= stretch[0] <= stretch[1]:
            raise ValueError(f"[threat] rounds: each stretch is [first, last] with 1 <= first <= last, got {stretch}")
    if table.rounds is not None and not table.rounds:
        raise ValueError("[threat] rounds is empty, so nobody ever attacks; remove it, or set fraction = 0")
    if table.pool == "all" and not (kind.colludes if table.collude is None else table.collude):
        raise ValueError(f'{key} pools no records; set [threat] collude = true, or remove pool = "all"')
    if table.attack == "random-update" and table.collude:
        raise ValueError(f"{key} draws noise for every client by itself; remove [threat] collude")
    if kind.form == "quarter" and not experiment.protocol.hides_updates:
        raise ValueError(
            f'{key} hides its words under a secure sum, but [aggregation] secure is "none"; set it to "ideal" or "real"'
        )
    if kind.form == "quarter" and experiment.privacy and experiment.privacy.mechanism == "gaussian":
        raise ValueError(f'{key} needs a modulus, and [privacy] mechanism = "gaussian" has none; remove it')
    if kind.form == "energy" and experiment.privacy is None:
        raise ValueError(f"{key} stays below the guard of a private run, and this run is not private; add [privacy]")
    seen = not experiment.protocol.hides_updates
    if table.boost is not None and scheme.form == "signs" and seen and table.boost != 1:
        raise ValueError(
            f"[threat] boost = {table.boost:g} cannot be said in the one bit that {scheme.name} sends for each value; "
            'remove it, or hide the messages ([aggregation] secure = "ideal")'
        )
