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

from sottovoce.assembly.parts import Parts
from sottovoce.assembly.protection import protect
from sottovoce.config.experiment import Experiment, parse
from sottovoce.config.names import SCHEME_KEYS
from sottovoce.core.errors import InputError, PrivacyError, SottovoceError
from sottovoce.planning.candidates import Constraint, Sender, limited, paces, senders
from sottovoce.planning.estimate import LOUDER, Offer, Paced, Sketch, paced, price
from sottovoce.planning.explain import Blame, blame, impossible
from sottovoce.planning.plan import gather_shapes, plan_parts
from sottovoce.planning.signal_to_noise import reach
from sottovoce.privacy.accounting.events import Event
from sottovoce.runs.devices import judged_devices

_WORDS: Final = ("name", "sample_rate", "clipping")
SHOWN: Final = 12  # plans of the Pareto set that are shown
TRIED: Final = 30  # ... and planned as a whole, as some of them cannot be run


@dataclass(frozen=True, eq=False)
class Solution:
    """One plan that keeps all limits: what to change in the file, and everything that `sottovoce plan` says of it."""

    changes: dict[str, str]  # by table.key, as --set takes them
    plan: dict[str, Any]

    @property
    def reach(self) -> float | None:
        """Return what plans of different schemes are ranked by; None without noise."""
        signal = self.plan["signal_to_noise"]
        return None if signal is None else reach(signal["default"], self.plan["message_length"] / self.plan["dim"])

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
            "reach": self.reach,
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
    devices: tuple[str, ...] = ()  # that joules and hours are of
    bytes_of: str = ""  # what bytes count, in words

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
            "devices": list(self.devices),
            "bytes_of": self.bytes_of,
        }


def solve(experiment: Experiment, constraints: tuple[Constraint, ...]) -> Solved:
    """Return plans that keep all limits; raise if there are none, and name what stands in the way."""
    experiment, summed = _with_real_sum(experiment)
    parts, estimated = gather_shapes(experiment)
    parts = replace(parts, experiment=limited(experiment, constraints))
    if experiment.privacy is not None and experiment.privacy.unit != "client":
        return _solve_units(parts, constraints, estimated, summed)
    offers, left_out, reasons = _offers(parts, constraints)
    kept = feasible(offers, constraints)
    if not offers and reasons:
        raise PrivacyError(f"no plan keeps the limits on epsilon: {reasons[0]}")
    if not kept:
        raise InputError(impossible(offers, constraints))
    best = front(kept)
    solutions, reasons = _settle(parts, _spread(best, parts.scheme.name), estimated, constraints)
    if not solutions:
        raise InputError(reasons[0] if reasons else impossible(offers, constraints))
    return Solved(
        constraints,
        solutions,
        len(offers),
        len(kept),
        len(best),
        blame(offers, constraints, experiment.experiment.rounds),
        left_out,
        judged_devices(experiment),
        summed,
    )


def _solve_units(parts: Parts, constraints: tuple[Constraint, ...], estimated: list[str], summed: str) -> Solved:
    """Search where records or persons are protected: schemes and rounds, all sites in every round, as the file has it.

    These plans have no draws of clients to account, so each is planned as a whole and nothing is sketched.
    """
    own = parts.experiment
    found, left_out = senders(parts)
    planned: list[tuple[Offer, Solution]] = []
    reasons: list[str] = []
    for sender in found:
        for pace in paces(parts, constraints):
            if pace.sample_rate != own.cohort.sample_rate:
                continue
            changes = unit_changes(sender, pace.rounds, own)
            try:
                experiment = apply(sender.experiment, changes)
                scheme = experiment.make_scheme().fit(parts.network.layout)
                plan = plan_parts(replace(parts, experiment=experiment, scheme=scheme), estimated)
            except SottovoceError as error:
                reasons.append(str(error))
                continue
            offer = Offer(sender, Paced(pace, parts, None), plan["bits_per_coordinate"] or 32, plan["limits"])
            planned.append((offer, Solution(changes, plan)))
    offers = [offer for offer, _ in planned]
    kept = {offer: solution for offer, solution in planned if all(c.holds(offer.figures) for c in constraints)}
    if not kept:
        raise InputError(impossible(offers, constraints) if offers else f"no plan can be made: {reasons[0]}")
    best = front(list(kept))
    shown = [kept[offer] for offer in _spread(best, parts.scheme.name)[:SHOWN]]
    shown.sort(key=lambda solution: -(solution.reach or 0.0))
    noises = sorted(solution.plan["noise_multiplier"] for solution in kept.values())
    words = f"is kept by the noise of each plan, z {noises[0]:.3g} to {noises[-1]:.3g}"
    blames = [
        Blame(constraint, 0, 0, f"{constraint.text} {words}")
        if constraint.name.startswith("epsilon")
        else blame(offers, [constraint], own.experiment.rounds)[0]
        for constraint in constraints
    ]
    return Solved(constraints, shown, len(offers), len(kept), len(best), blames, left_out, judged_devices(own), summed)


def unit_changes(sender: Sender, rounds: int, experiment: Experiment) -> dict[str, str]:
    """Return what to change in a file that protects records or persons, as --set takes it."""
    table = experiment.privacy
    targets = {} if table is None else {"epsilon": table.epsilon, "epsilon_server": table.epsilon_server}
    return {
        "scheme.name": sender.bound.name,
        **({} if sender.ratio is None else {"scheme.ratio": f"{sender.ratio:g}"}),
        "cohort.sample_rate": str(experiment.cohort.sample_rate),
        "experiment.rounds": str(rounds),
        **{f"privacy.{name}": repr(value) for name, value in targets.items() if value is not None},
        **_of_signs(sender),
    }


def _of_signs(sender: Sender) -> dict[str, str]:
    """Return the clip norm that signs have: a key of the file cannot be taken away by --set."""
    if sender.bound.form != "signs":
        return {}
    return {"privacy.clipping": "fixed", "privacy.clip_norm": repr(sender.bound.length**0.5)}


def _with_real_sum(experiment: Experiment) -> tuple[Experiment, str]:
    """Return the experiment with the secure sum that its epsilon needs, and what is counted in its bytes."""
    if experiment.privacy is None or experiment.secure != "ideal":
        return experiment, f'of secure = "{experiment.secure}", as the file has it'
    tables = experiment.tables()
    tables["aggregation"] = {**tables.get("aggregation", {}), "secure": "real"}
    try:
        return parse(tables), 'of the real secure sum, which epsilon needs (the file simulates it: secure = "ideal")'
    except SottovoceError:
        return experiment, 'without the secure sum that epsilon needs: the file cannot be run with secure = "real"'


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
    """Return what a vote, a warm start and a whitening release before round 1."""
    table, whitened = parts.experiment.privacy, parts.network.whitening is not None
    if table is None or not (whitened or table.vote_noise_multiplier or table.warm_noise_multiplier):
        return ()
    known = protect(parts)
    plans = (known.vote_plan, known.warm_plan, known.whiten_plan)
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


def _settle(
    parts: Parts, offers: Sequence[Offer], estimated: list[str], constraints: tuple[Constraint, ...]
) -> tuple[list[Solution], list[str]]:
    """Plan offers as a whole until there are enough; with noise the one that reaches furthest is first."""
    found: list[tuple[Offer, Solution]] = []
    reasons: list[str] = []
    for offer in offers[:TRIED]:
        if len(found) == SHOWN:
            break
        settled = _settled(parts, offer, estimated, constraints)
        if isinstance(settled, Solution):
            found.append((offer, settled))
        elif settled:
            reasons.append(settled)
    found.sort(key=lambda pair: pair[0].merits, reverse=True)
    found.sort(key=lambda pair: pair[0].sender.bound.name != parts.scheme.name)
    found.sort(key=lambda pair: -(pair[1].reach or 0.0))  # stable: without noise the order stays
    return [solution for _, solution in found], reasons


def _spread(best: Sequence[Offer], own: str) -> list[Offer]:
    """Return plans in the order in which they are looked at: the best of each scheme and ratio in turn."""
    groups: dict[tuple[str, float | None], list[Offer]] = {}
    for offer in sorted(best, key=lambda offer: offer.sender.bound.name != own):
        groups.setdefault((offer.sender.bound.name, offer.sender.ratio), []).append(offer)
    turns = max(map(len, groups.values()), default=0)
    return [group[turn] for turn in range(turns) for group in groups.values() if turn < len(group)]


def _settled(
    parts: Parts, offer: Offer, estimated: list[str], constraints: tuple[Constraint, ...]
) -> Solution | str | None:
    """Plan an offer as a whole; if it does not keep a limit, return why, where a sentence says more than the limit."""
    changes = changes_of(offer)
    experiment = apply(offer.sender.experiment, changes)
    whole = replace(offer.paced.parts, experiment=experiment, scheme=experiment.make_scheme().fit(parts.network.layout))
    try:
        plan = plan_parts(whole, estimated)
    except SottovoceError:
        return None
    if all(constraint.holds(plan["limits"]) for constraint in constraints):
        return Solution(changes, plan)
    reason = (plan["privacy"] or {}).get("epsilon_reason")
    return reason and f"no plan has an epsilon to limit: {reason}"


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
    changes |= _of_signs(sender)
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
