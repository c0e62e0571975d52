"""Say which limit rules out what, and what would have to give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

from sottovoce.planning.candidates import Constraint
from sottovoce.planning.estimate import Offer, Paced, Sketch
from sottovoce.privacy.plan.solve import solve_request


@dataclass(frozen=True)
class Blame:
    """What one limit did to a search."""

    constraint: Constraint
    killed: int  # candidates that break it
    alone: int  # ... and keep all others
    sentence: str

    def describe(self) -> dict[str, Any]:
        """Return it in plain JSON."""
        return {
            "limit": self.constraint.text,
            "killed": self.killed,
            "killed_alone": self.alone,
            "sentence": self.sentence,
        }


def blame(offers: Sequence[Offer], constraints: Sequence[Constraint], rounds: int) -> list[Blame]:
    """Return what each limit did; a limit on epsilon kills nothing but takes noise, and its sentence says how much.

    Of paces that cost the same, the sentence takes that with about as many `rounds`.
    """
    return [_blame(offers, constraint, constraints, rounds) for constraint in constraints]


def impossible(offers: Sequence[Offer], constraints: Sequence[Constraint]) -> str:
    """Return one sentence that names the limits which cannot be kept together, and what the others would allow."""
    others = [c for c in constraints if not c.name.startswith("epsilon")]
    for constraint in others:
        rest = [offer for offer in offers if _keeps(offer, [c for c in others if c is not constraint])]
        if rest:
            nearest = min(rest, key=lambda offer: offer.figures[constraint.name])
            return (
                f"no plan keeps {_all(constraints)}: {constraint.text} stands in the way; with the others kept, the "
                f"least is {constraint.name} {_number(nearest.figures[constraint.name])} ({_words(nearest)})"
            )
    least = ", ".join(f"{c.name} {_number(min(o.figures[c.name] for o in offers))}" for c in others) if offers else ""
    return f"no plan keeps {_all(constraints)}, nor all of them but one; each alone can be had down to {least}"


def _blame(offers: Sequence[Offer], constraint: Constraint, constraints: Sequence[Constraint], rounds: int) -> Blame:
    if constraint.name.startswith("epsilon"):
        return Blame(constraint, 0, 0, _price_of_privacy(offers, constraint, rounds))
    others = [c for c in constraints if c is not constraint and not c.name.startswith("epsilon")]
    broken = [offer for offer in offers if not constraint.holds(offer.figures)]
    alone = [offer for offer in broken if _keeps(offer, others)]
    if not broken:
        return Blame(constraint, 0, 0, f"{constraint.text} rules nothing out")
    loudest = max(broken, key=lambda offer: offer.merits)
    schemes = sorted(
        {offer.sender.bound.name for offer in broken} - {o.sender.bound.name for o in offers if o not in broken}
    )
    gone = f", and with it all of {', '.join(schemes)}" if schemes else ""
    return Blame(
        constraint,
        len(broken),
        len(alone),
        f"{constraint.text} rules out {len(broken)} of {len(offers)} candidates{gone}; the best of them, "
        f"{_words(loudest)}, has {constraint.name} {_number(loudest.figures[constraint.name])}",
    )


def _price_of_privacy(offers: Sequence[Offer], constraint: Constraint, rounds: int) -> str:
    """Say what a limit on epsilon asks for: the pace with the least noise for each contribution, and the file's own."""
    paces = {offer.paced.pace: offer.paced for offer in offers}
    needs = {pace: need for pace, paced in paces.items() if (need := _need(paced, constraint.name)) is not None}
    if not needs:
        return f"{constraint.text} adds nothing to what the file asks for"
    least = min(need.per_draw for need in needs.values())
    cheapest = [pace for pace, need in needs.items() if need.per_draw < 1.001 * least]
    pace = min(cheapest, key=lambda pace: abs(pace.rounds - rounds))
    best, worst = needs[pace], max(needs, key=lambda pace: needs[pace].per_draw)
    who = "every client in every round" if pace.sample_rate == 1 else f"{pace.sample_rate} of the clients in a round"
    share = Fraction(best.sketch.request.threshold).limit_denominator(100)
    return (
        f"{constraint.text} costs least with {who}, {pace.rounds} rounds, z {_exact(best, constraint.name)} at "
        f"threshold {share}; with {worst.sample_rate} of the clients and {worst.rounds} rounds a contribution bears "
        f"about {needs[worst].per_draw / best.per_draw:.2g} times the noise"
    )


class _Need(NamedTuple):
    sketch: Sketch
    noise: float

    @property
    def per_draw(self) -> float:
        return self.sketch.per_draw(self.noise)


def _need(paced: Paced, name: str) -> _Need | None:
    """Return about the noise that one target needs by itself at a pace."""
    known = paced.sketch
    if known is None:
        return None
    by = {"epsilon": known.for_epsilon, "epsilon_server": known.for_server, "epsilon_member": known.noise}
    noise = by[name]
    return None if noise is None else _Need(known, noise)


def _exact(need: _Need, name: str) -> str:
    """Return the noise that one target needs by itself, solved; that of a member of the cohort is only sketched."""
    if name == "epsilon_member":
        return f"about {need.noise:.3g}"
    request = need.sketch.request
    alone = replace(request, epsilon_server=None) if name == "epsilon" else replace(request, epsilon=None)
    solved = solve_request(alone)
    return f"{solved['noise_multiplier']:.3g}"


def _keeps(offer: Offer, constraints: Sequence[Constraint]) -> bool:
    return all(constraint.holds(offer.figures) for constraint in constraints)


def _words(offer: Offer) -> str:
    ratio = "" if offer.sender.ratio is None else f" at ratio {offer.sender.ratio:g}"
    pace = offer.paced.pace
    return f"{offer.sender.bound.name}{ratio}, sample_rate {pace.sample_rate}, {pace.rounds} rounds"


def _all(constraints: Sequence[Constraint]) -> str:
    return ", ".join(constraint.text for constraint in constraints)


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
