"""Compare the real protocols that can sum a round: fresh masks, masks that live for a session, ballots.

All have the noise multiplier of the file, and hence its epsilon against outsiders; they differ in who adds the noise,
in bytes, phases and joules, in what a server learns, and in what one client can do. What each costs says the protocol
itself (`federation.aggregation`); here only its inputs differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sottovoce.assembly.parts import Parts
from sottovoce.assembly.protection import Protection
from sottovoce.assembly.stages import ServerSide
from sottovoce.config.experiment import parse, with_settings
from sottovoce.core.errors import InputError, PrivacyError, SottovoceError
from sottovoce.core.wire import Traffic
from sottovoce.devices.cost import Load, device_cost
from sottovoce.federation.aggregation.aggregator import AggregationProtocol, Costs
from sottovoce.federation.aggregation.protocols import PROTOCOLS, find_protocol
from sottovoce.federation.guard import influence
from sottovoce.federation.round import downlink_size
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.plan.request import NoiseBy
from sottovoce.secagg.sizes import Outline

WAY_DEVICES: Final = ("phone-lte", "sensor-nbiot")
_VOTES: Final = 16  # bits of the aggregators' shares of a vote, where no plan says

Settings = Mapping[str, Any]  # keys of [aggregation]


def outline_of(parts: Parts, fewest: Callable[[int], int], length: int, bits: int) -> Outline:
    """Return a round of the file's expected cohort as far as its bytes go."""
    table, clients = parts.experiment.aggregation, max(1, round(parts.cohort.expected))
    return Outline(
        clients,
        length,
        bits,
        needed=fewest(clients),
        colluders=max(table.colluders, int(table.graph_colluders * clients)),
        neighbours=table.neighbours,
    )


def real_cost(ready: ServerSide) -> dict[str, Any]:
    """Return bytes of each phase of a real round for one client, and of what session keys or ballots would make of it.

    All are null, with the reason, where integers cannot be masked: a lone client, a threshold that no session allows.
    """
    down = _downlink(ready)
    ballots = {"if_ballots": _if_ballots(ready, down)}
    try:
        outline = _masked_outline(ready)
        neighbours = outline.degree.neighbours
    except InputError as error:
        refused = dict.fromkeys(
            ("real_bytes_up_per_client_round", "real_bytes_down_per_client_round", "phases", "real_neighbours")
        )
        return {**refused, "real_refused": str(error), "if_session_keys": None, **ballots}
    costs = find_protocol("real", ready.protection.parts.experiment.aggregation.key_life).costs(outline, down)
    standing = find_protocol("real", "session").costs(outline, down)
    return {
        "real_bytes_up_per_client_round": costs.client.up,
        "real_bytes_down_per_client_round": costs.client.down,
        "phases": _described(costs.phases),
        "real_neighbours": neighbours,
        "real_refused": None,
        "if_session_keys": {
            **standing.client._asdict(),
            "phases": _described(standing.phases),
            "enrolment": standing.once._asdict(),
            "needs": "every client in every round, and everyone masking with everyone",
        },
        **ballots,
    }


def _downlink(ready: ServerSide) -> int:
    """Return the bytes of a downlink, without what a protocol adds to it."""
    state = ready.server.init(ready.protection.parts.start)
    return downlink_size(ready.scheme, state, private=ready.plan is not None)


def _masked_outline(ready: ServerSide) -> Outline:
    """Return a round with the file's messages under masks, whatever protocol the file asks for."""
    plan, protection = ready.plan, ready.protection
    if plan is not None and plan.bits is None:
        raise InputError('[privacy] mechanism = "gaussian" is not made of integers and cannot be masked')
    if plan is not None and plan.shares.by_aggregators:
        raise InputError("ballots are counted by two aggregators and not masked")
    masked = replace(protection, parts=_as_real(protection))
    length = ready.scheme.length if plan is None else plan.word_length
    bits = masked.coding(ready.scheme, plan).bits
    return outline_of(masked.parts, masked.fewest(plan), length, bits)


def _as_real(protection: Protection) -> Parts:
    experiment = protection.parts.experiment
    aggregation = experiment.aggregation.model_copy(update={"secure": "real"})
    return replace(protection.parts, experiment=experiment.model_copy(update={"aggregation": aggregation}))


def _if_ballots(ready: ServerSide, down: int) -> dict[str, Any]:
    """Return a round of ballots: one bit a value to two servers that do not collude, in one message."""
    costs = find_protocol("ballot").costs(_message_outline(ready), down)
    return {
        **costs.client._asdict(),
        "messages": len(costs.phases),
        "built": True,
        "needs": 'a second server that does not collude with the first; [aggregation] secure = "ballot"',
    }


def _message_outline(ready: ServerSide, plan: PrivacyPlan | None = None) -> Outline:
    """Return a round of messages that nothing masks; `plan` is one with the noise of their protocol."""
    bits = _VOTES if plan is None or plan.bits is None else plan.bits
    coins = () if plan is None or plan.grid is None else plan.grid.coins
    return Outline(max(1, round(ready.protection.parts.cohort.expected)), ready.scheme.length, bits, coins=coins)


def _described(phases: Mapping[str, Traffic]) -> dict[str, dict[str, int]]:
    return {name: traffic._asdict() for name, traffic in phases.items()}


@dataclass(frozen=True)
class _Way:
    """One real protocol, as far as it can be had: what it needs to be set, and what follows."""

    protocol: type[AggregationProtocol]
    settings: Settings
    costs: Costs | None = None
    plan: PrivacyPlan | None = None
    refused: str | None = None

    def describe(self, load: Load) -> dict[str, Any]:
        """Return what `sottovoce plan` prints; bytes and joules also of a way that the file's other keys forbid."""
        costs, plan = self.costs, None if self.refused else self.plan
        promises = None if plan is None else plan.describe()
        return {
            "way": self.protocol.label,
            "settings": [f"aggregation.{key}={value}" for key, value in self.settings.items()],
            "refused": self.refused,
            "bytes_up_per_client_round": costs and costs.client.up,
            "bytes_down_per_client_round": costs and costs.client.down,
            "bytes_once_per_client": sum(costs.once) if costs and costs.enrolment else None,
            "bytes_between_aggregators_round": costs and (costs.between or None),
            "phases": costs and len(costs.phases),
            "joules_per_client": {name: _joules(name, load, costs) for name in WAY_DEVICES},
            "epsilon": promises and promises["epsilon"],
            "epsilon_server": promises and promises["epsilon_server"],
            "votes": None if plan is None else influence(plan)["votes"],
            "trust": self.protocol.trust,
        }


def three_ways(ready: ServerSide, load: Load) -> list[dict[str, Any]] | None:
    """Return the real protocols side by side; None of a run that is not private.

    A way that the file cannot be played in has the reason (`refused`), and no epsilon: it would be that of other keys.
    """
    if ready.plan is None:
        return None
    ways = [_way(ready, ready.plan, protocol) for protocol in _real_protocols()]
    return [_checked(ready, way).describe(load) for way in ways]


def _real_protocols() -> Iterator[type[AggregationProtocol]]:
    """Yield each protocol that is more than a trusted party, for each life of its keys."""
    for name in PROTOCOLS:
        protocol = find_protocol(name)
        if protocol.ideal is not None:
            yield from protocol.variants()


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


def _way(ready: ServerSide, plan: PrivacyPlan, protocol: type[AggregationProtocol]) -> _Way:
    """Return what a protocol asks for and costs with the noise of a plan; or why it cannot be had."""
    settings: dict[str, Any] = {"secure": protocol.name}
    if len(protocol.variants()) > 1 or protocol.key_life != "round":
        settings["key_life"] = protocol.key_life
    down = _downlink(ready)
    # Where nothing is masked the message is known whatever the plan says.
    costs = None if protocol.masks else replace(protocol.costs(_message_outline(ready), down), between=0)
    way = _Way(protocol, settings, costs)
    try:
        same = protocol.counts_votes and plan.shares.joint
        plan = with_noise_by(plan, plan.request.noise_by if same else protocol.noise_by)
        outline = _outline(ready, plan) if protocol.masks else _message_outline(ready, plan)
        costs = protocol.costs(outline, down)
    except SottovoceError as error:
        return replace(way, refused=str(error))
    if protocol.key_life == "session" and outline.degree.neighbours < outline.cohort - 1:
        way = replace(way, settings={**settings, "neighbours": outline.cohort - 1})
    return replace(way, costs=costs, plan=plan)


def _outline(ready: ServerSide, plan: PrivacyPlan) -> Outline:
    if plan.bits is None:
        raise PrivacyError('[privacy] mechanism = "gaussian" is not made of integers and cannot be masked')
    if plan.shares.floor < 2:
        raise PrivacyError("cohorts of one client may be drawn, and nobody can mask them; raise [cohort] sample_rate")
    return outline_of(ready.protection.parts, plan.shares.survivors, plan.word_length, plan.bits)


def _checked(ready: ServerSide, way: _Way) -> _Way:
    """Return the way with the reason why the file cannot be played in it, if there is one; attacks are left out."""
    parts = ready.protection.parts
    try:
        tables = {name: table for name, table in parts.experiment.tables().items() if name != "threat"}
        if way.protocol.noise_by == "clients":
            tables["aggregation"].pop("ballot", None)
            tables["aggregation"].pop("noise", None)
        keys: dict[tuple[str, ...], Any] = {("aggregation", key): value for key, value in way.settings.items()}
        parse(with_settings(tables, keys)).check_scheme(parts.scheme)
    except (SottovoceError, ValueError) as error:
        return replace(way, refused=way.refused or str(error).removeprefix("experiment: "))
    return way


def _joules(name: str, load: Load, costs: Costs | None) -> dict[str, float] | None:
    """Return the joules of a client and round; None where there are no phases, or the device cannot hold the model."""
    if costs is None:
        return None
    cost = device_cost(name, replace(load, phases=costs.phases))
    each = cost.expected.joules.total
    return {"low": each.low, "default": each.default, "high": each.high} if cost.fits else None
