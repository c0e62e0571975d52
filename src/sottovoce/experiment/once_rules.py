"""Check a scheme of one message, and a warm start by one, against the other tables of an experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sottovoce.experiment.tables import ServerTable
from sottovoce.schemes import Scheme

if TYPE_CHECKING:
    from sottovoce.experiment.config import Experiment

__all__ = ["check_once"]


def check_once(experiment: Experiment, scheme: Scheme) -> None:
    """Raise if nobody trains, and a table says how to train; or if training cannot start where it should."""
    if scheme.once:
        _check_one_message(experiment, scheme)
    if experiment.scheme.warm_start is not None:
        _check_warm_start(experiment, scheme)
    elif experiment.scheme.warm_keys:
        raise ValueError("[scheme] warm_keys are for a warm start, and there is none; set warm_start, or remove them")
    elif experiment.privacy is not None and experiment.privacy.warm_noise_multiplier is not None:
        raise ValueError(
            "[privacy] warm_noise_multiplier is the noise of a warm start, and there is none; set [scheme] warm_start, "
            "or remove it"
        )


def _check_one_message(experiment: Experiment, scheme: Scheme) -> None:
    rounds = experiment.experiment.rounds
    if rounds != 1:
        raise ValueError(f"{scheme.name} takes one round, but [experiment] rounds is {rounds}; set it to 1")
    for key, field in ServerTable.model_fields.items():
        if getattr(experiment.server, key) != field.default:
            raise ValueError(f"{scheme.name} solves for its model, and [server] {key} changes steps; remove it")
    if experiment.privacy is not None and experiment.privacy.clipping == "adaptive":
        raise ValueError(
            f'{scheme.name} takes one round, in which [privacy] clipping = "adaptive" finds nothing; remove it: the '
            "clip norm follows from public numbers"
        )
    if experiment.threat is not None:
        raise ValueError(f"{scheme.name} does not train, and [threat] is about clients that do; remove it")


def _check_warm_start(experiment: Experiment, scheme: Scheme) -> None:
    key = f'[scheme] warm_start = "{experiment.scheme.warm_start}"'
    experiment.make_warm()  # refuses keys that it does not have
    if scheme.once:
        raise ValueError(f"{key} is for schemes that train, and {scheme.name} does not; remove it")
    if scheme.needs_start:
        raise ValueError(
            f"{key} begins at another model than w_0, but the clients of {scheme.name} know weights from w_0 alone; "
            "use a scheme that sends the model, such as fl-std"
        )
    if experiment.threat is not None:
        raise ValueError(f"{key} asks clients that do not train yet, and [threat] is about those who do; remove one")
    if experiment.privacy is None:
        return
    if experiment.privacy.warm_noise_multiplier is None:
        raise ValueError(
            f"{key} is one more release of a private run; set [privacy] warm_noise_multiplier, its noise, for example "
            "to 8"
        )
    if experiment.privacy.vote_noise_multiplier is not None:
        raise ValueError(f"{key} and a vote would both be round 0; remove one of them")
