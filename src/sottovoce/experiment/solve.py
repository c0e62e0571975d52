"""Search for plans that keep all limits: which schemes, cohorts and rounds do, which of them are worth a look, and why.

Candidates are priced quickly (`priced`), those that keep all limits are compared, and the best of the Pareto set are
planned as a whole, as `sottovoce plan` would: every number that is shown comes from there. A candidate's noise is the
least that keeps its limits on epsilon; where it has too many bytes then, more noise is tried, as a coarser grid takes
fewer bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sottovoce.core.errors import InputError, PrivacyError, SottovoceError
from sottovoce.experiment.blame import Blame, blame, impossible
from sottovoce.experiment.candidates import Sender, limited, paces, senders
from sottovoce.experiment.config import Experiment, parse
from sottovoce.experiment.constraints import Constraint
from sottovoce.experiment.names import SCHEME_KEYS
from sottovoce.experiment.parts import Parts
from sottovoce.experiment.plan import plan_parts
from sottovoce.experiment.priced import LOUDER, Offer, Paced, paced, price
from sottovoce.experiment.protection import protect
from sottovoce.experiment.shapes import gather_shapes
from sottovoce.experiment.sketch import Sketch
from sottovoce.privacy.accounting.events import Event

__all__ = ["SHOWN", "Solution", "Solved", "solve"]

_WORDS: Final = ("name", "sample_rate", "clipping")
SHOWN: Final = 12  # plans of the Pareto set that are planned as a whole


@dataclass(frozen=True, eq=False)
class Solution:
    """One plan that keeps all limits: what to change in the file, and everything that `sottovoce plan` says of it."""

    changes: dict[str, str]  # by table.key, as --set takes them
    plan: dict[str, Any]

    def describe(self) -> dict[str, Any]:
        """Return the plan's figures in few words."""
        plan, privacy = self.plan, self.plan["privacy"] or {}
        return {
            "scheme": plan["scheme"],
            "message_length": plan["message_length"],
            "weights_moved": plan["message_length"] / plan["dim"],
            "sample_rate": self.changes["cohort.sample_rate"],
            "rounds": plan["rounds"],
            "noise_multiplier": plan["noise_multiplier"],
            "max_participations": privacy.get("max_participations"),
            "bits_per_coordinate": plan["bits_per_coordinate"],
            "signal_to_noise": plan["signal_to_noise"],
            **{name: plan["limits"][name] for name in plan["limits"] if name != "rounds"},
            "changes": self.changes,
        }


@dataclass(frozen=True, eq=False)
class Solved:
    """What a search found: the best plans of its Pareto set, how many there were, and what each limit ruled out."""

    constraints: tuple[Constraint, ...]
    solutions: list[Solution]
    candidates: int
    feasible: int
    pareto: int
    blames: list[Blame]
    left_out: dict[str, str] = field(default_factory=dict)  # schemes that the file cannot be run with, and why

    def describe(self) -> dict[str, Any]:
        """Return everything in plain JSON."""
        return {
            "constraints": {c.name: c.limit for c in self.constraints},
            "candidates": self.candidates,
            "feasible": self.feasible,
            "pareto": self.pareto,
            "solutions": [solution.describe() for solution in self.solutions],
            "killed_by": [found.describe() for found in self.blames],
            "schemes_left_out": self.left_out,
        }


def solve(experiment: Experiment, constraints: tuple[Constraint, ...]) -> Solved:
    """Return plans that keep all limits; raise if there are none, and name what stands in the way."""
    parts, estimated = gather_shapes(experiment)
    parts = replace(parts, experiment=limited(experiment, constraints))
    offers, left_out, reasons = _offers(parts, constraints)
    kept = feasible(offers, constraints)
    if not offers and reasons:
        raise PrivacyError(f"no plan keeps the limits on epsilon: {reasons[0]}")
    if not kept:
        raise InputError(impossible(offers, constraints))
    best = front(kept)
    shown = _spread(best, parts.scheme.name)
    solutions = [found for offer in shown if (found := _settled(parts, offer, estimated, constraints))]
    if not solutions:
        raise InputError(impossible(offers, constraints))
    return Solved(
        constraints,
        solutions,
        len(offers),
        len(kept),
        len(best),
        blame(offers, constraints, experiment.experiment.rounds),
        left_out,
    )


def feasible(offers: Iterable[Offer], constraints: Sequence[Constraint]) -> list[Offer]:
    """Return the offers that keep all limits; those on epsilon are kept by their noise."""
    others = [c for c in constraints if not c.name.startswith("epsilon")]
    return [offer for offer in offers if all(c.holds(offer.figures) for c in others)]


def front(offers: Sequence[Offer]) -> list[Offer]:
    """Return the offers that no other of the same scheme equals or beats in every merit, the best first.

    Schemes are not compared with each other: what a share of the weights is worth differs from one to the next.
    """
    best: list[Offer] = []
    for offer in sorted(offers, key=lambda offer: offer.merits, reverse=True):
        rivals = (other for other in best if other.sender.bound.name == offer.sender.bound.name)
        if not any(_beats(rival.merits, offer.merits) for rival in rivals):
            best.append(offer)
    return best


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(a >= b for a, b in zip(one, other, strict=True))


def _offers(parts: Parts, constraints: tuple[Constraint, ...]) -> tuple[list[Offer], dict[str, str], list[str]]:
    """Return every scheme at every pace that noise can be found for, and why others were left out."""
    found, left_out = senders(parts)
    offers: list[Offer] = []
    reasons: list[str] = []
    spent = _spent(parts)
    for pace in paces(parts, constraints):
        try:
            at = paced(parts, pace, constraints, spent)
        except PrivacyError as error:
            reasons.append(str(error))
            continue
        except InputError:
            continue  # such a pace does not go with the file, as a cohort that is too small for its colluders
        offers += [offer for sender in found if (offer := _offer(sender, at, constraints))]
    return offers, left_out, reasons


def _spent(parts: Parts) -> tuple[Event, ...]:
    """Return what a vote and a warm start release before round 1."""
    table = parts.experiment.privacy
    if table is None or (table.vote_noise_multiplier is None and table.warm_noise_multiplier is None):
        return ()
    known = protect(parts)
    plans = (known.vote_plan, known.warm_plan)
    return tuple(event for plan in plans if plan is not None for event in plan.events())


def _offer(sender: Sender, at: Paced, constraints: tuple[Constraint, ...]) -> Offer | None:
    """Return a scheme at a pace, with more noise if that alone makes its bytes few enough."""
    try:
        first = price(sender, at)
    except SottovoceError:
        return None
    known = at.sketch
    if known is None or feasible([first], constraints):
        return first
    for factor in LOUDER if _worth_trying(sender, at, known, constraints) else ():
        try:
            offer = price(sender, replace(at, sketch=known.louder(factor * known.noise)))
        except SottovoceError:
            return first
        if offer.bits < first.bits and feasible([offer], constraints):
            return offer
    return first


def _worth_trying(sender: Sender, at: Paced, known: Sketch, constraints: tuple[Constraint, ...]) -> bool:
    """Tell whether more noise may help: bits fall with it, so what the most of it does not do, no less does."""
    try:
        loudest = price(sender, replace(at, sketch=known.louder(LOUDER[-1] * known.noise)))
    except SottovoceError:
        return True  # too loud for any grid: only trying tells
    return bool(feasible([loudest], constraints))


def _spread(best: Sequence[Offer], own: str) -> list[Offer]:
    """Return the plans to show: the best of each scheme and ratio in turn until there are enough, the file's first."""
    groups: dict[tuple[str, float | None], list[Offer]] = {}
    for offer in sorted(best, key=lambda offer: offer.sender.bound.name != own):
        groups.setdefault((offer.sender.bound.name, offer.sender.ratio), []).append(offer)
    turns = max(map(len, groups.values()), default=0)
    chosen = [group[turn] for turn in range(turns) for group in groups.values() if turn < len(group)]
    ordered = sorted(chosen[:SHOWN], key=lambda offer: offer.merits, reverse=True)
    return sorted(ordered, key=lambda offer: offer.sender.bound.name != own)


def _settled(parts: Parts, offer: Offer, estimated: list[str], constraints: tuple[Constraint, ...]) -> Solution | None:
    """Plan an offer as a whole; None if it turns out not to keep a limit."""
    changes = changes_of(offer)
    experiment = apply(offer.sender.experiment, changes)
    whole = replace(offer.paced.parts, experiment=experiment, scheme=experiment.make_scheme().fit(parts.network.layout))
    try:
        plan = plan_parts(whole, estimated)
    except SottovoceError:
        return None
    if all(constraint.holds(plan["limits"]) for constraint in constraints):
        return Solution(changes, plan)
    return None


def changes_of(offer: Offer) -> dict[str, str]:
    """Return what to change in the file for an offer, as --set takes it."""
    paced, sender = offer.paced, offer.sender
    changes = {
        "scheme.name": sender.bound.name,
        **({} if sender.ratio is None else {"scheme.ratio": f"{sender.ratio:g}"}),
        "cohort.sample_rate": str(paced.pace.sample_rate),
        "experiment.rounds": str(paced.pace.rounds),
    }
    table, known = paced.parts.experiment.privacy, paced.sketch
    if table is None or known is None:
        return changes
    targets = {"epsilon": table.epsilon, "epsilon_server": table.epsilon_server}
    changes |= {f"privacy.{name}": repr(value) for name, value in targets.items() if value is not None}
    changes["privacy.max_participations"] = str(known.most)
    if sender.bound.form == "signs":  # a key of the file cannot be taken away by --set, but can be what signs have
        changes |= {"privacy.clipping": "fixed", "privacy.clip_norm": repr(sender.bound.length**0.5)}
    if known.forced:
        changes["privacy.noise_multiplier"] = f"{math.ceil(known.noise * 1e6) / 1e6:.6f}"
    return changes


def apply(experiment: Experiment, changes: dict[str, str]) -> Experiment:
    """Return the experiment with the changes of a solution, as --set makes them."""
    tables = experiment.tables()
    name = changes["scheme.name"]
    if name != tables["scheme"]["name"]:
        tables["scheme"] = {key: value for key, value in tables["scheme"].items() if key in SCHEME_KEYS}
    for path, text in changes.items():
        table, key = path.split(".")
        value: Any = text if key in _WORDS else float(text)
        tables[table][key] = int(value) if key in ("rounds", "max_participations") else value
    return parse(tables)
