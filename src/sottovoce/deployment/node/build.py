"""Make a member of a federation from its own experiment file, its keys and its records: nothing comes from the server.

The plan of a private run is solved here, once, before anybody is met.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

import numpy as np

from sottovoce.assembly.elsewhere import gather_without_records, node_records
from sottovoce.assembly.model import make_network
from sottovoce.assembly.parties import Parties
from sottovoce.assembly.parts import Parts, check_site_units
from sottovoce.assembly.protection import Protection, protect
from sottovoce.assembly.stages import Stage, stages
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError, SecAggError
from sottovoce.core.streams import Owners, Purpose, Secrets, Seeds
from sottovoce.deployment.countersign import Promise
from sottovoce.deployment.node.node import Conversation, Member
from sottovoce.deployment.party import HELPER, Identity
from sottovoce.deployment.roster import Roster
from sottovoce.deployment.server.helper_link import count_keys
from sottovoce.federation.aggregation.secure import SimulatedKeys
from sottovoce.federation.client import Client, Credentials, split_setup
from sottovoce.federation.engines.mqtt.greeting import Facts
from sottovoce.federation.stages.statistics import trainer_for
from sottovoce.federation.units import count_units
from sottovoce.models import Shard, all_features, make_trainer
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.plan.process import solving_apart

_PROBED: Final = 4  # made-up records
_SCORES: Final = 32  # of their scores at most
_COLUMNS: Final = 256  # that a greeting names one by one


def config_digest(experiment: Experiment) -> str:
    """Return the hash of all tables that decide the result, in hex."""
    return hashlib.sha256(json.dumps(experiment.identity(), sort_keys=True).encode()).hexdigest()


def owners_of(experiment: Experiment, *, simulated: bool) -> Owners:
    """Return a process's randomness: the operating system's, or the experiment's seed for tests on one machine."""
    seed = experiment.experiment.seed
    return Seeds(seed) if simulated else Secrets(seed)


def facts_of(parts: Parts, roster: Roster) -> Facts:
    """Return what server and nodes compare: versions, experiment, roster, w_0, and scores of a few made-up records."""
    client, data = parts.experiment.client, parts.dataset
    rng = parts.seeds.public.get(Purpose.SETUP, 2)
    made_up = rng.integers(0, 2, (_PROBED, *data.shape)).astype(data.x_train.dtype)
    net = parts.network
    if parts.experiment.statistics is None:
        net = make_network(parts.experiment, data, parts.seeds, told=None)  # nodes do not have a front's numbers yet
    start = net.initialise(parts.seeds.public.get(Purpose.INIT))
    trainer = make_trainer(net.trained, parts.training(), client.trainer, client.device)
    scores = trainer.scores(start, net.probe_features(made_up))
    return Facts(
        version=version("sottovoce"),
        config=config_digest(parts.experiment),
        roster=roster.digest.hex(),
        start=hashlib.sha256(start.tobytes()).hexdigest(),
        probe=tuple(round(float(score), 6) for score in np.ravel(scores)[:_SCORES]),
        columns=_columns(parts),
    )


def _columns(parts: Parts) -> tuple[tuple[str, str], ...]:
    """Return the columns of a table and the label, each with a hash of how the schema reads it.

    Server and nodes compare them, so that a site whose schema differs is named with the column, and no record is seen.
    """
    described = parts.dataset.preprocessing
    if described is None or not parts.dataset.placeholder:
        return ()
    label = {"classes": described["classes"], "missing_values": described["missing_values"], "name": described["label"]}
    told = [*((str(column["name"]), column) for column in described["columns"]), (str(described["label"]), label)]
    hashed = [(name[:100], hashlib.sha256(json.dumps(what).encode()).hexdigest()[:8]) for name, what in told]
    if len(hashed) <= _COLUMNS:
        return tuple(hashed)
    return (("all columns", hashlib.sha256(json.dumps(hashed).encode()).hexdigest()[:16]),)


def largest_message(parts: Parts) -> int:
    """Return the bytes of the largest message that this run can need, with room for lists of keys and shares."""
    front, whitening = parts.network.front, parts.network.whitening
    numbers = (front.most_bytes if front else 0) + (whitening.most_bytes if whitening else 0)
    return (1 << 20) + 16 * parts.network.dim + 4096 * parts.cohort.clients + numbers


def make_member(
    experiment: Experiment,
    identity: Identity,
    roster: Roster,
    records: Shard | Callable[[], Shard],
    *,
    simulated: bool,
    apart: bool = True,
    allow: Callable[[PrivacyPlan | None], None] = lambda plan: None,
) -> tuple[Member, Protection]:
    """Return a node's member and what protects it; solves the plan, with `apart` in a process that ends.

    `allow` sees the plan before `records`, if they are a function, are read, and raises if it is not to be.
    """
    if identity.id is None or identity.id == HELPER:
        who = "training server" if identity.id is None else "helper"
        raise InputError(f"these are the keys of the {who}; a node needs its own")
    if experiment.data.clients != len(roster.entries):
        raise InputError(
            f"[data] clients = {experiment.data.clients}, but the roster has {len(roster.entries)} nodes; they must "
            "be the same"
        )
    owners, number = owners_of(experiment, simulated=simulated), identity.id
    keys = SimulatedKeys(Seeds(owners.seed), experiment.data.clients) if simulated else roster.keys
    parties = Parties.of_machines(owners, keys, roster.digest, seeded=simulated, count=count_keys(roster))
    parts = gather_without_records(experiment, parties)
    with solving_apart() if apart else nullcontext():  # what accounting needs is 70 MB, for once
        protection = protect(parts)
    allow(protection.plan)
    facts, key = facts_of(parts, roster), identity.signing_key
    split = node_records(parts, number, records() if callable(records) else records)
    if experiment.privacy is not None and parts.units is not None:
        check_site_units(experiment.privacy, number, sum(map(count_units, split)))

    def client(stage: Stage, setup: bytes) -> Client:
        """Return this node in a stage, from the set-up message."""
        _check_seed(parts, setup)
        stage = stage.heard(setup)
        knowledge = stage.client_side(setup)
        table, network = experiment.client, stage.parts.network
        base = make_trainer(network.trained, stage.parts.training(), table.trainer, table.device)
        trainer = trainer_for(knowledge.scheme, network.trained, base)
        credentials = None if simulated else Credentials(key)
        drawn = owners if simulated else owners_of(experiment, simulated=False)  # no two runs share a batch
        own = split.held_out if stage.records == "held_out" else split.train
        shard = cache(partial(_features, stage.parts, own))  # once, when they are needed first
        return Client(knowledge, number, drawn.client(number), shard, trainer, credentials)

    member = Member(
        number=number,
        signing_key=key,
        server=roster.server,
        facts=facts,
        conversations=tuple(
            Conversation(stage.scheme.name, stage.rounds, partial(client, stage), beside=stage.beside)
            for stage in stages(protection).values()
        ),
        private=protection.plan is not None,
        promise=promise_of(protection.plan),
        most=largest_message(parts),
        expires=int(identity.expires.timestamp()),
    )
    return member, protection


def promise_of(plan: PrivacyPlan | None) -> Promise:
    """Return what a plan promises, for a claim; what has no bound is None."""
    if plan is None:
        return Promise()
    epsilon, server = (value if math.isfinite(value) else None for value in (plan.epsilon, plan.epsilon_server))
    return Promise(epsilon, server, plan.request.delta)


def state_folder(keys: Path, experiment: Experiment) -> Path:
    """Return where a node keeps its account of an experiment, unless told otherwise."""
    return keys / "state" / config_digest(experiment)[:16]


def _features(parts: Parts, records: Shard) -> Shard:
    """Return records as what trains reads them: features if there is a front.

    Numbers of a lying server may lead out of range; that is not to show, as it would depend on records.
    """
    if not len(records.y):
        return records
    with np.errstate(all="ignore"):
        found = all_features(parts.network, records.x, 1)
    return records._replace(x=found if found is records.x else np.nan_to_num(found, posinf=0.0, neginf=0.0))


def _check_seed(parts: Parts, setup: bytes) -> None:
    """Refuse a set-up whose shared choices follow from another seed than the file's."""
    if split_setup(setup)[0] != parts.seeds.public.seed:
        raise SecAggError("the server's set-up has another public seed than the experiment file")
