"""What a run between machines brings with it: its randomness, the keys of its clients, and the way to reach them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial

from sottovoce.core.errors import InputError, PrivacyError, WireError
from sottovoce.core.streams import Owners, Purpose, Secrets, Seeds, Streams
from sottovoce.data import balance
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.elsewhere import check_deployable, gather_without_records
from sottovoce.experiment.opening import opening_of
from sottovoce.experiment.parts import Parts
from sottovoce.experiment.protection import Protection
from sottovoce.experiment.ready import evaluation_policy, measure_scheme
from sottovoce.federation.ballots.remote import Link
from sottovoce.federation.ballots.terms import CountKeys
from sottovoce.federation.client import Knowledge, read_setup, setup_message, split_setup
from sottovoce.federation.engine import Engine
from sottovoce.federation.evaluation import EVALUATION
from sottovoce.federation.local_evaluation import LocalSplit, split_shard
from sottovoce.models import Shard
from sottovoce.schemes import Scheme
from sottovoce.secagg import Policy, run_digest

__all__ = [
    "Connect",
    "Deployed",
    "check_deployable",
    "client_knowledge",
    "gather_without_records",
    "heard",
    "measuring_knowledge",
    "node_records",
    "opening_knowledge",
]

Connect = Callable[[Parts, bytes], AbstractContextManager[Engine]]
"""A way to reach the nodes, given the parts of the run and its id of 16 bytes."""


@dataclass(frozen=True)
class Deployed:
    """A federation of machines: everything that a run does not find in the experiment's file.

    `simulated` is for tests on one machine: its owners are `Seeds`, the run equals a simulation bit for bit, and its
    summary says "simulated: not private".

    Guarantee: without `simulated` the server's and the clients' randomness comes from the operating system.
    """

    owners: Owners = field(repr=False)
    keys: Mapping[int, bytes]  # the Ed25519 key of each client of the roster
    federation: bytes  # the digest of the roster: no signature of this federation holds in another
    connect: Connect = field(repr=False)
    new_run: bytes = field(default_factory=partial(os.urandom, 16))  # the id of a run that begins now
    simulated: bool = False
    lasting: bool = True  # False: keys are made anew whenever the run goes on, for a trial on one machine
    count: CountKeys | None = None  # the keys of the aggregators of ballots
    link: Link | None = field(default=None, repr=False)  # the way to the helper
    leader_signing: bytes | None = field(default=None, repr=False)
    max_aborts: int = 10  # rounds without quorum after which the run ends; --resume goes on
    back_off: float = 1.0  # seconds of the first pause after a round that nobody answered; doubles from then on
    longest_back_off: float = 300.0
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    def __post_init__(self) -> None:
        if not self.simulated and not isinstance(self.owners, Secrets):
            raise PrivacyError("a deployed run takes its secrets from the operating system; give it Secrets, not seeds")

    def parts(self, experiment: Experiment, front: bytes = b"", run: bytes | None = None) -> Parts:
        """Return the parts of the run as its server has them: nobody's records, and the roster's keys.

        `front` are the numbers of a front that the run folder keeps, and `run` is its id; None: the run begins now.
        """
        clients = experiment.data.clients
        if sorted(self.keys) != list(range(clients)):
            raise InputError(
                f"[data] clients = {clients}, but the roster has {len(self.keys)} clients; they are numbered from 0 "
                "and must be the same"
            )
        if experiment.secure == "ballot" and self.link is None:
            raise InputError(
                '[aggregation] secure = "ballot" needs a helper, and none is named; set [aggregation] helper = '
                '"host:port" for sottovoce serve'
            )
        if self.owners.seed != experiment.experiment.seed:
            raise InputError(
                f"the public seed of the run is {self.owners.seed}, but [experiment] seed is "
                f"{experiment.experiment.seed}; they must be the same"
            )
        return self.own(gather_without_records(experiment, server=True, front=front), run)

    def own(self, parts: Parts, run: bytes | None = None) -> Parts:
        """Return parts with this federation's randomness and keys, bound to one of its runs."""
        return replace(
            parts,
            seeds=self.owners,
            keys=self.keys,
            deployment=not self.simulated,
            count=self.count,
            link=self.link,
            leader_signing=self.leader_signing,
            run=run_digest(self.federation, self.new_run if run is None else run),
        )


def heard(protection: Protection, setup: bytes) -> Protection:
    """Return a node's protection with the numbers of the public front that the set-up carries, if there is one.

    Guarantee: how many they are, and which layers train, is as the node's own file says; no plan depends on them.
    """
    parts = protection.parts
    seed, payload = split_setup(setup)
    told = parts.network.told(payload, Streams(seed).get(Purpose.INIT))
    if told.layout != parts.network.layout:
        raise WireError("the server's set-up trains other layers than the experiment file")
    return replace(protection, parts=replace(parts, network=told))


def client_knowledge(protection: Protection, setup: bytes) -> Knowledge:
    """Return what a node knows of the run: from its own copy of the file, and from the set-up message.

    `protection` is what the node solved itself, for parts with the roster's keys, and has `heard` the set-up.
    """
    parts = protection.parts
    bound = read_setup(parts.scheme, parts.network, setup)
    mean_size = parts.mean_size if parts.weighted else None
    policy, rounds = protection.policy(bound, protection.plan), parts.experiment.experiment.rounds
    return _knowledge(protection, bound, policy, setup, mean_size, rounds)


def opening_knowledge(protection: Protection, setup: bytes) -> Knowledge | None:
    """Return what a node knows in round 0, from its own file and that round's set-up; None if there is no round 0."""
    opening = opening_of(protection)
    if opening is None:
        return None
    parts = opening.protection.parts
    bound = read_setup(opening.scheme, parts.network, setup)
    mean_size = parts.mean_size if parts.weighted else None
    return _knowledge(opening.protection, bound, opening.policy(bound), setup, mean_size, 0)


def measuring_knowledge(protection: Protection) -> Knowledge | None:
    """Return what a node knows when it measures the model; None if clients do not measure.

    All of it follows from the node's own file, but for the front's numbers, which it has `heard`.

    Requests of rounds from `EVALUATION` on are for this. Measurements have a state and a mark of their own; a ledger
    charges them under `charged_round`.
    """
    parts = protection.parts
    if parts.experiment.evaluation != "federated":
        return None
    protection = replace(protection, plan=protection.evaluation_plan)
    bound = measure_scheme(parts).bind(parts.network.dim, seed=parts.seeds.public.seed, start=parts.start)
    setup = setup_message(bound, parts.seeds.public, parts.network.start_payload())
    last = EVALUATION + parts.experiment.experiment.rounds
    return _knowledge(protection, bound, evaluation_policy(protection, bound), setup, None, last)


def node_records(parts: Parts, number: int, owned: Shard) -> LocalSplit:
    """Return what a node trains with and what it keeps out, of all that it owns: balanced and divided as asked.

    Which records these are is no secret of the protocol's: it follows from the seed, so that a node that was started
    anew does not train with what it measured on before.
    """
    table, streams = parts.experiment.client, Seeds(parts.seeds.seed).client(number)
    if table.sampled is not None:
        kept = balance(owned.y, streams.get(Purpose.SETUP), table.sampled)
        owned = Shard(owned.x[kept], owned.y[kept])
    if not table.held_out:
        return LocalSplit(owned, Shard(owned.x[:0], owned.y[:0]))
    return split_shard(owned, table.held_out, streams.get(Purpose.SPLIT))


def _knowledge(
    protection: Protection, bound: Scheme, policy: Policy | None, setup: bytes, mean_size: float | None, last: int
) -> Knowledge:
    if protection.parts.keys is None:
        raise InputError("a node needs the keys of the roster")
    return Knowledge(
        scheme=bound,
        coding=protection.coding(bound, protection.plan),
        keys=protection.parts.keys,
        private=protection.plan is not None,
        mean_size=mean_size,
        policy=None if policy is None else policy.bind(setup),
        ballot=protection.ballot_terms(protection.plan, setup),
        last_round=last,
    )
