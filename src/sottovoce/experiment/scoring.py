"""Measure the model of a round, and tell when measuring says that a run is over."""

from __future__ import annotations

import math

from sottovoce.experiment.parts import Parts
from sottovoce.experiment.records import Record
from sottovoce.experiment.threat import ATTACKED, is_lost
from sottovoce.federation.engine import Evaluator
from sottovoce.federation.optimise import model_of
from sottovoce.models import evaluate, guessed
from sottovoce.schemes import State

__all__ = ["evaluate_model", "given_up", "no_patience_left"]


def evaluate_model(parts: Parts, evaluator: Evaluator, state: State) -> Record:
    """Measure the model on test data, and on held-out data if there is any.

    Guarantee: a private run measures here on nobody's records, or under `unsafe_test`.
    """
    params, binary = model_of(state), parts.network.binary
    release = parts.boundary.release
    scores = release(evaluator.scores(params, "test"), parts.provenance("test"), "the test records")
    metrics = evaluate(scores, parts.dataset.y_test, binary)
    if "held_out" in parts.splits:
        labels = parts.splits["held_out"].y_train
        found = evaluator.scores(params, "held_out")
        held_out = evaluate(release(found, parts.provenance("held_out"), "the held-out records"), labels, binary)
        metrics |= {f"held_out_{name}": value for name, value in held_out.items()}
    # JSON has no NaN; a loss that is not a number is null.
    told: Record = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
    if parts.threat is not None:
        struck = guessed(evaluator.scores(params, ATTACKED), binary) if ATTACKED in parts.splits else None
        told |= parts.threat.metrics(guessed(scores, binary), parts.dataset.y_test, struck, parts.network.classes)
        told |= {"diverged": True} if is_lost(told, parts.network.classes) else {}
    return told


def no_patience_left(records: list[Record], patience: int, metric: str) -> bool:
    """Tell whether the last `patience` values of a metric brought no new best."""
    seen = [record[metric] for record in records if record.get(metric) is not None]
    return patience > 0 and len(seen) > patience and max(seen[-patience:]) <= max(seen[:-patience])


def given_up(parts: Parts, records: list[Record]) -> bool:
    """Tell whether the last measurements of an attacked model were all at the level of guessing."""
    most = 0 if parts.threat is None else parts.threat.table.give_up
    measured = [record for record in records if "accuracy" in record]
    return most > 0 and len(measured) >= most and all("diverged" in record for record in measured[-most:])
