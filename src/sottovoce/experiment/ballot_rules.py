"""Rules for ballots across the tables of an experiment file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sottovoce.core.errors import PrivacyError
from sottovoce.federation.ballots.coding import BallotForm
from sottovoce.schemes import Scheme

if TYPE_CHECKING:
    from sottovoce.experiment.config import Experiment

__all__ = ["BALLOTS", "ballot_form", "check_ballots"]

BALLOTS: Final = ("ballot", "ideal-ballot")


def ballot_form(experiment: Experiment) -> BallotForm:
    """Return how values become votes: as the file says, or as suits the scheme."""
    if experiment.aggregation.ballot is not None:
        return experiment.aggregation.ballot
    return "sign" if experiment.make_scheme().form == "signs" else "rotated"


def check_ballots(experiment: Experiment, scheme: Scheme) -> None:
    """Raise if ballots cannot be cast with the other tables; ValueError is one sentence of the config's."""
    secure, form = experiment.secure, experiment.aggregation.ballot
    key = f'[aggregation] secure = "{secure}"'
    if experiment.aggregation.helper is not None and secure != "ballot":
        raise ValueError(f'[aggregation] helper is for secure = "ballot", and it is "{secure}"; remove it')
    if secure not in BALLOTS:
        if form is not None:
            raise ValueError(f'[aggregation] ballot is for secure = "ballot" or "ideal-ballot", and it is "{secure}"')
        return
    if experiment.engine.name == "flower" and secure == "ballot":
        raise ValueError(f'{key} needs a helper, which a Flower fleet has no place for; use MQTT, or secure = "real"')
    if experiment.privacy is None:
        raise PrivacyError(f"{key} hides ballots in the noise of two aggregators, and this run has none; add [privacy]")
    if scheme.once or not (scheme.linear or scheme.form == "signs"):
        raise ValueError(f"{key} counts votes of one bit, which {scheme.name} cannot learn from; choose another scheme")
    if scheme.form == "signs" and form not in (None, "sign"):
        raise ValueError(f'[aggregation] ballot = "{form}" needs values, but {scheme.name} sends signs; remove it')
    table = experiment.privacy
    for other, wrong in (
        ("[privacy] vote_noise_multiplier", table.vote_noise_multiplier is not None),
        ("[scheme] warm_start", experiment.scheme.warm_start is not None),
        ("[privacy] bits", table.bits is not None),
        ('[privacy] grid = "papers"', table.grid == "papers"),
        ('[privacy] mechanism = "gaussian"', table.mechanism == "gaussian"),
        ('[privacy] clipping = "adaptive"', table.clipping == "adaptive"),
    ):
        if wrong:
            raise ValueError(f"{key} knows nothing but ballots of one bit a value; remove {other}")
    servers = 1 if experiment.switches is None else experiment.switches.servers
    if servers != 1:
        raise ValueError(f"{key} has two aggregators of its own; remove [switches] servers")
    threat = experiment.threat
    if threat is not None and threat.boost not in (None, 1):
        raise ValueError(
            f"[threat] boost = {threat.boost:g} cannot be said in the one bit that a ballot has for each value; "
            "remove it"
        )
