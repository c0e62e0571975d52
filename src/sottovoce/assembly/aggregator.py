"""Make the aggregator of a stage: what its tables ask for, with the keys and ways of its parties."""

from __future__ import annotations

from sottovoce.assembly.measure import public_records
from sottovoce.assembly.parts import Parts
from sottovoce.assembly.protection import Protection
from sottovoce.assembly.threat import make_defence
from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Vector
from sottovoce.federation.aggregation.aggregator import Aggregator, Materials
from sottovoce.federation.aggregation.protocols import find_protocol
from sottovoce.federation.aggregation.robust import Reference, Robust
from sottovoce.federation.aggregation.servers import Serverless, Servers
from sottovoce.federation.coding import Clear, Coding
from sottovoce.federation.engine import Evaluator
from sottovoce.schemes import Scheme
from sottovoce.secagg import Policy


def make_aggregator(
    protection: Protection,
    coding: Coding,
    policy: Policy | None,
    setup: bytes,
    *,
    covers: bool = True,
    reference: Reference | None = None,
    first_round: int = 1,
) -> Aggregator:
    """Return how the messages of a stage are added up, by as many servers as asked for: one, several or none.

    With `covers` a secure sum between machines that fails looks like any other: nobody may see who was drawn.
    """
    experiment = protection.parts.experiment
    servers = 1 if experiment.switches is None else experiment.switches.servers
    aggregator = _by_one(protection, coding, policy, setup, covers, reference, first_round)
    if servers == 1:
        return aggregator
    return Serverless(aggregator) if servers == 0 else Servers(aggregator, servers)


def make_reference(parts: Parts, bound: Scheme, evaluator: Evaluator | None) -> Reference | None:
    """Return what makes the server's own message in a round, from all public records; None if no defence asks.

    Without an evaluator nothing can be computed, and no round can be played.
    """
    defence = make_defence(parts.experiment.aggregation)
    if defence is None or not defence.needs_reference:
        return None
    if evaluator is None:
        return _nothing_to_compare
    records = public_records(parts)

    def message(round_: int, down: bytes) -> Vector:
        task = bound.receive(down, {})
        return evaluator.public_message(bound, task.params, task.seed, records, round_)

    return message


def _nothing_to_compare(round_: int, down: bytes) -> Vector:
    raise InputError(f"round {round_} of a plan is not played")


def _by_one(
    protection: Protection,
    coding: Coding,
    policy: Policy | None,
    setup: bytes,
    covers: bool,
    reference: Reference | None,
    first_round: int,
) -> Aggregator:
    parts, plan = protection.parts, protection.plan
    table, parties, cohort = parts.experiment.aggregation, parts.parties, parts.cohort
    defence = make_defence(table)
    if defence is not None:
        if not isinstance(coding, Clear):  # the tables refuse it before; without a word it would be no defence
            raise InputError(f"{defence.name} cannot judge updates that the server does not see")
        return Robust(coding, protection.fewest(plan), defence, table.defence_attackers, cohort.expected, reference)
    covers = covers and plan is not None and parties.machines  # between machines nobody may see who failed
    # A stage beside training may have keys of another life than the rounds.
    protocol = find_protocol(parts.experiment.secure, table.key_life if policy is None else policy.key_life)
    return protocol.make(
        Materials(
            coding=coding,
            fewest=protection.fewest(plan),
            setup=setup,
            keys=parties.keys,
            streams=parties.owners.server,
            seed=parties.owners.seed,
            deployment=parties.deployment,
            covers=covers,
            policy=policy,
            ballot=protection.ballot_terms(plan, setup, first_round),
            link=parties.link,
            leader_signing=parties.leader_signing,
        )
    )
