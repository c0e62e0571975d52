"""Compare the three ways to sum a private round: fresh masks, masks that live for a session, ballots.

All have the noise multiplier of the file, and hence its epsilon against outsiders; they differ in who adds the noise,
in bytes, phases and joules, in what a server learns, and in what one client can do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sottovoce.core.errors import PrivacyError, SottovoceError
from sottovoce.devices import Exchange
from sottovoce.experiment.axes import with_settings
from sottovoce.experiment.config import parse
from sottovoce.experiment.device_costs import Load, device_cost
from sottovoce.experiment.ready import Ready
from sottovoce.experiment.real_costs import ballot_bytes, outline_of
from sottovoce.federation.costs import downlink_size
from sottovoce.federation.guard import influence
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.plan.request import NoiseBy
from sottovoce.secagg.ballots import bytes_between
from sottovoce.secagg.graph import Degree
from sottovoce.secagg.sizes import Outline, Sizes, announcement_size, enrolment_sizes, round_sizes

__all__ = ["WAY_DEVICES", "three_ways", "with_noise_by"]

WAY_DEVICES: Final = ("phone-lte", "sensor-nbiot")

Settings = Mapping[str, Any]  # keys of [aggregation]


@dataclass(frozen=True)
class _Way:
    """One way to sum, as far as it can be had: what it needs to be set, and what follows."""

    name: str
    settings: Settings
    trust: str
    phases: Mapping[str, Sizes] | None = None
    plan: PrivacyPlan | None = None
    refused: str | None = None
    once: Mapping[str, Sizes] | None = None  # the phases of an enrolment
    between: int | None = None  # bytes of a round between two aggregators

    def describe(self, load: Load) -> dict[str, Any]:
        """Return what `sottovoce plan` prints; bytes and joules also of a way that the file's other keys forbid."""
        phases, plan = self.phases, None if self.refused else self.plan
        told = None if plan is None else plan.describe()
        return {
            "way": self.name,
            "settings": [f"aggregation.{key}={value}" for key, value in self.settings.items()],
            "refused": self.refused,
            "bytes_up_per_client_round": None if phases is None else sum(sizes.up for sizes in phases.values()),
            "bytes_down_per_client_round": None if phases is None else sum(sizes.down for sizes in phases.values()),
            "bytes_once_per_client": None if self.once is None else sum(map(sum, self.once.values())),
            "bytes_between_aggregators_round": self.between,
            "phases": None if phases is None else len(phases),
            "joules_per_client": {name: _joules(name, load, phases) for name in WAY_DEVICES},
            "epsilon": told and told["epsilon"],
            "epsilon_server": told and told["epsilon_server"],
            "votes": None if plan is None else influence(plan)["votes"],
            "trust": self.trust,
        }


def three_ways(ready: Ready, load: Load) -> list[dict[str, Any]] | None:
    """Return the three ways side by side; None of a run that is not private.

    A way that the file cannot be played in has the reason (`refused`), and no epsilon: it would be that of other keys.
    """
    if ready.plan is None:
        return None
    state = ready.server.init(ready.protection.parts.start)
    down = downlink_size(ready.scheme, state, private=True)
    ways = [*_masked(ready, ready.plan, down), _ballots(ready, ready.plan, down)]
    return [_checked(ready, way).describe(load) for way in ways]


def with_noise_by(plan: PrivacyPlan, noise_by: NoiseBy) -> PrivacyPlan:
    """Return the plan of the same releases with noise by others: multiplier, rounds, caps and `epsilon` stay.

    The accountant has answered for these releases before and remembers it, so this takes milliseconds.
    """
    request = plan.request
    if request.noise_by == noise_by:
        return plan
    poisson = request.sampling == "poisson"  # a fixed cohort has one size
    settled = replace(
        request,
        noise_by=noise_by,
        noise_multiplier=plan.noise_multiplier,
        epsilon=None,
        epsilon_server=None,
        rounds=plan.rounds,
        cohort_cap=plan.shares.cap if poisson else None,
        cohort_floor=plan.shares.floor if poisson else None,
    )
    return PrivacyPlan.solve(**vars(settled))


def _masked(ready: Ready, plan: PrivacyPlan, down: int) -> Iterator[_Way]:
    fresh = _Way(
        "noise by clients",
        {"secure": "real", "key_life": "round"},
        "one server, and enough clients that do not help it and add their noise; nobody checks what is under a mask",
    )
    standing = replace(
        fresh,
        name="session keys",
        settings={"secure": "real", "key_life": "session"},
        trust="the same, of clients who are all there in every round",
    )
    try:
        plan = with_noise_by(plan, "clients")
        outline = _outline(ready, plan)
    except SottovoceError as error:
        yield from (replace(way, refused=str(error)) for way in (fresh, standing))
        return
    clients = len(outline.clients)
    complete = replace(outline, degree=Degree(clients - 1, plan.shares.survivors(clients)), key_life="session")
    if outline.degree.neighbours < clients - 1:
        standing = replace(standing, settings={**standing.settings, "neighbours": clients - 1})
    yield replace(fresh, phases=round_sizes(outline, down + announcement_size(clients)), plan=plan)
    once = enrolment_sizes(complete, announcement_size(clients))
    yield replace(standing, phases=round_sizes(complete, down), plan=plan, once=once)


def _outline(ready: Ready, plan: PrivacyPlan) -> Outline:
    if plan.bits is None:
        raise PrivacyError('[privacy] mechanism = "gaussian" is not made of integers and cannot be masked')
    if plan.shares.floor < 2:
        raise PrivacyError("cohorts of one client may be drawn, and nobody can mask them; raise [cohort] sample_rate")
    outline = outline_of(ready.protection.parts, plan.shares.survivors, plan.word_length, plan.bits)
    return replace(outline, key_life="round")


def _ballots(ready: Ready, plan: PrivacyPlan, down: int) -> _Way:
    way = _Way(
        "ballots",
        {"secure": "ballot"},
        "two servers that do not collude and add their noise, and no client; "
        "one that leaves the protocol gets a yes or no about ballots, and a wrong guess ends the run",
        {"train": Sizes(ballot_bytes(ready.scheme.length), down)},
    )
    try:
        plan = with_noise_by(plan, "aggregators")
        between = bytes_between(max(1, round(plan.expected_cohort)), ready.scheme.length, plan.bits or 16)
        return replace(way, plan=plan, between=between)
    except SottovoceError as error:
        return replace(way, refused=str(error))


def _checked(ready: Ready, way: _Way) -> _Way:
    """Return the way with the reason why the file cannot be played in it, if there is one; attacks are left out."""
    parts = ready.protection.parts
    try:
        tables = {name: table for name, table in parts.experiment.tables().items() if name != "threat"}
        if way.settings["secure"] != "ballot":
            tables["aggregation"].pop("ballot", None)
        keys: dict[tuple[str, ...], Any] = {("aggregation", key): value for key, value in way.settings.items()}
        parse(with_settings(tables, keys)).check_scheme(parts.scheme)
    except (SottovoceError, ValueError) as error:
        return replace(way, refused=way.refused or str(error).removeprefix("experiment: "))
    return way


def _joules(name: str, load: Load, phases: Mapping[str, Sizes] | None) -> dict[str, float] | None:
    """Return the joules of a client and round; None where there are no phases, or the device cannot hold the model."""
    if phases is None:
        return None
    cost = device_cost(name, replace(load, phases={phase: Exchange(*sizes) for phase, sizes in phases.items()}))
    each = cost.expected.joules.total
    return {"low": each.low, "default": each.default, "high": each.high} if cost.fits else None
