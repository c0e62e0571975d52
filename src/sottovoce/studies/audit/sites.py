"""Sites of canary units, and the checks that are about records and persons only.

A canary unit is a row (or two rows of one person) of a site whose update is a known message. It takes the whole way of
a unit: a coin of its site, training, encoding, clipping, rounding, the site's sum, its noise and the sum of all sites.
A trainer that knows the canaries stands in for the model. The sums of sites before noise, which tell who was drawn and
which nobody else may see, are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import RunError
from sottovoce.core.streams import Purpose, Seeds
from sottovoce.core.vectors import Vector
from sottovoce.federation.coding import Private, Terms
from sottovoce.federation.stages.statistics import trainer_for
from sottovoce.federation.units import sum_of_units
from sottovoce.models import Shard, Trainer, make_trainer
from sottovoce.privacy import PrivacyPlan
from sottovoce.schemes.base import Message, Scheme, State, Task
from sottovoce.schemes.standard import Standard
from sottovoce.studies.audit.canaries import Canaries, Canary
from sottovoce.threats.audit.finding import AuditFinding, checked
from sottovoce.threats.audit.sampling import cohort_sizes, overlaps

if TYPE_CHECKING:
    from sottovoce.assembly.parts import Parts
    from sottovoce.studies.audit.federation import AuditFederation

QUIET: Final = 3  # units of a site beside its canaries; their updates are zero
_COINS: Final = 60  # units of a site whose coins are looked at
_ROUNDS: Final = 40
_KEPT: Final = 40  # records of the first site that real training is checked on
_OVERSIZED: Final = 1e4  # times a record: its gradient must be clipped


@dataclass(frozen=True)
class ListeningCoding(Private):
    """The coding of sites, which keeps the exact sum of each before noise."""

    totals: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    def site_words(self, total: NDArray[np.int64], terms: Terms, round_: int, client: int) -> NDArray[np.uint32]:
        """Keep a sum, and protect it as ever."""
        self.totals[client] = total.copy()
        return super().site_words(total, terms, round_, client)


@dataclass(frozen=True)
class Planted:
    """A trainer of canary units. A row holds the number of its unit; those below zero are quiet."""

    plan: PrivacyPlan
    canaries: Canaries | None

    def updates(
        self,
        params: Vector,
        shards: Sequence[Shard],
        rngs: Sequence[Generator],
        trainable: NDArray[np.bool_] | None = None,
    ) -> Iterator[Vector]:
        """Yield the message of each canary, as an update of the model; that of a quiet unit is zero."""
        request = self.plan.request
        for shard in shards:
            number = int(shard.x[0, 0])
            update = np.zeros(params.size, np.float32)
            canary = None if self.canaries is None else self.canaries.canaries.get(number)
            if canary is not None and request.form == "signs":
                update[: request.length] = canary.votes(request.length)
            elif canary is not None:
                update[: request.length] = canary.message(self.plan, request.clip_norm)
            yield update

    def gradient(self, params: Vector, shard: Shard) -> Vector:
        """Refuse: nobody measures a gradient here."""
        raise RunError("canary units have no gradient")

    def scores(self, params: Vector, x: NDArray[Any]) -> NDArray[np.float32]:
        """Refuse: nobody measures a model here."""
        raise RunError("canary units have no scores")


@dataclass(frozen=True)
class Verbatim:
    """A scheme whose messages are the updates themselves, so that a canary's message is the one that was chosen."""

    inner: Scheme
    length: int

    @classmethod
    def around(cls, scheme: Scheme, length: int) -> Scheme:
        """Return the scheme itself if it sends updates as they are."""
        return scheme if type(scheme).encode is Standard.encode else cast("Scheme", cls(scheme, length))

    def receive(self, payload: bytes, memory: State) -> Task:
        """Return the task of the scheme, with a model that has room for a message."""
        task = self.inner.receive(payload, memory)
        return task._replace(params=np.zeros(max(task.params.size, self.length), np.float32))

    def trainable(self, seed: int) -> None:
        """Return that all of the message may move."""

    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        """Return the update itself, or its signs."""
        if self.inner.form == "signs":
            return np.packbits(update[: self.length] > 0, bitorder="little")
        return update[: self.length]


def site_records(plan: PrivacyPlan, sites: int, canaries: Canaries | None, quiet: int, site: int) -> Shard:
    """Return the rows of a site: quiet units first, then its canaries that are there; a person has two rows.

    A canary belongs to the site that its number leaves when it is divided by the number of sites. Quiet units send
    nothing, which signs cannot say: there are none of them where signs are sent.
    """
    numbers = [-(1 + site + sites * place) for place in range(0 if plan.request.form == "signs" else quiet)]
    numbers += [number for number in sorted(() if canaries is None else canaries.present) if number % sites == site]
    persons = plan.request.unit == "person"
    rows = np.repeat(np.array(numbers, np.int64), 2 if persons else 1)
    return Shard(rows[:, None].astype(np.float64), np.zeros(rows.size, np.int64), persons=rows if persons else None)


def secret_coins(federation: AuditFederation, seed: int) -> list[AuditFinding]:
    """Test that each unit takes part by a coin of its own, new in every round, which follows from no public number."""
    rate, sites = federation.plan.request.unit_rate, federation.clients
    if rate == 1 or federation.plan.request.form == "signs":
        return []
    rounds = min(_ROUNDS, federation.plan.rounds) if federation.knowledge.policy is not None else _ROUNDS
    cohort = list(range(min(sites, federation.plan.shares.cap)))

    each = min(_COINS, federation.plan.request.length)
    canaries = {site + sites * place: Canary(place) for site in cohort for place in range(each)}
    everybody = Canaries(canaries, frozenset(canaries))

    def played(seeds: Seeds, round_: int) -> NDArray[np.bool_]:
        totals = federation.play(seeds, round_, cohort, canaries=everybody, quiet=0).totals
        return np.stack([totals[site][:each] != 0 for site in cohort], axis=1)

    own = [played(Seeds(seed), round_) for round_ in range(1, rounds + 1)]
    others = [played(Seeds(seed + 1), round_) for round_ in range(1, rounds + 1)]
    sizes = np.array([int(taken.sum()) for taken in own])
    count = own[0].size
    again = [(one, two) for one, two in pairwise(own)]
    elsewhere = [(one[:, :-1], one[:, 1:]) for one in own] if len(cohort) > 1 else []
    return [
        cohort_sizes("units drawn", sizes, count, rate, fixed=None),
        overlaps("coins of two rounds", again, rate, what="units that were drawn in a round are drawn in the next"),
        overlaps("coins of two sites", elsewhere, rate, what="units of two sites are drawn together"),
        overlaps(
            "coins of two runs",
            list(zip(own, others, strict=True)),
            rate,
            what="whoever knows the public seeds knows the coins: units are drawn in two runs",
        ),
    ]


def answers_anyway(federation: AuditFederation, seed: int) -> AuditFinding:
    """Check that a site answers without a single unit, so that no answer tells whether one is there."""
    cohort = list(range(federation.plan.shares.cap))
    sight = federation.play(Seeds(seed), 1, cohort, quiet=0)
    return checked(
        "sites without units answer",
        sight.total.values is not None and sight.total.senders == len(cohort),
        f"of {len(cohort)} sites {sight.total.senders} answer where none holds a unit: whether a site answers tells "
        "whether a unit is there",
    )


def real_training(parts: Parts, scheme: Scheme, plan: PrivacyPlan, seed: int) -> list[AuditFinding]:
    """Check real records in real training, as exact integers: what one more moves, and what all of them add up to.

    The record more is an ordinary one, one far above the clip norm, one of another class, one that is no number.
    """
    blueprint = parts.blueprint()
    trainer = trainer_for(
        scheme,
        parts.network.trained,
        make_trainer(parts.network.trained, blueprint.training, blueprint.trainer, blueprint.device),
    )
    arrays = parts.arrays()
    rows = parts.partition.records(0)[:_KEPT]
    own = Shard(np.asarray(arrays["x_train"])[rows], np.asarray(arrays["y_train"])[rows])
    models = [parts.start, (10 * parts.start + np.float32(0.1)).astype(np.float32)]
    play = _Training(plan, scheme, trainer, seed)
    widest, limit = Fraction(0), play.limit
    for model in models:
        alone = play.total(model, own)
        for record in _canary_records(own, parts.dataset.classes):
            moved = play.total(model, _joined(own, record)) - alone
            widest = max(widest, Fraction(sum(int(value) ** 2 for value in moved)))
    divided = np.sum([play.total(models[0], _part(own, slice(at, at + 8))) for at in range(0, len(own.y), 8)], axis=0)
    whole = play.total(models[0], own)
    chance = plan.request.unit_rate < 1 or plan.request.form == "signs"  # coins; signs of zeros are random
    same = chance or bool((divided == whole).all())
    error = play.error(models[0], own)
    return [
        checked(
            "a real record more",
            widest <= limit,
            f"one {plan.request.unit} moves the sum of its site by {float(widest / limit) ** 0.5:.4g} times the most "
            "that it may",
        ),
        checked(
            "sums of divided sites",
            same,
            f"the sum of the {plan.request.unit}s of a site changes when they are divided among several",
        ),
        checked(
            "centres of real records",
            error <= 1,
            f"the sum of a site is {error:.3g} times as far from its {plan.request.unit}s' messages as their roundings "
            "may be",
        ),
    ]


@dataclass(frozen=True)
class _Training:
    """Sums of a site's units as the client makes them, before noise."""

    plan: PrivacyPlan
    scheme: Scheme
    trainer: Trainer
    seed: int

    @property
    def limit(self) -> Fraction:
        """Return the largest square of what one unit may move, in the steps of centres."""
        _, radius, precision = self.plan.unit_grid
        return Fraction(radius) ** 2 * Fraction(4) ** precision

    def total(self, model: Vector, shard: Shard) -> NDArray[np.int64]:
        """Return the exact sum; each record is a person where persons are protected."""
        persons = np.arange(len(shard.y)) if self.plan.request.unit == "person" else None
        return sum_of_units(
            self.plan,
            self.scheme,
            self.trainer,
            Task(model, self.scheme.round_seed(1), {}),
            shard._replace(persons=persons),
            coins=Seeds(self.seed).client(0).get(Purpose.UNIT, 1),
            choices=Seeds(self.seed).client(0).get(Purpose.ENCODE, 1),
        )

    def error(self, model: Vector, shard: Shard) -> float:
        """Return how far the sum is from that of clipped messages in floats, in units of what rounding explains."""
        if self.plan.request.form == "signs" or self.plan.request.unit_rate < 1:
            return 0.0
        norm, radius, precision = self.plan.unit_grid
        seed, rngs = self.scheme.round_seed(1), [np.random.default_rng(0)]
        exact = np.zeros(self.plan.request.length)
        for place in range(len(shard.y)):
            one = _part(shard, slice(place, place + 1))
            (update,) = self.trainer.updates(model, [one], rngs, self.scheme.trainable(seed))
            message = np.asarray(self.scheme.encode(update, seed, rngs[0]), np.float64)
            exact += message * min(1.0, norm / max(float(np.linalg.norm(message)), 1e-300))
        steps = self.total(model, shard) - exact / norm * radius * 2.0**precision
        allowed = len(shard.y) * (1.0 + 1e-6 * radius * 2.0**precision)
        return float(np.max(np.abs(steps))) / allowed


def _canary_records(own: Shard, classes: int) -> Iterator[Shard]:
    """Yield records that may be there or not."""
    first = _part(own, slice(0, 1))
    yield first
    for label in range(min(classes, 3)):
        yield first._replace(y=np.full_like(first.y, label))
    if first.x.dtype.kind == "f":
        yield first._replace(x=first.x * np.float32(_OVERSIZED))
        yield first._replace(x=np.full_like(first.x, np.nan))
    else:
        yield first._replace(x=np.full_like(first.x, np.iinfo(first.x.dtype).max))


def _part(shard: Shard, places: slice) -> Shard:
    return Shard(shard.x[places], shard.y[places])


def _joined(shard: Shard, more: Shard) -> Shard:
    return Shard(np.concatenate([shard.x, more.x]), np.concatenate([shard.y, more.y]))
