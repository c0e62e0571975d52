"""The keys of `[privacy]` as an object, and what `simulate` fills in where an experiment file must say it."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError

from sottovoce.config import tables
from sottovoce.config.experiment import Experiment, parse
from sottovoce.data import OVER
from sottovoce.federation.stages.evaluation import NORM, evaluations
from sottovoce.privacy.accounting.calculator import calculate
from sottovoce.schemes import Scheme

_VOTE_SHARE: Final = 0.25  # of epsilon, at most, for the vote before round 1, and for measurements by clients
_BLURRED: Final = 0.1  # standard deviation of an accuracy above which nobody measures
_VOTE_NOISE: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0)


class Privacy(tables.PrivacyTable):
    """What a private run promises: the keys of `[privacy]`, with the same defaults and the same checks. Immutable.

    >>> Privacy(epsilon=1.0).delta
    1e-05
    >>> Privacy(epsilom=1.0)
    Traceback (most recent call last):
    sottovoce.core.errors.ConfigError: Privacy: [privacy] has no key 'epsilom'; did you mean 'epsilon'?
    """

    def __init__(self, **keys: Any) -> None:
        try:
            super().__init__(**keys)
        except ValidationError:
            parse({"privacy": keys}, where="Privacy")  # raises the sentence that a file would get
            raise


def filled(
    privacy: tables.PrivacyTable, scheme: Scheme, experiment: Experiment, *, ballots: bool = False
) -> dict[str, Any]:
    """Return the table of `[privacy]`, with the choices that an experiment file leaves to its author.

    Without a clip norm, clipping is "adaptive", and 1 for each record or person where these are protected; in a small
    federation the count that it adapts by gets more noise than usual, so that the updates keep most of the budget.
    Without public data, a scheme that chooses its coordinates lets the clients vote for them, with as much noise as
    it takes to cost at most a quarter of epsilon. Ballots have none of this.

    Guarantee: both are private and part of the budget, which the plan of the run solves and checks as ever.
    """
    table = privacy.model_dump(exclude_unset=True, exclude_none=True)
    if ballots:
        return table
    adapts = privacy.unit == "client" and scheme.form == "floats" and not scheme.once
    if "clipping" not in table and "clip_norm" not in table and adapts:
        table["clipping"] = "adaptive"
        usual = float(experiment.cohort.sample_rate) * experiment.data.clients / 20
        if "count_stddev" not in table and (noise := _round_noise(privacy, experiment)) > usual:
            table["count_stddev"] = round(noise, 3)
    voting = scheme.needs_importance and experiment.scheme.public is None and not privacy.unsafe_public
    if voting and privacy.vote_noise_multiplier is None and table.get("clipping") != "public":
        table["vote_noise_multiplier"] = privacy.noise_multiplier or _vote_noise(privacy, experiment)
    return table


def measure(asked: dict[str, Any], privacy: tables.PrivacyTable, experiment: Experiment, *, ballots: bool) -> None:
    """Fill in who measures the model of a private run without test records: its clients, or nobody.

    Each client keeps a fifth of its records out, and all measure once, after the last round. The noise is the least of
    a short list at which that costs at most a quarter of epsilon. Nobody measures where the noise would hide the
    accuracy, or where clients cannot.

    Guarantee: what is chosen depends on the keys alone, not on anybody's records.
    """
    if experiment.threat is not None:
        return  # the success of an attack is measured on test records: the run will ask for some
    general = asked.setdefault("experiment", {})
    general["evaluation"] = "none"
    if ballots or experiment.aggregation.defence != "none" or experiment.client.balanced == OVER:
        return
    every = general.get("evaluate_every", experiment.experiment.rounds)
    if privacy.unit != "client":  # who is measured on has an account of its own, and its noise follows from the targets
        general |= {"evaluation": "federated", "evaluate_every": every}
        asked["client"] = {"held_out": 0.2, **asked.get("client", {})}
        return
    times = evaluations(experiment.experiment.rounds, every)
    noise = _least_noise(privacy, experiment, times)
    cohort = float(experiment.cohort.sample_rate) * experiment.data.clients
    if privacy.evaluation_noise_multiplier is None and (noise is None or noise * NORM / (2 * cohort) > _BLURRED):
        return
    general |= {"evaluation": "federated", "evaluate_every": every}
    asked["client"] = {"held_out": 0.2, **asked.get("client", {})}
    asked["privacy"].setdefault("evaluation_noise_multiplier", noise)


def _round_noise(privacy: tables.PrivacyTable, experiment: Experiment) -> float:
    """Return about the noise multiplier that the rounds will have."""
    if privacy.epsilon is None or privacy.noise_multiplier is not None:
        return privacy.noise_multiplier or 0.0  # the plan will say what is missing
    rounds = experiment.experiment.rounds
    return float(_cost(privacy, experiment, rounds, epsilon=privacy.epsilon)["noise_multiplier"])


def _vote_noise(privacy: tables.PrivacyTable, experiment: Experiment) -> float:
    """Return the least noise of a short list at which one round costs no more than a quarter of epsilon."""
    return _least_noise(privacy, experiment, 1) or _VOTE_NOISE[-1]  # the plan will say what is missing


def _least_noise(privacy: tables.PrivacyTable, experiment: Experiment, times: int) -> float | None:
    """Return the least noise of the list at which so many releases cost at most a quarter of epsilon; None: no one."""
    budget = privacy.epsilon
    if budget is None and privacy.unit != "client":
        budget = privacy.epsilon_server
    for noise in _VOTE_NOISE if budget is not None else ():
        if _cost(privacy, experiment, times, noise_multiplier=noise)["epsilon"] <= _VOTE_SHARE * (budget or 0):
            return noise
    return None


def _cost(privacy: tables.PrivacyTable, experiment: Experiment, rounds: int, **known: float) -> dict[str, Any]:
    return calculate(
        sample_rate=float(experiment.cohort.sample_rate if privacy.unit == "client" else privacy.unit_rate),
        rounds=rounds,
        delta=privacy.delta,
        sampling=experiment.cohort.sampling,
        accountant="rdp",  # fast, and on the safe side
        noise_multiplier=known.get("noise_multiplier"),
        epsilon=known.get("epsilon"),
    )
