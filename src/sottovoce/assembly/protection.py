"""How an experiment is protected: how many of a cohort must stay, where messages are clipped, and the privacy plans.

A plan is solved once: before anything is computed, or after the clip norm was measured if the file asks for that.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from sottovoce.assembly.measure import MEASURED
from sottovoce.assembly.parts import Parts
from sottovoce.config.devices import answer_rate
from sottovoce.config.privacy import ballot_form
from sottovoce.config.switches import smallest_session
from sottovoce.config.tables import AggregationTable, PrivacyTable
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.streams import Seeds
from sottovoce.federation.aggregation.aggregator import Fewest
from sottovoce.federation.aggregation.ballots.coding import Ballots
from sottovoce.federation.aggregation.ballots.count import deployed_terms, simulated_terms
from sottovoce.federation.coding import Clear, Coding, FloatGrid, Private, SignGrid
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.stages.evaluation import LENGTH, NORM, evaluations
from sottovoce.federation.stages.unit_evaluation import MeasureUnits
from sottovoce.federation.stages.whiten import whiten_scheme
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.accounting.calculator import DEFAULT_THRESHOLD
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.plan.charges import cohort_cap
from sottovoce.privacy.plan.cohort import floor_note
from sottovoce.privacy.plan.request import PrivacyRequest
from sottovoce.privacy.plan.vote import vote_plan
from sottovoce.schemes import Scheme
from sottovoce.secagg import Policy, check_threshold
from sottovoce.secagg.ballots import BallotTerms
from sottovoce.secagg.graph import COMPLETE_UP_TO, choose

OTHER_FLOORS: Final = 0.1  # of delta: what the least cohort of a vote, or of all measurements, may cost


@dataclass(frozen=True)
class Protection:
    """What protects the clients of a run: the solved plans, and how many of a cohort must answer."""

    parts: Parts
    plan: PrivacyPlan | None = None  # of the training rounds; None: not private, or the clip norm is not measured yet
    vote_plan: PrivacyPlan | None = None  # of the clients' vote for the coordinates
    warm_plan: PrivacyPlan | None = None  # of the message that finds a warm start
    unsolved: bool = False  # the clip norm is to be measured first
    evaluation_plan: PrivacyPlan | None = None  # of the measurements by clients
    whiten_plan: PrivacyPlan | None = None  # of the message that finds the whitening

    def measured(self, clip_norm: float | None) -> Protection:
        """Return the protection with its plan solved for a clip norm that was measured; None: it was known before."""
        if clip_norm is None:
            return self
        return _solved(self.parts, clip_norm, self.vote_plan, self.warm_plan, self.evaluation_plan, self.whiten_plan)

    def fewest(self, plan: PrivacyPlan | None) -> Callable[[int], int]:
        """Return how many of a cohort must answer; a private run asks for those that its noise was shared among."""
        if not self.parts.experiment.protocol.hides_updates:
            return Fewest(Fraction(0))
        return Fewest(threshold(self.parts), self._smallest_session) if plan is None else plan.shares.survivors

    def coding(self, bound: Scheme, plan: PrivacyPlan | None) -> Coding:
        """Return how messages travel."""
        cohort, experiment = self.parts.cohort, self.parts.experiment
        if plan is not None:
            if plan.shares.by_aggregators:
                return Ballots(plan, self.parts.seeds, ballot_form(experiment))
            return Private(plan, self.parts.seeds)
        if not experiment.protocol.hides_updates:
            return Clear(bound.form, bound.length, cohort.most)
        if bound.form == "signs":
            return SignGrid(bound.length, cohort.most)
        return FloatGrid(bound.length, cohort.most, experiment.aggregation.largest)

    @property
    def cohort_floor(self) -> int | None:
        """Return the least cohort of which a sum is opened; None where the server sees each message."""
        if self.plan is not None:
            return self.plan.shares.floor
        return self._smallest_session if self.parts.experiment.protocol.hides_updates else None

    @property
    def floor_note(self) -> str | None:
        """Say that cohorts may be too small to hide a client among others; None if they are not."""
        every = (self.vote_plan, self.warm_plan, self.whiten_plan, self.evaluation_plan, self.plan)
        plans = [plan for plan in every if plan is not None]
        if plans:
            return next((plan.floor_note for plan in plans if plan.floor_note is not None), None)
        if (floor := self.cohort_floor) is None:
            return None
        return floor_note(floor, self.parts.experiment.aggregation.colluders)

    @property
    def _smallest_session(self) -> int:
        cohort, experiment = self.parts.cohort, self.parts.experiment
        return smallest_session(experiment.switches, cohort.smallest(experiment.aggregation.colluders))

    def ballot_terms(self, plan: PrivacyPlan | None, setup: bytes, first_round: int = 1) -> BallotTerms | None:
        """Return the terms of a real count of ballots from a round on; None if there is none."""
        if plan is None or not self.parts.experiment.protocol.needs_helper:
            return None
        digest = hashlib.sha256(b"sottovoce ballots" + self._digest() + setup).digest()
        if not self.parts.parties.deployment:
            return simulated_terms(plan, Seeds(self.parts.seeds.seed), digest, first_round)
        if self.parts.parties.count is None:
            raise InputError(
                '[aggregation] secure = "ballot" needs a helper, and the roster has none; let one in: sottovoce keys '
                "helper"
            )
        return deployed_terms(plan, self.parts.parties.count, digest)

    def _digest(self) -> bytes:
        return hashlib.sha256(json.dumps(self.parts.experiment.identity(), sort_keys=True).encode()).digest()

    def policy(self, bound: Scheme, plan: PrivacyPlan | None) -> Policy | None:
        """Return what every client of a secure run insists on; it follows from the configuration alone."""
        experiment = self.parts.experiment
        if not experiment.protocol.masks:
            return None
        table = experiment.aggregation
        return Policy(
            config_digest=self._digest(),
            run=self.parts.parties.run,
            bits=self.coding(bound, plan).bits,
            length=bound.length if plan is None else plan.word_length,
            threshold=self.fewest(plan),
            fewest=max(2, self._smallest_session if plan is None else plan.shares.floor),
            colluders=0 if plan is not None and plan.request.local_noise else table.colluders,
            graph_share=table.graph_colluders,
            neighbours=table.neighbours,
            key_life=table.key_life,
            last_round=experiment.experiment.rounds if plan is None else plan.rounds,
            participations=None if plan is None else plan.max_participations,
        )


def protect(parts: Parts) -> Protection:
    """Solve the plans of a private run, or refuse a budget, a threshold or a graph that cannot be kept.

    Where the clip norm is to be measured, all keys are checked now, and the plan is solved when the norm is known.
    """
    table = parts.experiment.privacy
    if table is not None and parts.parties.deployment and table.unit_rate < 1 and parts.network.trained.layered is None:
        raise PrivacyError(
            f"[privacy] unit_rate must be 1 between machines for a torch module, got {float(table.unit_rate):g}: its "
            f"work cannot be padded to the same time, which would tell how many {table.unit}s a site drew"
        )
    vote = None if table is None else _vote(parts, table)
    warm = None if table is None else _warm(parts, table)
    evaluation = None if table is None else _evaluation(parts, table)
    whiten = None if table is None else _whiten(parts, table)
    if table is not None and table.clipping in MEASURED:
        privacy_request(parts, table, clip_norm=1.0)
        return Protection(parts, None, vote, warm, unsolved=True, evaluation_plan=evaluation, whiten_plan=whiten)
    return _solved(parts, None if table is None else _given_norm(parts, table), vote, warm, evaluation, whiten)


def privacy_request(
    parts: Parts, table: PrivacyTable, *, clip_norm: float, spent: tuple[Event, ...] = ()
) -> PrivacyRequest:
    """Return what the tables ask of the privacy plan of the training rounds."""
    bound = parts.scheme.bind(parts.network.dim)
    request = PrivacyRequest(
        deployment=parts.parties.deployment,
        unit=table.unit,
        units=parts.units,
        unit_rate=float(table.unit_rate),
        clients=parts.cohort.clients,
        sample_rate=float(parts.cohort.sample_rate),
        sampling=parts.cohort.sampling,
        cohort_cap=parts.cohort.cap,
        cohort_floor=parts.cohort.floor,
        answer_rate=answer_rate(parts.experiment, deployment=parts.parties.deployment),
        rounds=parts.experiment.experiment.rounds,
        threshold=float(threshold(parts)),
        colluders=parts.experiment.aggregation.colluders,
        length=bound.length,
        form=bound.form,
        clip_norm=clip_norm,
        spent=spent,
        noise_by=parts.experiment.noise_by,
        epsilon=table.epsilon,
        epsilon_server=table.epsilon_server,
        noise_multiplier=table.noise_multiplier,
        delta=table.delta,
        accountant=table.accountant,
        mechanism=table.mechanism,
        clipping=table.clipping,
        clip_quantile=table.clip_quantile,
        clip_lr=table.clip_lr,
        count_stddev=table.count_stddev,
        max_participations=table.max_participations,
        grid=table.grid,
        bits=table.bits,
        unsafe_delta=table.unsafe_delta,
        unsafe_clip_norm=table.unsafe_clip_norm,
        unsafe_public=table.unsafe_public,
        unsafe_preprocessing=table.unsafe_preprocessing,
        unsafe_test=table.unsafe_test,
    )
    return replace(request, answer_rate=None) if _tips_neighbours(parts, request) else request


def _tips_neighbours(parts: Parts, request: PrivacyRequest) -> bool:
    """Tell whether one client that leaves may keep a neighbour's secret closed though enough others answer.

    So it is in a sparse graph, where the few neighbours of a client open its secrets; no rate is charged for that.
    """
    if not parts.experiment.protocol.masks or request.answer_rate in (None, 1):
        return False
    cap, neighbours = cohort_cap(request), parts.experiment.aggregation.neighbours
    return neighbours < cap - 1 if neighbours else cap > COMPLETE_UP_TO


def threshold(parts: Parts) -> Fraction:
    """Return the share of a cohort that must stay to the end."""
    given = parts.experiment.aggregation.threshold
    if given is None:
        return DEFAULT_THRESHOLD
    expected = Fraction(parts.cohort.expected)
    number = given if given > 1 else given * expected
    if number > expected:
        raise InputError(f"[aggregation] threshold must be at most the cohort of {float(expected):g}, got {given}")
    if 2 * number <= expected:
        raise InputError(
            f"[aggregation] threshold must be above half of the cohort of {float(expected):g}, got {given}"
        )
    # Of n clients floor(share * n) + 1 are needed; half of an odd cohort is no whole number.
    return max(Fraction(1, 2), (given - 1) / expected) if given > 1 else given


def _solved(
    parts: Parts,
    clip_norm: float | None,
    vote: PrivacyPlan | None,
    warm: PrivacyPlan | None,
    evaluation: PrivacyPlan | None,
    whiten: PrivacyPlan | None = None,
) -> Protection:
    """Return a protection with its plan, if the run is private; refuse sessions that could not sum securely."""
    private, plan = parts.experiment.privacy, None
    if private is not None and clip_norm is not None:
        # Records and persons that are measured on are others than those that train: they have their own account.
        apart = private.unit != "client"
        before = (vote, warm, whiten) if apart else (vote, warm, whiten, evaluation)
        spent = tuple(event for plan in before if plan is not None for event in plan.events())
        request = privacy_request(parts, private, clip_norm=clip_norm, spent=spent)
        if apart and evaluation is not None:
            request = replace(request, apart=tuple(evaluation.events()))
        plan = PrivacyPlan.solve(**vars(request))
    protection = Protection(parts, plan, vote, warm, evaluation_plan=evaluation, whiten_plan=whiten)
    if parts.parties.deployment and (note := protection.floor_note) is not None:
        raise PrivacyError(note)
    if parts.experiment.protocol.masks:
        if plan is not None and plan.shares.floor < 2:
            raise PrivacyError(
                '[aggregation] secure = "real" cannot mask a cohort of one client, and to send such cohorts home costs '
                f"more than half of delta {plan.request.delta:g} with {parts.cohort.expected:g} clients a round; "
                "raise sample_rate or delta"
            )
        table = parts.experiment.aggregation
        if plan is not None and plan.request.local_noise:  # each site's own noise is enough: masks need not help it
            table = table.model_copy(update={"colluders": 0})
        _check_sessions(table, parts.cohort, protection.fewest(plan))
    return protection


def _given_norm(parts: Parts, table: PrivacyTable) -> float:
    """Return the clip norm of the file, or where adaptive clipping starts from: it finds its way from anywhere."""
    if table.clip_norm is not None:
        return table.clip_norm
    if parts.scheme.form == "signs":
        return 0.0
    if table.clipping == "fixed" and (norm := parts.scheme.bind(parts.network.dim).public_norm) is not None:
        return norm
    if table.clipping == "fixed":
        others = '"public"' if parts.experiment.protocol.counts_votes else '"public" or "adaptive"'
        raise InputError(f"[privacy] clip_norm is missing; set it, or clipping = {others}")
    return 1.0


def _vote(parts: Parts, table: PrivacyTable) -> PrivacyPlan | None:
    """Solve the plan of the clients' vote for the coordinates; None if there is none."""
    noise = table.vote_noise_multiplier
    if noise is None:
        return None
    kept = parts.scheme.bind(parts.network.dim).length
    request = replace(
        privacy_request(parts, table, clip_norm=1.0),
        noise_multiplier=noise,
        epsilon_server=None,
        clipping="fixed",
        clip_norm=math.sqrt(kept),
        length=parts.network.dim,
        grid="solved",
        bits=None,
        floor_share=OTHER_FLOORS,
    )
    keys = {name: value for name, value in vars(request).items() if name not in ("noise_multiplier", "clip_norm")}
    plan, _ = vote_plan(kept=kept, noise_multiplier=noise, **keys)
    server = table.epsilon_server if table.unit != "client" else None  # of clients the training plan says so
    for key, budget, cost in (
        ("epsilon", table.epsilon, plan.epsilon_if_all_answer),
        ("epsilon_server", server, plan.epsilon_server),
    ):
        if budget is not None and cost >= budget:
            raise PrivacyError(
                f"the vote alone costs {key} {cost:.4g} at vote_noise_multiplier {noise:g}, but the budget "
                f"is {budget:g}; raise vote_noise_multiplier or {key}"
            )
    return plan


def everyone(parts: Parts) -> Parts:
    """Return the parts with a cohort of all clients, as the message before round 1 asks them."""
    return replace(parts, cohort=Cohort(clients=parts.cohort.clients, sample_rate=Fraction(1)))


def asked_once(request: PrivacyRequest, *, noise: float, length: int) -> PrivacyRequest:
    """Return what one message of so many values before round 1, of every client, asks of its plan."""
    return replace(
        request,
        sample_rate=1.0,
        sampling="poisson",
        cohort_cap=None,
        cohort_floor=None,
        noise_multiplier=noise,
        epsilon=None,
        epsilon_server=None,
        rounds=1,
        max_participations=None,
        clipping="fixed",
        length=length,
        form="floats",
        grid="solved",
        bits=None,
    )


def _warm(parts: Parts, table: PrivacyTable) -> PrivacyPlan | None:
    """Solve the plan of the message that finds a warm start; None if there is none."""
    noise = table.warm_noise_multiplier
    if parts.warm is None or noise is None:
        return None
    bound = parts.warm.bind(parts.network.dim)
    norm = bound.public_norm
    if norm is None:
        raise InputError(f"[scheme] warm_start: {bound.name} has no clip norm that follows from public numbers")
    request = asked_once(privacy_request(parts, table, clip_norm=norm), noise=noise, length=bound.length)
    plan = PrivacyPlan.solve(**vars(request))
    for key, budget, cost in (
        ("epsilon", table.epsilon, plan.epsilon_if_all_answer),
        ("epsilon_server", table.epsilon_server, plan.epsilon_server),
    ):
        if budget is not None and cost >= budget:
            raise PrivacyError(
                f"the warm start alone costs {key} {cost:.4g} at warm_noise_multiplier {noise:g}, but the budget is "
                f"{budget:g}; raise warm_noise_multiplier or {key}"
            )
    return plan


def _whiten(parts: Parts, table: PrivacyTable) -> PrivacyPlan | None:
    """Solve the plan of the message that finds the whitening; None if there is none.

    It gets `whiten_share` of the budget as Gaussian releases share it: 1 / z^2 adds up. A run without whitening would
    have noise z_1 if all its rounds were one, so this message has z_1 / sqrt(share). What that leaves for the rounds is
    composed from the events, whatever the share was meant to be.
    """
    whitening = parts.network.whitening
    if whitening is None:
        return None
    if parts.experiment.protocol.counts_votes and parts.parties.machines:
        raise InputError(
            "[model] whiten is not played with ballots between machines: the helper counts no round 0 there; use "
            'secure = "real", or whiten = false'
        )
    scheme = whiten_scheme(whitening, ballots=parts.experiment.protocol.counts_votes)
    request = privacy_request(parts, table, clip_norm=1.0)
    whole = PrivacyPlan.solve(**vars(request))
    rate = request.unit_rate if request.of_sites else request.sample_rate
    weight = rate * math.sqrt(request.rounds)
    if whole.targets.binding == "epsilon_server":  # the server knows who was drawn
        weight = max(weight, math.sqrt(whole.max_participations))
    request = replace(request, clip_norm=scheme.public_norm, unit_rate=1.0)
    noise = whole.noise_multiplier / weight / math.sqrt(table.whiten_share)
    return PrivacyPlan.solve(**vars(asked_once(request, noise=noise, length=scheme.length)))


def _evaluation(parts: Parts, table: PrivacyTable) -> PrivacyPlan | None:
    """Solve the plan of the measurements by clients, all of them together; None if there are none."""
    noise, general = table.evaluation_noise_multiplier, parts.experiment.experiment
    if table.unit != "client":
        return _unit_evaluation(parts, table)
    if noise is None:
        return None
    request = replace(
        privacy_request(parts, table, clip_norm=1.0),
        rounds=evaluations(general.rounds, general.evaluate_every),
        noise_multiplier=noise,
        epsilon=None,
        epsilon_server=None,
        max_participations=None,
        clipping="fixed",
        clip_norm=NORM,
        length=LENGTH,
        form="floats",
        grid="solved",
        bits=None,
        floor_share=OTHER_FLOORS,
    )
    # Every client is charged for every measurement, so that nobody need count who was drawn for them.
    return PrivacyPlan.solve(**{**vars(request), "max_participations": request.rounds})


def _unit_evaluation(parts: Parts, table: PrivacyTable) -> PrivacyPlan | None:
    """Solve the plan of the measurements on units that sites set aside; None if there are none.

    Without noise of its own it gets as little as keeps these units within the targets of the run.
    """
    general = parts.experiment.experiment
    if parts.experiment.evaluation != "federated":
        return None
    scheme, noise = unit_measure(parts), table.evaluation_noise_multiplier
    request = privacy_request(parts, table, clip_norm=1.0)
    # Checked beforehand with all units: delta must be below 1 over the number of all of them.
    replace(request, units=(request.units or 0) + (parts.units_aside or 0))
    own = noise is None and (request.epsilon is not None or request.epsilon_server is not None)
    request = replace(
        request,
        units=parts.units_aside,
        rounds=evaluations(general.rounds, general.evaluate_every),
        noise_multiplier=None if own else noise or request.noise_multiplier,
        epsilon=request.epsilon if own else None,
        epsilon_server=request.epsilon_server if own else None,
        clip_norm=scheme.public_norm,
        length=scheme.length,
        form="floats",
        bits=None,
    )
    return PrivacyPlan.solve(**vars(request))


def unit_measure(parts: Parts) -> MeasureUnits:
    """Return the scheme of measurements on records or persons; a loss is cut off at twice that of guessing."""
    network = parts.network
    if network.task.name != "classification":
        raise InputError(
            '[experiment] evaluation = "federated" counts classes where records or persons are protected, '
            f"and [model] task = {network.task.name!r} has none; name public test records ([data] test), or set "
            'evaluation = "none"'
        )
    bound = 2 * math.log(network.classes)
    return MeasureUnits(binary=network.binary, classes=network.classes, loss_bound=bound).bind(network.dim)


def _check_sessions(table: AggregationTable, cohort: Cohort, fewest: Callable[[int], int]) -> None:
    """Raise if the cohort that is expected, or the largest that may be drawn, could not sum securely."""
    if cohort.expected < 2:
        raise InputError(
            f'[aggregation] secure = "real" needs 2 clients a round, but {cohort.expected:g} are expected; raise '
            "[cohort] sample_rate"
        )
    for clients in (int(cohort.expected), cohort.most):
        try:
            check_threshold(fewest(clients), clients, table.colluders)
            colluders = max(table.colluders, int(table.graph_colluders * clients))
            degree = choose(clients, fewest(clients), colluders, table.neighbours)
        except InputError as error:
            raise InputError(f"[aggregation] {error}") from None
        if table.key_life == "session" and degree.neighbours < clients - 1:
            raise InputError(
                f'[aggregation] key_life = "session" needs everyone to mask with everyone, but of {clients} clients '
                f"each has {degree.neighbours} neighbours; set neighbours = {clients - 1}"
            )
