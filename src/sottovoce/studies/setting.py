"""What every inference attack starts from: a federation that is ready to play, and what everybody knows of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Vector
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.given import NOTHING, Given
from sottovoce.experiment.parts import gather
from sottovoce.experiment.protection import protect
from sottovoce.experiment.ready import Ready, make_ready, start_engine
from sottovoce.federation.coding import Terms
from sottovoce.federation.optimise import ServerStep
from sottovoce.models import LocalTraining, Model
from sottovoce.privacy import PrivacyPlan, Randomness
from sottovoce.privacy.noise.path import to_floats
from sottovoce.schemes import Scheme
from sottovoce.schemes.base import Message
from sottovoce.schemes.packed_signs import expand

__all__ = ["Public", "prepare", "public_of"]


@dataclass(frozen=True)
class Public:
    """What every party of a federation knows: its configuration, and nobody's records, randomness or noise."""

    network: Model
    training: LocalTraining
    scheme: Scheme  # bound
    step: ServerStep
    plan: PrivacyPlan | None
    cohort: int  # clients in a round

    def values(self, words: NDArray[Any], terms: Terms) -> Vector:
        """Return what words add to the sum that the server opens, in the message's units.

        In a run that is not private, words are the message itself: a secure sum rounds it, by less than matters here.
        """
        if self.plan is None:
            return np.asarray(expand(words, self.scheme.length) if self.scheme.form == "signs" else words, np.float32)
        if self.plan.bits is None:
            return np.asarray(words, np.float32)
        step = self.plan.step(None if self.plan.adaptive is None else terms.clip_norm)
        return to_floats(np.asarray(words, np.uint32), step=step, bits=self.plan.bits)[: self.scheme.length]

    def contribution(self, message: Message, terms: Terms, key: bytes) -> Vector:
        """Return what one client adds to the sum: its message, or in a private run that message clipped and noised.

        Guarantee: noise is drawn from `key` alone, so whoever emulates a client does not draw that client's noise.
        """
        if self.plan is None:
            return self.values(message, terms)
        if self.scheme.form == "signs":
            message = expand(message, self.scheme.length)
        clip_norm = None if self.plan.adaptive is None else terms.clip_norm
        randomness = Randomness.simulated(key)
        return self.values(
            self.plan.protect(message, cohort=terms.cohort, randomness=randomness, clip_norm=clip_norm), terms
        )


def prepare(experiment: Experiment, given: Given = NOTHING) -> Ready:
    """Load an experiment and bind its scheme, or say why an inference attack cannot be played on it."""
    _check(experiment)
    if experiment.privacy is not None and experiment.privacy.vote_noise_multiplier is not None:
        raise InputError(
            "an inference attack plays no vote; remove [privacy] vote_noise_multiplier and name public records in "
            "[scheme] public"
        )
    one = experiment.model_copy(update={"engine": experiment.engine.model_copy(update={"workers": 1})})
    parts = gather(one, given)
    protection = protect(parts)
    with start_engine(parts) as (_, evaluator):
        return make_ready(protection, evaluator)


def public_of(ready: Ready) -> Public:
    """Return what everybody knows of a federation."""
    parts = ready.protection.parts
    cohort = round(parts.cohort.expected)
    return Public(parts.network, parts.training(), ready.scheme, ready.server.step, ready.plan, cohort)


def _check(experiment: Experiment) -> None:
    """Raise for what the attacks do not know how to play against."""
    if experiment.engine.data is not None:
        raise InputError("inference attacks read records on this machine; remove [engine] data")
    scheme = experiment.make_scheme()
    if scheme.once or experiment.scheme.warm_start is not None:
        sender = scheme.name if scheme.once else "a warm start"
        raise InputError(
            f"inference attacks read updates, and {sender} sends sums of records; choose another scheme, and remove "
            "[scheme] warm_start"
        )
    if experiment.model.front != "none" or experiment.scheme.train != "all":
        raise InputError("inference attacks read the whole network; remove [model] front and [scheme] train")
    if experiment.threat is not None:
        raise InputError("an inference attack is on honest training; remove [threat]")
    if experiment.aggregation.defence != "none":
        raise InputError("an inference attack is on the plain mean; remove [aggregation] defence")
