"""What `[experiment] evaluation = "federated"` needs of the other tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sottovoce.core.errors import PrivacyError

if TYPE_CHECKING:
    from sottovoce.experiment.config import Experiment

__all__ = ["check_evaluation"]


def check_evaluation(experiment: Experiment) -> None:
    """Raise if clients cannot measure the model, or would do so without noise in a private run."""
    private = experiment.privacy
    noise = None if private is None else private.evaluation_noise_multiplier
    if experiment.evaluation != "federated":
        if noise is not None:
            raise ValueError(
                '[privacy] evaluation_noise_multiplier is for [experiment] evaluation = "federated"; set that, or '
                "remove it"
            )
        return
    key = '[experiment] evaluation = "federated"'
    if not experiment.client.held_out:
        raise ValueError(
            f"{key} measures on records that clients keep out, but [client] held_out is 0; set it, for example to 0.2"
        )
    if experiment.threat is not None or experiment.aggregation.defence != "none" or experiment.switches is not None:
        raise ValueError(f"{key} cannot be played with [threat], [switches] or a defence; remove them")
    if experiment.secure in ("ballot", "ideal-ballot"):
        raise ValueError(f'{key} sums three numbers, which a ballot cannot; set [aggregation] secure = "real"')
    if private is not None and noise is None:
        raise PrivacyError(
            f"{key} tells of the clients' records in a private run, and needs noise of its own; set [privacy] "
            "evaluation_noise_multiplier"
        )
