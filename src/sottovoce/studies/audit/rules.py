"""Play the rounds that no game needs: every size of cohort, too few survivors, and the draws themselves."""

from __future__ import annotations

import math
from dataclasses import replace
from hashlib import sha256

import numpy as np

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Seeds
from sottovoce.federation.round import Server
from sottovoce.studies.audit.canaries import OVERSIZED, Canaries, Canary
from sottovoce.studies.audit.federation import AuditFederation, Sight
from sottovoce.studies.audit.units import UnitFormulas
from sottovoce.threats.audit.finding import AuditFinding, checked
from sottovoce.threats.audit.noise import CellNoise, CellShifts, NoiseSample
from sottovoce.threats.audit.sampling import cohort_sizes, rates

_VALUES = 30_000  # noise values of a cohort size, if the rounds for them are not too many
_DRAWN = 20_000_000  # coins of an audit of the sampler
_SHARES = 1000  # messages: they show a tenth more or less noise in a coordinate, and two equal ones if a seed is short
_UNSEEN = 24  # rounds without clients: the server's own noise in each coordinate


def each_share(
    federation: AuditFederation, name: str, *, messages: int, seed: int, silent: bool = False
) -> list[AuditFinding]:
    """Test the noise of each client and in each coordinate, and what a canary moves in each coordinate.

    A sum over all of them hides a client or a coordinate without noise. About as many `messages` are looked at, of
    clients spread over the federation; masked ones cannot be. `silent` clients send nothing, as in `released_noise`.
    """
    plan, units = federation.plan, UnitFormulas(federation.plan)
    size = plan.shares.cap
    if federation.knowledge.policy is not None:
        return []
    share = units.variance / size
    clients = CellNoise(federation.clients, discrete=units.discrete)
    places = CellNoise(plan.word_length, discrete=units.discrete)  # the count of adaptive clipping is the last one
    centre = np.zeros(plan.word_length) if silent else units.still()
    rounds = -(-max(federation.clients, _SHARES) // size)
    exact, seen, equal = True, set[bytes](), 0
    spread = max(1, rounds * size // max(size, messages))  # of every so many cohorts one is played
    for round_ in range(1, rounds + 1, spread):
        cohort = sorted((round_ * size + index) % federation.clients for index in range(size))
        canaries = Canaries(dict.fromkeys(cohort, Canary(0))) if silent else None
        sight = federation.play(Seeds(seed), round_, cohort, canaries=canaries, keep=size)
        exact &= _as_sent(units, sight)
        for client, words in sight.shares.items():
            noise = units.signed(words) - centre
            equal += (print_ := sha256(noise.tobytes()).digest()) in seen
            seen.add(print_)
            clients.add_to(client, noise, share)
            places.add(noise, share)
    found = [checked(f"{name} sum as it was sent", exact, "a released sum is not the sum of the messages that came")]
    found.append(_twins(units, name, equal, len(seen), share))
    found += clients.findings(f"{name} share of each client", "the noise of a message", "client")
    found += places.findings(f"{name} share in each coordinate", "the noise of a message", "coordinate")
    return found + ([] if units.form == "signs" else _each_shift(federation, name, messages, seed + 1))


def _twins(units: UnitFormulas, name: str, equal: int, count: int, share: float) -> AuditFinding:
    """Test that no two messages carry the same noise, as some do if seeds are short: 16 bits repeat among 1000.

    Two draws of a Gaussian on the integers are equal with probability 1 / (2 sigma sqrt(pi)), hardly more or less.
    """
    chance = 0.0
    if units.discrete:
        each = -math.log(2 * math.sqrt(math.pi * share)) * units.plan.word_length
        chance = min(1.0, count * count / 2 * math.exp(max(-700.0, min(0.0, each))))
    return AuditFinding(
        f"{name} repeated noise of any two",
        float(equal),
        max(chance, 1e-300) if equal else 1.0,
        f"{equal} of {count + equal} messages carry the noise of another one",
    )


def _as_sent(units: UnitFormulas, sight: Sight) -> bool:
    """Tell whether a sum of which nobody was missing was opened as it came: on the grid, with nothing added."""
    if sight.total.values is None or sight.seen is None:
        return False
    plan = units.plan
    sent = np.sum([words.astype(np.float64) for words in sight.shares.values()], axis=0)
    if plan.bits is None:
        return np.allclose(sent, sight.seen, rtol=1e-5, atol=1e-5 * plan.stddev()) and np.array_equal(
            np.asarray(sight.seen, np.float32), sight.total.values
        )
    released = (units.signed(sight.seen)[: plan.request.length] * plan.step()).astype(np.float32)
    return bool((sent % 2.0**plan.bits == sight.seen).all()) and np.array_equal(released, sight.total.values)


def _each_shift(federation: AuditFederation, name: str, messages: int, seed: int) -> list[AuditFinding]:
    """Test that a message of one coordinate, far above the clip norm, is clipped, whichever coordinate it is."""
    plan, units = federation.plan, UnitFormulas(federation.plan)
    length, size = plan.request.length, plan.shares.cap
    shifts, variance = CellShifts(length), units.variance / size
    places = np.linspace(0, length - 1, min(length, max(size, messages))).round().astype(int)
    for round_, start in enumerate(range(0, places.size, size), 1):
        cohort = sorted((start + index) % federation.clients for index in range(size))
        own = {client: int(place) for client, place in zip(cohort, places[start:], strict=False)}
        canaries = Canaries({client: Canary(place, scale=OVERSIZED) for client, place in own.items()}, frozenset(own))
        shares = federation.play(Seeds(seed), round_, cohort, canaries=canaries, keep=size).shares
        for client, place in own.items():
            if client in shares:
                shifts.add(place, float(units.signed(shares[client])[place]), variance)
    what = f"a canary (dirac {OVERSIZED:g})"
    return shifts.findings(f"{name} clipping in each coordinate", units.update_radius, what, "coordinate")


def released_noise(
    federation: AuditFederation, name: str, *, rounds: int, seed: int, silent: bool = False
) -> list[AuditFinding]:
    """Test that a released sum carries the plan's noise whatever the size of the cohort is, also when nobody came.

    Noise that depends on the size would tell it, and with it who was sampled. `silent` clients send nothing, where
    what an honest one sends is not known beforehand.
    """
    plan, units = federation.plan, UnitFormulas(federation.plan)
    floor, cap = plan.shares.floor, plan.shares.cap
    expected = min(cap, max(floor, round(plan.expected_cohort)))
    if federation.knowledge.policy is not None:
        rounds = min(rounds, plan.rounds)  # clients refuse more
    chance = plan.request.sampling == "poisson" and plan.request.sample_rate < 1
    found: list[AuditFinding] = []
    for size in sorted({0, floor, expected, cap}) if chance else [cap]:
        centre = 0.0 if silent else float(units.still()[0]) * size
        sample = NoiseSample(units.variance, centre=centre, discrete=units.discrete)
        places = CellNoise(plan.request.length, discrete=units.discrete)
        seeds = Seeds(seed + size)
        cohort = list(range(size))
        canaries = Canaries(dict.fromkeys(cohort, Canary(0))) if silent else None
        most = min(rounds, 1 + _VALUES // plan.request.length)
        if size == 0 and federation.knowledge.policy is None:
            most = max(most, _UNSEEN)
        for round_ in range(1, most + 1):
            sight = federation.play(seeds, round_, cohort, canaries=canaries)
            if sight.total.values is None:
                found.append(checked(f"{name} of {size}", False, f"a cohort of {size} released nothing"))
                break
            released = units.of_release(sight.total.values, plan.request.clip_norm)
            sample.add(released)
            places.add(released - centre, units.variance)
        what = f"the noise of a released {name} of {size} clients"
        found += sample.findings(f"{name} of {size}", what)
        found += places.findings(f"{name} of {size} in each coordinate", what, "coordinate")
    return found


def survivors(federation: AuditFederation, seed: int) -> AuditFinding:
    """Check that one survivor too few releases nothing."""
    plan = federation.plan
    size = min(plan.shares.cap, max(plan.shares.floor, round(plan.expected_cohort)))
    needed = plan.shares.survivors(size)
    sight = federation.play(Seeds(seed), 1, list(range(size)), leavers=range(needed - 1, size))
    return checked(
        "too few survivors",
        sight.total.values is None,
        f"a sum of {needed - 1} of {size} clients was opened, and {needed} are needed",
    )


def sampler(server: Server, seed: int) -> list[AuditFinding]:
    """Test that the server draws cohorts as they are charged for, in every round anew, and that caps are kept."""
    plan = server.plan
    if plan is None:
        raise InputError("a run that is not private has no sampler to audit")
    request = plan.request
    server = replace(server, streams=Seeds(seed).server)
    rounds = int(np.clip(_DRAWN // request.clients, 200, 2000))
    sizes, draws = np.zeros(rounds, np.int64), np.zeros(request.clients, np.int64)
    most, least = 0, plan.shares.cap
    nobody = {"draws": np.zeros(request.clients, np.int32)}
    for round_ in range(rounds):
        clients, kept = server.draw(nobody, round_ + 1)
        sizes[round_] = kept["draws"].sum()
        draws += kept["draws"]
        most = max(most, len(clients))
        least = min(least, len(clients) or least)
    worn, _ = server.draw({"draws": np.full(request.clients, plan.max_participations, np.int32)}, rounds + 1)
    fixed = request.cohort_size if request.sampling == "fixed" else None
    return [
        cohort_sizes("cohort sizes", sizes, request.clients, request.sample_rate, fixed=fixed),
        rates("draws of a client", draws, rounds, request.sample_rate),
        checked(
            "cohort caps",
            plan.shares.floor <= least and most <= plan.shares.cap,
            f"a cohort of {most if most > plan.shares.cap else least} took part, and the plan is charged for "
            f"{plan.shares.floor} to {plan.shares.cap}",
        ),
        checked(
            "participation cap",
            not worn,
            f"clients that were drawn {plan.max_participations} times, which is the cap, take part once more",
        ),
    ]
