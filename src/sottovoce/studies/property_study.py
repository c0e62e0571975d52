"""Play a federation whose client 0 is curious, and say how well it tells which rounds had a property."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Purpose
from sottovoce.core.validate import nearest
from sottovoce.core.vectors import Vector
from sottovoce.data import HAS, UNKNOWN
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.given import NOTHING, Given
from sottovoce.experiment.parts import Parts
from sottovoce.experiment.tables import InferenceTable
from sottovoce.models import Shard, Trainer, evaluate, make_trainer
from sottovoce.models.with_torch import needs_torch
from sottovoce.studies.insider import INSIDER, Update, watch
from sottovoce.studies.property_attack import Attack, Records, check_step
from sottovoce.studies.setting import prepare, public_of
from sottovoce.threats.guesses import judge

__all__ = ["infer_property"]

VICTIM: Final = 1  # whose batch has the property, if one has
_FEWEST: Final = 8  # rounds, to learn from and to be judged by

Tell = Callable[[int, int], None]  # rounds that are done, rounds in all


def infer_property(
    experiment: Experiment, given: Given = NOTHING, tell: Tell = lambda done, rounds: None
) -> dict[str, Any]:
    """Play one experiment under attack and return how often the attacker was right, in plain JSON.

    In every round a coin decides whether the batch of client 1 has the property; nobody else's has. The attacker is
    client 0, and its own records are all that it learns from.
    """
    began = time.perf_counter()
    table = experiment.inference or InferenceTable()
    _check(experiment)
    ready = prepare(experiment, given)
    parts, public = ready.protection.parts, public_of(ready)
    check_step(public)
    records, size = _records(parts, table), int(experiment.client.batch_size)  # "all" was refused
    client = parts.experiment.client
    trainer = make_trainer(parts.network, parts.training(), client.trainer, client.device)
    world, rng = parts.seeds.world, parts.seeds.adversary.get(Purpose.ATTACK)
    rounds = experiment.experiment.rounds if ready.plan is None else ready.plan.rounds
    truth = world.get(Purpose.ATTACK, 2).random(rounds) < 0.5

    def deal(round_: int, number: int) -> Shard:
        share = table.share if number == VICTIM and truth[round_ - 1] else 0.0
        return records[number].batch(size, share, world.get(Purpose.BATCH, round_, number))

    attack = Attack(public, trainer, records[INSIDER], size, table.share, table.pairs, table.features, table.classifier)
    update = _updates(parts, trainer, records[INSIDER], size, table.active)
    found = attack.run(watch(ready, trainer, deal, update), rng, lambda round_: tell(round_, rounds))
    member = None if ready.plan is None else ready.plan.epsilon_member
    guesses = judge(truth, found.probabilities)
    scores = trainer.scores(found.model, parts.dataset.x_test)
    return {
        "name": experiment.experiment.name,
        "scheme": parts.scheme.name,
        "private": ready.plan is not None,
        # Against one client of the cohort, which the attacker is; None: there is no bound.
        "epsilon_member": None if member is None or math.isinf(member) else member,
        "noise_multiplier": None if ready.plan is None else ready.plan.noise_multiplier,
        "property": table.property,
        "clients": parts.cohort.clients,
        "rounds": rounds,
        "active": table.active,
        "features": found.features,
        "classifier": table.classifier,
        **{name: part.value for name, part in guesses._asdict().items()},
        **{f"{name}_low": part.low for name, part in guesses._asdict().items()},
        **{f"{name}_high": part.high for name, part in guesses._asdict().items()},
        "main_accuracy": evaluate(scores, parts.dataset.y_test, parts.network.binary)["accuracy"],
        "seconds": time.perf_counter() - began,
    }


def _updates(parts: Parts, trainer: Trainer, records: Records, size: int, weight: float) -> Update:
    """Return how the attacker trains: as everybody on its own records, or actively on the property too.

    Its own batch is half with and half without the property.
    """
    streams = parts.seeds.client(INSIDER)
    active = None
    if weight:
        needs_torch(f"[inference] active = {weight:g}, an attacker that trains on the property too,")
        from sottovoce.models.multitask import MultiTask  # it imports torch

        active = MultiTask(parts.network, parts.training(), weight)

    def update(round_: int, params: Vector, trainable: NDArray[np.bool_] | None) -> Vector:
        rng = streams.get(Purpose.BATCH, round_)
        places = records.places(size, 0.5, rng)
        shard = Shard(records.shard.x[places], records.shard.y[places])
        if active is not None:
            return active.update(params, shard, records.has[places], trainable)
        return next(trainer.updates(params, [shard], [rng], trainable))

    return update


def _check(experiment: Experiment) -> None:
    if experiment.cohort.sample_rate != 1 or experiment.cohort.cap is not None:
        raise InputError(
            "the attacker takes part in every round, and so does everybody; set [cohort] sample_rate = 1 without cap"
        )
    if experiment.data.clients < 2:
        raise InputError(f"[data] clients must be at least 2, the attacker and a victim, got {experiment.data.clients}")
    if experiment.client.batch_size == "all":
        raise InputError('[client] batch_size must be a number: of each round one batch is drawn, got "all"')
    if experiment.client.balanced or experiment.client.held_out:
        raise InputError("property inference draws its own batches; remove [client] balanced and held_out")
    if experiment.make_dropout().possible:
        raise InputError(
            "the attacker relies on everybody taking part in every round; remove [devices] dropout and leave"
        )
    if experiment.experiment.rounds < _FEWEST:
        raise InputError(
            f"property inference needs [experiment] rounds of at least {_FEWEST}, got {experiment.experiment.rounds}"
        )


def _records(parts: Parts, table: InferenceTable) -> list[Records]:
    """Return each client's records of which the property is known, or raise if they are too few for a batch."""
    dataset, size = parts.dataset, int(parts.experiment.client.batch_size)
    if table.property not in dataset.properties:
        known = list(dataset.properties)
        guess = nearest(table.property, known)
        hint = f"did you mean {guess!r}?" if guess else f"it has {', '.join(known) or 'none; use fairface or lfw'}"
        raise InputError(f"[inference] property: {dataset.name} has no property {table.property!r}; {hint}")
    told = dataset.properties[table.property].train
    found = []
    for client in range(parts.cohort.clients):
        places = parts.partition.records(client)
        places = places[told[places] != UNKNOWN]
        has = told[places] == HAS
        needed = {True: round(size * table.share) if client in (INSIDER, VICTIM) else 0, False: size}
        for wanted, least in needed.items():
            there = int((has == wanted).sum())
            if there < least:
                raise InputError(
                    f"client {client} has {there} records {'with' if wanted else 'without'} {table.property!r}, and a "
                    f"batch needs {least}; lower [client] batch_size or [data] clients"
                )
        found.append(Records(Shard(dataset.x_train[places], dataset.y_train[places]), has))
    return found
