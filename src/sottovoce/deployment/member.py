"""Make a member of a federation from its own experiment file, its keys and its records: nothing comes from the server.

The plan of a private run is solved here, once, before anybody is met.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

import numpy as np

from sottovoce.core import wire
from sottovoce.core.errors import InputError, SecAggError
from sottovoce.core.streams import Owners, Purpose, Secrets, Seeds
from sottovoce.deployment.identity import Identity
from sottovoce.deployment.node import Member
from sottovoce.deployment.roster import Roster
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.deployed import (
    client_knowledge,
    gather_without_records,
    measuring_knowledge,
    node_records,
)
from sottovoce.experiment.parts import Parts
from sottovoce.experiment.protection import Protection, protect
from sottovoce.federation.client import Client, Credentials, Knowledge
from sottovoce.federation.mqtt.greeting import Facts
from sottovoce.federation.secure import Registry
from sottovoce.federation.statistics import trainer_for
from sottovoce.models import Shard, all_features, make_trainer
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
    trainer = make_trainer(parts.network.trained, parts.training(), client.trainer, client.device)
    scores = trainer.scores(parts.start, all_features(parts.network, made_up, 1))
    return Facts(
        version=version("sottovoce"),
        config=config_digest(parts.experiment),
        roster=roster.digest.hex(),
        start=hashlib.sha256(parts.start.tobytes()).hexdigest(),
        probe=tuple(round(float(score), 6) for score in np.ravel(scores)[:_SCORES]),
    )


def largest_message(parts: Parts) -> int:
    """Return the bytes of the largest message that this run can need, with room for lists of keys and shares."""
    return (1 << 20) + 16 * parts.network.dim + 4096 * parts.cohort.clients


def make_member(
    experiment: Experiment, identity: Identity, roster: Roster, records: Shard, *, simulated: bool, apart: bool = True
) -> tuple[Member, Protection]:
    """Return a node's member and what protects it; solves the plan, with `apart` in a process that ends."""
    if identity.id is None:
        raise InputError("these are the keys of the training server; a node needs its own")
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
    )
    with solving_apart() if apart else nullcontext():  # what accounting needs is 70 MB, for once
        protection = protect(parts)
    facts, key = facts_of(parts, roster), identity.signing_key
    table = experiment.client
    base = make_trainer(parts.network.trained, parts.training(), table.trainer, table.device)
    own, aside = (_features(parts, part) for part in node_records(parts, number, records))

    def made(knowledge: Knowledge, shard: Shard) -> Client:
        trainer = trainer_for(knowledge.scheme, parts.network.trained, base)
        credentials = None if simulated else Credentials(key)
        return Client(knowledge, number, owners.client(number), lambda: shard, trainer, credentials)

    def client(setup: bytes) -> Client:
        _check_seed(parts, setup)
        return made(client_knowledge(protection, setup), own)

    measuring = measuring_knowledge(protection)

    member = Member(
        number=number,
        signing_key=key,
        server=roster.server,
        facts=facts,
        scheme=parts.scheme.name,
        client=client,
        measurer=None if measuring is None else made(measuring, aside),
        private=protection.plan is not None,
        most=largest_message(parts),
    )
    return member, protection


def state_folder(keys: Path, experiment: Experiment) -> Path:
    """Return where a node keeps its account of an experiment, unless told otherwise."""
    return keys / "state" / config_digest(experiment)[:16]


def _features(parts: Parts, records: Shard) -> Shard:
    """Return records as what trains reads them: features if there is a front."""
    return Shard(all_features(parts.network, records.x, 1), records.y) if len(records.y) else records


def _check_seed(parts: Parts, setup: bytes) -> None:
    """Refuse a set-up whose shared choices follow from another seed than the file's."""
    low, high = wire.unpack(setup[: wire.frame_size(2, bits=32)], length=2, bits=32).tolist()
    if low | high << 32 != parts.seeds.public.seed:
        raise SecAggError("the server's set-up has another public seed than the experiment file")
