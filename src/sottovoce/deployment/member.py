"""Make a member of a federation from its own experiment file, its keys and its records: nothing comes from the server.

The plan of a private run is solved here, once, before anybody is met.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError, SecAggError
from sottovoce.core.streams import Owners, Purpose, Secrets, Seeds
from sottovoce.deployment.helper_link import count_keys
from sottovoce.deployment.identity import HELPER, Identity
from sottovoce.deployment.node import Member, Stage
from sottovoce.deployment.roster import Roster
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.deployed import (
    client_knowledge,
    gather_without_records,
    heard,
    measuring_knowledge,
    node_records,
    opening_knowledge,
)
from sottovoce.experiment.fronts import make_network
from sottovoce.experiment.opening import opening_of
from sottovoce.experiment.parts import Parts
from sottovoce.experiment.protection import Protection, protect
from sottovoce.federation.client import Client, Credentials, Knowledge, split_setup
from sottovoce.federation.mqtt.greeting import Facts
from sottovoce.federation.secure import Registry
from sottovoce.federation.statistics import trainer_for
from sottovoce.models import Model, Shard, all_features, make_trainer
from sottovoce.models.fronted import Fronted
from sottovoce.models.fronts.own import Own
from sottovoce.models.fronts.scattering import Scattering
from sottovoce.models.partial import Partial
from sottovoce.privacy.plan.apart import solving_apart

__all__ = ["config_digest", "facts_of", "largest_message", "make_member", "owners_of", "state_folder"]

_PROBED: Final = 4  # made-up records
_SCORES: Final = 32  # of their scores at most


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
    net = make_network(parts.experiment, data, parts.seeds, told=None)  # nodes do not have a front's numbers yet
    start = net.initialise(parts.seeds.public.get(Purpose.INIT))
    trainer = make_trainer(net.trained, parts.training(), client.trainer, client.device)
    scores = trainer.scores(start, _untold_features(net, made_up))
    return Facts(
        version=version("sottovoce"),
        config=config_digest(parts.experiment),
        roster=roster.digest.hex(),
        start=hashlib.sha256(start.tobytes()).hexdigest(),
        probe=tuple(round(float(score), 6) for score in np.ravel(scores)[:_SCORES]),
    )


def largest_message(parts: Parts) -> int:
    """Return the bytes of the largest message that this run can need, with room for lists of keys and shares."""
    return (1 << 20) + 16 * parts.network.dim + 4096 * parts.cohort.clients + _front_bytes(parts.network)


def make_member(
    experiment: Experiment, identity: Identity, roster: Roster, records: Shard, *, simulated: bool, apart: bool = True
) -> tuple[Member, Protection]:
    """Return a node's member and what protects it; solves the plan, with `apart` in a process that ends."""
    if identity.id is None or identity.id == HELPER:
        who = "training server" if identity.id is None else "helper"
        raise InputError(f"these are the keys of the {who}; a node needs its own")
    if experiment.data.clients != len(roster.entries):
        raise InputError(
            f"[data] clients = {experiment.data.clients}, but the roster has {len(roster.entries)} nodes; they must "
            "be the same"
        )
    owners, number = owners_of(experiment, simulated=simulated), identity.id
    clients = experiment.data.clients
    parts = replace(
        gather_without_records(experiment),
        seeds=owners,
        keys=Registry(Seeds(owners.seed), clients) if simulated else roster.keys,
        deployment=not simulated,
        count=count_keys(roster),
        run=b"",  # known when the server welcomes the node
    )
    with solving_apart() if apart else nullcontext():  # what accounting needs is 70 MB, for once
        protection = protect(parts)
    facts, key = facts_of(parts, roster), identity.signing_key
    split = node_records(parts, number, records)

    def made(parts: Parts, knowledge: Knowledge, own: Shard) -> Client:
        table, trained = experiment.client, parts.network.trained
        base = make_trainer(trained, parts.training(), table.trainer, table.device)
        trainer = trainer_for(knowledge.scheme, trained, base)
        credentials = None if simulated else Credentials(key)
        drawn = owners if simulated else owners_of(experiment, simulated=False)  # no two runs share a batch
        shard = cache(partial(_features, parts, own))  # once, when they are needed first
        return Client(knowledge, number, drawn.client(number), shard, trainer, credentials)

    def hear(setup: bytes) -> Protection:
        _check_seed(parts, setup)
        return heard(protection, setup)

    def client(setup: bytes) -> Client:
        told = hear(setup)
        return made(told.parts, client_knowledge(told, setup), split.train)

    def opening(setup: bytes) -> Client:
        told = hear(setup)
        knowledge = opening_knowledge(told, setup)
        if knowledge is None:
            raise InputError("this experiment has no round 0")
        return made(told.parts, knowledge, split.train)

    def measurer(setup: bytes) -> Client | None:
        told = hear(setup)
        knowledge = measuring_knowledge(told)
        return None if knowledge is None else made(told.parts, knowledge, split.held_out)

    member = Member(
        number=number,
        signing_key=key,
        server=roster.server,
        facts=facts,
        scheme=parts.scheme.name,
        client=client,
        opening=None if (first := opening_of(protection)) is None else Stage(first.scheme.name, opening),
        measurer=measurer,
        private=protection.plan is not None,
        most=largest_message(parts),
    )
    return member, protection


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
    return Shard(found if found is records.x else np.nan_to_num(found, posinf=0.0, neginf=0.0), records.y)


def _untold_features(net: Model, x: NDArray[Any]) -> NDArray[Any]:
    """Return what to probe a model with that may lack its front's numbers: the first of what they would project."""
    front = getattr(net, "front", None)
    if not isinstance(net, Fronted) or not isinstance(front, Scattering | Own) or not front.most_bytes:
        return all_features(net, x, 1)
    return net.model.features(front.coefficients(x).reshape(len(x), -1)[:, : front.width])


def _front_bytes(net: Model) -> int:
    """Return the bytes of the longest numbers of a front that a set-up can carry."""
    front = net.front if isinstance(net, Fronted) else net.filling if isinstance(net, Partial) else None
    return 0 if front is None else front.most_bytes


def _check_seed(parts: Parts, setup: bytes) -> None:
    """Refuse a set-up whose shared choices follow from another seed than the file's."""
    if split_setup(setup)[0] != parts.seeds.public.seed:
        raise SecAggError("the server's set-up has another public seed than the experiment file")
