"""Couple sampling, clipping, noise, grid, survivors and budget in one object: the only way to a private run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector
from sottovoce.privacy.accounting import accountant as accounts
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.noise import path
from sottovoce.privacy.noise.clipping import LEAST_CLIP_NORM, MOST_CLIP_NORM, Adaptive, norm
from sottovoce.privacy.noise.grid import NoiseGrid
from sottovoce.privacy.noise.mechanisms import Gaussian
from sottovoce.privacy.noise.randomness import Randomness
from sottovoce.privacy.plan import ballots
from sottovoce.privacy.plan.charges import accounted, accounted_delta, against, answered, apart_cost, events_of
from sottovoce.privacy.plan.cohort import Counts, Drawn, Shares, draw_cohort, floor_note
from sottovoce.privacy.plan.describe import describe
from sottovoce.privacy.plan.process import solve_here_or_apart
from sottovoce.privacy.plan.request import NoiseBy, PrivacyRequest, check_keys
from sottovoce.privacy.plan.server import Targets, expected_contributions
from sottovoce.privacy.plan.solve import grid_costs

_LATER_KEYS: Final = (
    "answer_rate",
    "floor_share",
    "unsafe_test",
    "unit",
    "units",
    "unit_rate",
    "apart",
)  # of a request, that older ledgers do not know


class Release(NamedTuple):
    """The noisy sum of a round, and the clip norm of the next."""

    total: Vector
    clip_norm: float


@dataclass(frozen=True)
class PrivacyPlan:
    """Everything that a private run needs, solved and sealed; build it by `solve`.

    Guarantee: after `rounds` rounds built with this plan, whatever the clients' data, the run is private for each
    client (`privacy.adjacency`: replaced by nothing) at `delta` and

    - `epsilon` against outsiders, who do not know who was sampled and hold no client, if each client answers at
      least as surely as `answer_rate` says;
    - `epsilon_server` against the server with `colluders` of each cohort, who know who was sampled and all noise but
      that of the honest ones among the fewest clients that a sum may be opened with;
    - `epsilon_member` against one client of the cohort, who knows who was in its cohorts and its own share of noise.

    Where the unit is a record or a person, `clients` are the sites that hold them, "each client" above reads "each
    unit", and all three numbers count on the sites' coins, which nobody but the site knows; `epsilon_member` is then
    `epsilon_site`, against another site. A site adds the centres of its units and protects their sum once.

    An epsilon is infinite where there is no bound. A plan whose fields were changed by hand does not construct.
    """

    request: PrivacyRequest
    noise_multiplier: float
    epsilon: float
    epsilon_server: float
    epsilon_member: float
    rounds: int  # those that the budget affords, at most those asked for
    max_participations: int
    shares: Shares
    grid: NoiseGrid | None  # None: the continuous Gaussian, in simulation
    targets: Targets  # what decided noise and cap
    seal: str

    def __post_init__(self) -> None:
        if self.seal != _seal({f.name: getattr(self, f.name) for f in fields(self) if f.name != "seal"}):
            raise PrivacyError("a PrivacyPlan cannot be put together or changed by hand; use PrivacyPlan.solve")

    @classmethod
    def solve(cls, **keys: Any) -> Self:
        """Return the plan for the keys of `PrivacyRequest`, or say in one sentence why there is none.

        With `epsilon` or `epsilon_server` or both it finds the noise for all rounds, and with `epsilon_server` the cap
        on participations if it is left out; with `noise_multiplier` alone the epsilons; with `noise_multiplier` and an
        epsilon or both, these are budgets: the run ends at the last round, and each client with the last
        participation, that they afford.
        """
        check_keys(keys)
        solved = solve_here_or_apart(PrivacyRequest(**keys))
        plan = cls(**solved, seal=_seal(solved))
        plan.stddev()  # refuses a count that would spend the round's budget
        return plan

    # What a client does.

    def protect(
        self,
        message: NDArray[Any],
        *,
        cohort: int,
        randomness: Randomness,
        clip_norm: float | None = None,
    ) -> NDArray[Any]:
        """Return what the client sends: words below 2^bits, each a discrete Gaussian around the clipped message.

        `cohort` is the number of clients of this round, as the client itself counted them; `clip_norm` is the
        round's, and needed under adaptive clipping only.

        Guarantee: the shares of the whole cohort add up to noise of `noise_multiplier` clip norms (after the rounding
        width), and the message moves the sum by at most one.
        """
        self._check_randomness(randomness)
        self.shares.check(cohort, cohort)
        request = self.request
        if request.of_sites:
            raise PrivacyError(f"this plan protects each {request.unit} of a site; add `centres`, and `protect_total`")
        expected = np.int8 if request.form == "signs" else np.float32
        if message.shape != (request.length,) or message.dtype != expected:
            raise InputError(
                f"a message of {request.length} {expected.__name__} values was expected, "
                f"got {message.dtype} {message.shape}"
            )
        bound = self._clip_norm(clip_norm)
        if self.grid is None:
            return Gaussian(self.stddev(bound) / math.sqrt(cohort)).protect(message, bound, randomness)
        share = Fraction(self.grid.variance) / cohort
        if request.form == "signs":
            return path.protect_signs(
                message,
                radius=self.grid.radius,
                share_variance=share,
                bits=self.grid.bits,
                randomness=randomness.bits(),
            )
        return path.protect_floats(
            message,
            clip_norm=bound,
            radius=self.update_radius,
            precision=self.grid.precision,
            extra=() if self.adaptive is None else (self._count_centre(message, bound),),
            share_variance=share,
            bits=self.grid.bits,
            randomness=randomness.bits(),
        )

    def protect_rows(
        self,
        messages: NDArray[np.float32],
        *,
        cohort: int,
        randomness: Sequence[Randomness],
        clip_norm: float | None = None,
    ) -> tuple[NDArray[np.uint32], int] | None:
        """Return what some clients send, a row each as `protect` makes it, and how many messages were not finite.

        None where they must be protected one by one.

        Guarantee: that of `protect`, for each row with the randomness of its place.
        """
        request = self.request
        if self.grid is None or self.adaptive is not None or request.form == "signs" or request.of_sites:
            return None
        for key in randomness:
            self._check_randomness(key)
        self.shares.check(cohort, cohort)
        if messages.shape != (len(randomness), request.length):
            raise InputError(f"{len(randomness)} rows of {request.length} were expected, got shape {messages.shape}")
        return path.protect_rows(
            messages,
            clip_norm=self._clip_norm(clip_norm),
            radius=self.update_radius,
            precision=self.grid.precision,
            share_variance=Fraction(self.grid.variance) / cohort,
            bits=self.grid.bits,
            randomness=[key.bits() for key in randomness],
        )

    def centres(self, messages: NDArray[Any]) -> NDArray[np.int64]:
        """Return the sum of the centres of some units, a row each, as exact integers.

        Guarantee: each unit moves the sum by at most one clip norm, and its part in it depends on its own row alone.
        """
        request, grid = self.request, self._unit_grid
        if messages.ndim != 2 or messages.shape[1] != request.length:
            raise InputError(f"messages of {request.length} values were expected, got shape {messages.shape}")
        if request.form == "signs":
            if not bool(((messages == 1) | (messages == -1)).all()):
                raise InputError("signs must be +1 or -1 in every coordinate")
            centre = path.unit_sign_centre(grid.radius, request.length, grid.precision)
            return np.asarray(messages.sum(axis=0, dtype=np.int64) * centre)
        rows = path.unit_centres(messages, clip_norm=request.clip_norm, radius=grid.radius, precision=grid.precision)
        return np.asarray(rows.sum(axis=0, dtype=np.int64))

    def protect_total(self, total: NDArray[np.int64], *, cohort: int, randomness: Randomness) -> NDArray[Any]:
        """Return what a site sends: words below 2^bits, each a discrete Gaussian around the sum of its units' centres.

        Guarantee: the shares of all sites of the cohort add up to noise of `noise_multiplier` clip norms (after the
        rounding width), whatever units were drawn; `total` itself is neither clipped nor rounded.
        """
        self._check_randomness(randomness)
        self.shares.check(cohort, cohort)
        grid = self._unit_grid
        if total.shape != (self.request.length,) or total.dtype != np.int64:
            raise InputError(f"a sum of {self.request.length} centres was expected, got {total.dtype} {total.shape}")
        return path.protect_total(
            total,
            precision=grid.precision,
            share_variance=Fraction(grid.variance) / cohort,
            bits=grid.bits,
            randomness=randomness.bits(),
        )

    # What the server does.

    def draw_cohort(self, draws: Counts, rng: Generator) -> Drawn:
        """Return the next cohort; `draws` counts how often each client was drawn so far (zeros at first)."""
        request = self.request
        if draws.shape != (request.clients,):
            raise InputError(f"draws must count {request.clients} clients, got shape {draws.shape}")
        return draw_cohort(
            draws,
            sampling=request.sampling,
            sample_rate=request.sample_rate,
            size=request.cohort_size,
            cohort_cap=self.shares.cap,
            max_participations=self.max_participations,
            cohort_floor=self.shares.floor if self.request.sampling == "poisson" else 1,
            rng=rng,
        )

    def recover(
        self,
        total: NDArray[Any],
        *,
        cohort: int,
        survivors: int,
        randomness: Randomness,
        clip_norm: float | None = None,
        round_: int | None = None,
    ) -> Release:
        """Return the noisy sum of `survivors` messages of a cohort, and the clip norm of the next round.

        Guarantee: raises when too few survived. The noise of those who dropped out is made up by the server, so that
        what is published has the same noise whoever came: it tells nothing about the cohort, and outsiders face all
        of the noise. This trusts the server: `total`, as it is before, must not be written or sent anywhere.
        """
        self._check_randomness(randomness)
        self.shares.check(cohort, survivors, round_=round_)
        bound = self._clip_norm(clip_norm)
        missing = Fraction(cohort - survivors, cohort) if cohort else Fraction(1)
        if self.grid is None:
            sums = np.asarray(total, np.float32)
            if missing:
                sums = Gaussian(self.stddev(bound) * math.sqrt(missing)).add(sums, randomness)
            return Release(sums, bound)
        if total.shape != (self.word_length,):
            raise InputError(f"a total of {self.word_length} words was expected, got shape {total.shape}")
        words = np.ascontiguousarray(total, np.uint32)
        if missing:
            words = path.add_noise(words, Fraction(self.grid.variance) * missing, self.grid.bits, randomness.bits())
        sums = path.to_floats(words, step=self.step(bound), bits=self.grid.bits)
        if self.adaptive is None:
            return Release(sums, bound)
        count = float(sums[-1]) / self.step(bound) / self._count_scale
        return Release(sums[:-1], self.adaptive.next_norm(bound, count, self.expected_cohort))

    def aggregator_noise(self, randomness: Randomness) -> NDArray[np.int64]:
        """Return the noise that one of two aggregators adds to the votes of a round; see `plan.ballots`."""
        self._check_randomness(randomness, "aggregators")
        return ballots.noise(self.grid, self.request.length, randomness)

    def toss(self, randomness: Randomness) -> NDArray[np.uint8]:
        """Return one aggregator's bits of the coins of a round, packed, a row for each coin; see `plan.ballots`."""
        self._check_randomness(randomness, "jointly")
        return ballots.toss(self.grid, self.request.length, randomness)

    def coin_votes(self, bits: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the noise that coins add to the votes of a round: `bits` are those of both aggregators, xored."""
        return ballots.coin_votes(self.grid, self.request.length, bits)

    # What it is.

    @property
    def bits(self) -> int | None:
        """Return the bits of one word, or None for floats in simulation."""
        return None if self.grid is None else self.grid.bits

    @property
    def word_length(self) -> int:
        """Return how many words a client sends; adaptive clipping adds one."""
        return self.request.length + (0 if self.adaptive is None else 1)

    @property
    def expected_cohort(self) -> float:
        """Return the public number by which the server divides."""
        return self.request.batch

    @property
    def cohort_cap(self) -> int:
        """Return the largest cohort."""
        return self.shares.cap

    @property
    def floor_note(self) -> str | None:
        """Say that the least cohort is too small to hide a client among others; None if it is not.

        With ballots the noise of either aggregator hides a client by itself; records and persons are hidden by the
        noise that `epsilon_site` counts.
        """
        if self.shares.by_aggregators or self.shares.of_sites:
            return None
        return floor_note(self.shares.floor, self.request.colluders)

    @property
    def draws_lost(self) -> float:
        """Return the share of the expected draws that the cap on participations turns away."""
        if self.request.of_sites:
            return 0.0
        return 1 - self._contributions / (self.rounds * self.request.sample_rate)

    @property
    def noise_per_draw(self) -> float:
        """Return the noise of all rounds together for each contribution, z sqrt(T) / (N E[min(B, m)]), in clip norms.

        It compares plans: what is learnt in a run is limited by it.
        """
        if self.request.of_sites:
            return self.noise_multiplier / (math.sqrt(self.rounds) * self.request.batch)
        return self.noise_multiplier * math.sqrt(self.rounds) / (self.request.clients * self._contributions)

    @property
    def wrap_probability(self) -> float:
        """Bound the probability that any coordinate of one round's sum wraps around the modulus."""
        return 0.0 if self.grid is None else self.grid.wrap_probability

    @cached_property
    def adaptive(self) -> Adaptive | None:
        """Return the adaptive clipping, if that is how S is found."""
        request = self.request
        if request.clipping != "adaptive":
            return None
        return Adaptive(request.count_noise, request.clip_quantile, request.clip_lr)

    @cached_property
    def update_noise_multiplier(self) -> float:
        """Return the noise on the update itself, in clip norms: more where a count shares the budget."""
        return (
            self.noise_multiplier
            if self.adaptive is None
            else self.adaptive.update_noise_multiplier(self.noise_multiplier)
        )

    @property
    def update_radius(self) -> float:
        """Return the clip norm in grid steps."""
        if self.grid is None:
            return 0.0
        return self.grid.radius * self.noise_multiplier / self.update_noise_multiplier

    def step(self, clip_norm: float | None = None) -> float:
        """Return the grid step in the message's units."""
        return self._clip_norm(clip_norm) / self.update_radius if self.grid is not None else 0.0

    def stddev(self, clip_norm: float | None = None) -> float:
        """Return the standard deviation of the noise on a round's released sum, in the message's units."""
        if self.grid is None:
            return self.noise_multiplier * self._clip_norm(clip_norm)
        return math.sqrt(self.grid.variance) * self.step(clip_norm)

    def events(self, rounds: int | None = None) -> list[Event]:
        """Return the accounting events of the first `rounds` rounds, with what was spent before."""
        count = self.rounds if rounds is None else rounds
        costs = grid_costs(self.grid, self.noise_multiplier, self.shares)
        return events_of(self.request, self.shares, self.noise_multiplier, count, **costs)

    def epsilon_after(self, rounds: int) -> float:
        """Return epsilon after some of the rounds."""
        in_range("rounds", rounds, low=0, high=self.rounds)
        if math.isinf(self.epsilon):
            return self.epsilon
        if rounds == 0:
            delta = accounted_delta(self.request)
            return accounts.epsilon(self.request.spent, delta=delta, accountant=self.request.accountant)
        return self.epsilon if rounds == self.rounds else self._curve[rounds - 1]

    def digest(self) -> str:
        """Return a fingerprint of everything that bears on privacy; the ledger keeps it."""
        return self.seal

    def describe(self) -> dict[str, Any]:
        """Return what `sottovoce plan` prints and `summary.json` keeps."""
        return describe(self)

    @property
    def epsilon_reason(self) -> str | None:
        """Say why there is no `epsilon`; None if there is one."""
        if math.isfinite(self.epsilon):
            return None
        likely = sum(event.quorum_slack for event in self.events())
        if math.isinf(likely):
            return (
                "whether a round has enough answers can depend on one client, and no answer rate is charged for it; "
                "set [aggregation] answer_rate (none can be charged with keys of a session, or a sparse graph of "
                "neighbours)"
            )
        return (
            f"rounds in which one answer decides whether there are enough have probability {likely:.2g} over the run "
            f"at the answer rate {self.request.answer_rate:g}, and half of delta {self.request.delta:g} must pay for "
            "them; ask more clients a round, or lower [aggregation] threshold"
        )

    @property
    def too_few(self) -> str | None:
        """Say in plain words that so few clients cannot hide one among them; None if they can.

        Over the run the noise is compared with the sum of all messages, if each had the clip norm and one direction.
        """
        request = self.request
        ratio = self.noise_per_draw * math.sqrt(request.length) * self.update_noise_multiplier / self.noise_multiplier
        if request.of_sites or ratio <= 1:
            return None
        name, value = "epsilon", self.epsilon
        if self.targets.binding == "epsilon_server" or math.isinf(value):
            name, value = "epsilon_server", self.epsilon_server
        return (
            f"{request.clients} clients cannot hide one among them: at {name} {value:.3g} the noise is {ratio:.3g} "
            'times the sum; use [privacy] unit = "record", or more clients'
        )

    @property
    def epsilon_site(self) -> float | None:
        """Return epsilon against another site, for records and persons; None where clients are protected."""
        return self.epsilon_member if self.request.of_sites else None

    @cached_property
    def epsilon_if_all_answer(self) -> float:
        """Return what `epsilon` is if no client that is asked ever fails to answer."""
        events = answered(self.events())
        return accounts.epsilon(events, delta=accounted_delta(self.request), accountant=self.request.accountant)

    @cached_property
    def epsilon_if_a_third_colludes(self) -> float:
        """Return what `epsilon_server` would be if a third of every cohort told the server its noise."""
        own = against(self.request, self.events(), most=self.max_participations, part=self.shares.third_part)
        return max(own, apart_cost(self.request, self.shares.third_part))

    @cached_property
    def _curve(self) -> list[float]:
        *before, each = accounted(self.request, self.events())
        delta = accounted_delta(self.request)
        curve = accounts.epsilons_by_round(before, each, delta=delta, accountant=self.request.accountant)
        return [min(value, self.epsilon) for value in curve]

    @cached_property
    def _contributions(self) -> float:
        return expected_contributions(self.request.sample_rate, self.rounds, self.max_participations)

    @property
    def _count_scale(self) -> float:
        """Return the grid steps of a count of one: its noise is like the update's, z_u R steps, and that is sigma_b."""
        if self.adaptive is None:
            return 0.0
        return self.update_noise_multiplier * self.update_radius / self.adaptive.count_stddev

    def _count_centre(self, message: Vector, clip_norm: float) -> float:
        return self._count_scale * (0.5 if norm(message) <= clip_norm else -0.5)

    @property
    def unit_grid(self) -> tuple[float, float, int]:
        """Return the clip norm of a unit, the same in grid steps, and the binary digits of a centre."""
        grid = self._unit_grid
        return self.request.clip_norm, grid.radius, grid.precision

    @property
    def _unit_grid(self) -> NoiseGrid:
        if self.grid is None or not self.request.of_sites:
            raise PrivacyError("this plan protects clients, and not the records or persons that they hold")
        return self.grid

    def _clip_norm(self, clip_norm: float | None) -> float:
        if clip_norm is None or clip_norm == self.request.clip_norm:
            return self.request.clip_norm
        if self.adaptive is None:
            raise PrivacyError(
                f"clip_norm is {self.request.clip_norm:g} in every round of this plan, got {clip_norm:g}; "
                "only adaptive clipping may change it"
            )
        in_range("clip_norm", clip_norm, low=LEAST_CLIP_NORM, high=MOST_CLIP_NORM)
        return clip_norm

    def _check_randomness(self, randomness: Randomness, noise_by: NoiseBy = "clients") -> None:
        if self.request.noise_by != noise_by:
            raise PrivacyError(f"the noise of this plan is added by the {self.request.noise_by}, not by the {noise_by}")
        if self.request.deployment and randomness.repeatable:
            raise PrivacyError("noise in a deployment must come from the operating system, not from a seed")


def _seal(parts: dict[str, Any]) -> str:
    plain = {key: asdict(value) if hasattr(value, "__dataclass_fields__") else value for key, value in parts.items()}
    request = plain["request"]
    if not plain["shares"]["joint"]:
        del plain["shares"]["joint"]
    if plain["grid"] is not None and not plain["grid"]["coins"]:
        del plain["grid"]["coins"]
    if request["noise_by"] == "clients":  # as if ballots were never thought of: older ledgers stay valid
        del request["noise_by"], plain["shares"]["by_aggregators"]
    if request["unit"] == "client":
        del plain["shares"]["of_sites"], plain["shares"]["local"]
    for key in _LATER_KEYS:  # the same for these, where they are as they always were
        if request[key] == getattr(PrivacyRequest, key):
            del request[key]
    for event in (*request["spent"], *request.get("apart", ())):
        for key, usual in (("quorum_slack", 0), ("present", 1)):
            if event[key] == usual:
                del event[key]
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()
