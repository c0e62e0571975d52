"""How much an audit plays, and the federation that it plays with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

from sottovoce.assembly.engines import start_engine
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import Protection, protect
from sottovoce.assembly.stages import TRAINING, ServerSide, made_up_importance, stages
from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range
from sottovoce.privacy import PrivacyPlan
from sottovoce.studies.audit.one_run import Start, start_local

CONFIDENCE = 0.95
ENOUGH = 400  # canaries: more hardly show more
CONDITIONAL = 1e-3  # the Gaussian bound comes near the truth, and at 0.05 would often be above it

Tell = Callable[[str, int, int], None]


def _silence(what: str, done: int, total: int) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Options:
    """How much an audit plays. None: as much as takes about a minute, and less if it is to be quick.

    `games` are runs against the server, `canaries` those of one run against outsiders, `seeds` the number of such runs.
    A `quick` audit trains nobody. A `secure` one plays its games through real secure aggregation.
    """

    games: int | None = None
    canaries: int | None = None
    seeds: int | None = None
    quick: bool = False
    secure: bool = False
    confidence: float = CONFIDENCE
    seed: int = 0
    start: Start = start_local
    tell: Tell = field(default=_silence, repr=False)

    def __post_init__(self) -> None:
        in_range("confidence", self.confidence, low=0.5, high=1, open_high=True)
        in_range("seed", self.seed, low=0)
        if self.seeds is not None:
            in_range("seeds", self.seeds, low=1)
        if self.games is not None:
            in_range("games", self.games, low=2)
        if self.canaries is not None:
            in_range("canaries", self.canaries, low=2)


def protected(experiment: Experiment, options: Options, seed: int | None = None) -> Protection:
    """Return the experiment's parts and plans, with honest clients and the sums that are to be played."""
    tables = {name: dict(table) for name, table in experiment.tables().items() if name != "threat"}
    real, ideal = ("ballot", "ideal-ballot") if experiment.protocol.counts_votes else ("real", "ideal")
    tables["aggregation"]["secure"] = real if options.secure else ideal
    tables["aggregation"].pop("helper", None)  # one that listens elsewhere: the games have their own
    if seed is not None:
        tables["experiment"]["seed"] = seed
    return protect(gather(parse(tables)))


def ready_to_play(experiment: Experiment, options: Options, seed: int | None = None) -> tuple[ServerSide, PrivacyPlan]:
    """Return the federation as the experiment makes it, with honest clients and the sums that are to be played."""
    protection = protected(experiment, options, seed)
    parts = protection.parts
    asks = protection.unsolved or (parts.scheme.needs_importance and protection.vote_plan is None)
    with start_engine(parts) if asks else nullcontext((None, None)) as (_, evaluator):
        ready = stages(protection)[TRAINING].server_side(evaluator)
    plan = ready.plan
    if plan is None:
        raise InputError("the experiment is not private, so there is no epsilon to audit")
    if protection.vote_plan is not None:  # coordinates that nobody has voted for yet: games need some, whichever
        ready = ready.with_importance(made_up_importance(parts))
    return ready, plan


def number(*names: object) -> int:
    """Return a number that follows from names."""
    return int.from_bytes(hashlib.sha256(" ".join(map(str, names)).encode()).digest()[:6], "little")
