"""Play the games of the curious server: worst-case neighbours, the sum before noise is made up, the fewest survivors.

A game is a run in which the canary takes part as often as a client may (`max_participations`), and in every round of it
the cohort has the size at which the server knows most, as many leave as the threshold allows, and the colluders tell
their noise. The server subtracts all that it knows, and measures what is left along the canary. Another site, which
is asked where units are protected, sees the released sum and knows its own noise: it plays as a server to whom nobody
is missing and one client more tells its noise.

Some of the others are canaries too, each in a coordinate of its own, half of them out. The server knows their messages,
so they change nothing about the game; but where noise is independent from value to value, each of them is one more
measurement of what a client adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.streams import Purpose, Seeds
from sottovoce.federation.coding import Private, Terms
from sottovoce.privacy import PrivacyPlan
from sottovoce.studies.audit.canaries import BELOW, OVERSIZED, Canaries, Canary
from sottovoce.studies.audit.federation import AuditFederation, Sight
from sottovoce.studies.audit.server_games import ServerGames
from sottovoce.studies.audit.units import UnitFormulas
from sottovoce.threats.audit.bounds import epsilon_from_counts
from sottovoce.threats.audit.noise import NoiseSample

_KEPT = 12  # clients of a round whose words are kept
_KEPT_ROUNDS = 2  # of each of the first two games, so that keys of rounds, clients and runs are compared
_LONGEST = 20_000  # words of a kept vector
_UNITS = 12  # canaries that a site holds beside the game's own, where units are protected

Player = Literal["server", "site"]

Progress = Callable[[int, int], None]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class _Seating:
    """Who plays what in a game: `own` is the canary that it is about, `others` are canaries that the server knows."""

    cohort: list[int]
    own: int
    colluders: list[int]
    leavers: list[int]
    canaries: Canaries
    still: int  # senders whose message is known and the same
    holders: frozenset[int]  # clients that are canaries, or hold some

    @property
    def others(self) -> dict[int, Canary]:
        """Return the canaries beside the game's own."""
        return {client: canary for client, canary in self.canaries.canaries.items() if client != self.own}

    @property
    def loud(self) -> list[int]:
        """Return the coordinates in which others of them speak."""
        return [canary.place for client, canary in self.others.items() if client in self.canaries.present]


def play_server_games(
    federation: AuditFederation,
    *,
    games: int,
    seed: int,
    by: Player = "server",
    tell: Progress = lambda done, total: None,
) -> ServerGames:
    """Play an even number of games, half of them with the canary; `seed` decides everything."""
    units, shares = UnitFormulas(federation.plan), federation.plan.shares
    unknown = shares.unknown_shares()[1 if by == "server" else 2]
    worst = int(np.argmin(unknown / shares.sizes))
    size = int(shares.sizes[worst])
    share = units.variance / size
    stddev = math.sqrt(share * float(unknown[worst]))
    rounds = federation.plan.max_participations
    kinds = _kinds(units)
    still = _seat(federation, size, 0, kinds[0], present=False, by=by).still
    mu = units.radius / stddev * math.sqrt(rounds) * (units.rate if federation.plan.request.of_sites else 1.0)
    centre = float(units.still()[0])
    evidence = ServerGames(
        units,
        rounds,
        stddev,
        threshold_of_games(mu, max(1, games // 2)),
        seen=NoiseSample(stddev**2, centre=centre * still, discrete=units.discrete),
        released=NoiseSample(units.variance, centre=centre * (still + shares.colluders), discrete=units.discrete),
        shares=NoiseSample(share, centre=centre, discrete=units.discrete),
        against=f"epsilon_{by}",
    )
    for game in range(games):
        present = game % 2 == 0
        seating = _seat(federation, size, game, kinds[game // 2 % len(kinds)], present=present, by=by)
        _play(federation, evidence, seating, game, Seeds(seed + 1 + game), present=present)
        tell(game + 1, games)
    return evidence


def threshold_of_games(mu: float, each: int) -> float:
    """Return the score above which the server says "in": the one that promises most by the plan, before any game."""
    from scipy.stats import norm

    def promised(at: float) -> float:
        false_positives, false_negatives = round(each * norm.sf(at)), round(each * norm.cdf(at - mu))
        return epsilon_from_counts(false_positives, each, false_negatives, each, delta=0.0, alpha=0.05)

    best = float(max(np.linspace(0.0, mu + 2.0, 81).tolist(), key=promised))
    return best if promised(best) else mu / 2  # where the plan promises nothing, what shows noise that is missing


def _kinds(units: UnitFormulas) -> list[Canary]:
    """Return the canaries that are played in turn."""
    length = units.plan.request.length
    place = int(Seeds(length).public.get(Purpose.SETUP).integers(length))
    if units.form == "signs":
        return [Canary(place, "signs")]
    small = Canary(place, scale=1.0 if units.plan.adaptive is None else BELOW)
    return [Canary(place, "dense", OVERSIZED), small, Canary(place, scale=OVERSIZED)]


def _seat(federation: AuditFederation, size: int, game: int, canary: Canary, *, present: bool, by: Player) -> _Seating:
    """Return who plays what; the cohorts of successive games go round all clients."""
    shares, length = federation.plan.shares, federation.plan.request.length
    ring = [(game * size + index) % federation.clients for index in range(size)]
    stayers, told = (shares.survivors(size), shares.colluders) if by == "server" else (size, shares.colluders + 1)
    colluders = ring[1 : min(1 + told, stayers)]
    quiet = ring[1 + len(colluders) : stayers]
    others = quiet[::2] if federation.plan.request.form == "floats" else []  # of signs all would speak everywhere
    holders = frozenset({ring[0], *others})
    of_sites = federation.plan.request.of_sites
    if of_sites and federation.plan.request.form == "floats":
        others = [site + federation.clients * place for place in range(1, 1 + _UNITS) for site in sorted(holders)]
    others = others[: (length - 1) // 2]
    stride = max(1, (length - 1) // max(1, len(others)))
    places = [(canary.place + 1 + stride * index) % length for index in range(len(others))]
    canaries = {client: Canary(place, scale=OVERSIZED) for client, place in zip(others, places, strict=True)}
    there = frozenset(others[::2]) | (frozenset({ring[0]}) if present else frozenset())
    return _Seating(
        sorted(ring),
        ring[0],
        colluders,
        ring[stayers:],
        Canaries({ring[0]: canary, **canaries}, there),
        still=0 if of_sites else len(quiet) - len(others),
        holders=holders,
    )


def _play(
    federation: AuditFederation, evidence: ServerGames, seating: _Seating, game: int, seeds: Seeds, *, present: bool
) -> None:
    plan, units = federation.plan, evidence.units
    length, size = plan.request.length, len(seating.cohort)
    own = seating.canaries.canaries[seating.own]
    score = 0.0
    for round_ in range(1, evidence.participations + 1):
        keep = _KEPT if game < 2 and round_ <= _KEPT_ROUNDS else 0
        sight = federation.play(
            seeds, round_, seating.cohort, canaries=seating.canaries, leavers=seating.leavers, keep=keep
        )
        evidence.opened_unpaid += sight.opened_unpaid
        if sight.seen is None or sight.total.values is None:
            evidence.failures.append(sight.total.reason or "nothing was released")
            return
        seen = units.signed(sight.seen)
        for client in seating.colluders:
            seen = seen - units.signed(_told(plan, federation, seeds, round_, client, size))
        unknown = _wrapped(seen - seating.still * units.still(), units)
        score += _measure(evidence, seating, own, unknown, present=present)
        released = units.of_release(sight.total.values, plan.request.clip_norm)
        if not present:
            noise = unknown + seating.still * units.still()
            evidence.seen.add(np.delete(noise[:length], seating.loud))
            evidence.released.add(np.delete(released, seating.loud))
        if keep:
            _keep(evidence, seating, sight, unknown[:length], released, f"game {game + 1}, round {round_}")
    score /= evidence.stddev * math.sqrt(evidence.participations)
    (evidence.games_present if present else evidence.games_absent).append(score)


def _measure(evidence: ServerGames, seating: _Seating, own: Canary, unknown: Values, *, present: bool) -> float:
    """Score every canary of a round; return the score of the game's own."""
    units, length = evidence.units, evidence.units.plan.request.length
    for client, canary in seating.others.items():
        evidence.score(canary.name, canary.project(unknown[:length]), present=client in seating.canaries.present)
    rest = _quiet(unknown, seating, units)
    if units.plan.adaptive is not None:
        rest[-1] += units.count_centre * len(seating.loud)  # above the clip norm, each takes from the count
    along = own.project(rest[:length])
    evidence.score(own.name, along, present=present)
    if units.plan.adaptive is None:
        return along
    count = float(rest[-1]) * (1 if own.scale <= 1 else -1)
    (evidence.counted if present else evidence.uncounted).append(count)
    return (along * units.update_radius + count * units.count_centre) / units.radius


def _quiet(unknown: Values, seating: _Seating, units: UnitFormulas) -> Values:
    """Return what is unknown without the other canaries; where coins of sites decide, without their coordinates."""
    rest = unknown.copy()
    if units.plan.request.of_sites and units.rate < 1:
        rest[seating.loud] = 0.0
    else:
        rest[seating.loud] -= units.update_radius
    return rest


def _told(
    plan: PrivacyPlan, federation: AuditFederation, seeds: Seeds, round_: int, client: int, size: int
) -> NDArray[Any]:
    """Return what a colluder sent, as it tells the server: it knows its own message and its own noise."""
    terms = Terms(size, plan.request.clip_norm)
    if plan.request.of_sites:
        return Private(plan, seeds).site_words(np.zeros(plan.request.length, np.int64), terms, round_, client)
    update = np.full(federation.scheme.dim, 1.0 if plan.request.form == "signs" else 0.0, np.float32)
    rng = seeds.client(client).get(Purpose.ENCODE, round_)
    message = federation.scheme.encode(update, federation.scheme.round_seed(round_), rng)
    return Private(plan, seeds).words(message, terms, round_, client)


def _wrapped(values: Values, units: UnitFormulas) -> Values:
    """Return differences of words modulo 2^bits, in the middle range."""
    if units.plan.bits is None:
        return values
    modulus = 2.0**units.plan.bits
    return np.asarray((values + modulus / 2) % modulus - modulus / 2)


def _keep(
    evidence: ServerGames, seating: _Seating, sight: Sight, unknown: Values, released: Values, where: str
) -> None:
    """Keep the noise of some honest clients, and what the server made up, to compare them with each other."""
    units, length, size = evidence.units, unknown.size, len(seating.cohort)
    centre = units.still()[:length]
    share = math.sqrt(units.variance / size)
    for client, words in sight.shares.items():
        if client in seating.holders:
            continue
        values = units.signed(words)[:length]
        evidence.shares.add(values)
        if evidence.whole is None:
            evidence.whole = values - centre
        evidence.vectors.append((f"client {client} in {where}", share, (values - centre)[:_LONGEST]))
    if sight.seen is not None and size > sight.total.senders:
        made_up = _wrapped(released - units.signed(sight.seen)[:length], units)
        stddev = share * math.sqrt(size - sight.total.senders)
        evidence.vectors.append((f"the server in {where}", stddev, made_up[:_LONGEST]))
    if not sight.shares:  # a sum goes together with the shares that it is made of
        quiet = _quiet(unknown, seating, units)[:_LONGEST]
        evidence.vectors.append((f"the sum of {where}", evidence.stddev, quiet))
