"""Read off a federation what it asks of one client, and of the devices that the file names or of some usual ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sottovoce.devices import Exchange
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.device_costs import DEFAULT_DEVICES, JUDGED, DeviceCost, Load, device_cost
from sottovoce.experiment.parts import Parts
from sottovoce.experiment.ready import Ready
from sottovoce.experiment.timing import describe_joules, make_timing
from sottovoce.federation.costs import Costs
from sottovoce.models import training_gflop, training_memory_mb
from sottovoce.privacy import PrivacyPlan

__all__ = ["Judged", "device_costs", "judged_costs", "judged_devices", "limits_of", "load_of", "participations"]


def load_of(ready: Ready, costs: Costs, before: Sequence[Costs | Mapping[str, Any] | None] = ()) -> Load:
    """Return what the run asks of one client; `before` are a vote and a warm start, if there are such."""
    parts = ready.protection.parts
    rounds = parts.experiment.experiment.rounds if ready.plan is None else ready.plan.rounds
    up, down = float(costs.once.up), float(costs.once.down + len(ready.setup))
    for cost in before:
        if isinstance(cost, Costs):  # a vote asks a cohort
            up += cost.client.up * float(parts.cohort.sample_rate)
            down += cost.client.down * float(parts.cohort.sample_rate)
        elif cost is not None:  # a warm start asks everyone
            up, down = up + cost["bytes_up_per_client"], down + cost["bytes_down_per_client"]
    return Load(
        phases={phase: Exchange(*sizes) for phase, sizes in costs.phases.items()},
        gflop=0.0 if parts.scheme.once else training_gflop(parts.network, parts.training(), parts.mean_size),
        memory_mb=training_memory_mb(parts.network),
        participations=participations(ready.plan, rounds * parts.cohort.expected / parts.cohort.clients),
        rounds=rounds,
        clients=parts.cohort.clients,
        cohort=parts.cohort.expected,
        once_up=up,
        once_down=down,
    )


def participations(plan: PrivacyPlan | None, draws: float) -> float:
    """Return the rounds that a client is expected to contribute to: its draws, less those that the cap turns away."""
    return draws if plan is None else draws * (1 - plan.draws_lost)


def asked_devices(experiment: Experiment) -> tuple[str, ...]:
    """Return the profiles that the file names."""
    asked = experiment.devices.profile
    return () if asked is None else (asked,) if isinstance(asked, str) else tuple(asked)


def judged_devices(experiment: Experiment) -> tuple[str, ...]:
    """Return the profiles that limits are for: those of the file, else one usual phone."""
    return asked_devices(experiment) or (JUDGED,)


def device_costs(experiment: Experiment, load: Load) -> list[DeviceCost]:
    """Return the costs on the file's devices, or on some usual ones side by side.

    A device of the file that cannot hold the model is refused; a usual one is shown, and said not to fit.
    """
    asked = asked_devices(experiment)
    costs = [device_cost(name, load) for name in asked or DEFAULT_DEVICES]
    for cost in costs if asked else ():
        cost.device.require_fit(load.memory_mb)
    return costs


def judged_costs(parts: Parts, costs: Costs, load: Load) -> Judged:
    """Return joules and seconds of the file's devices, as a run of it would tell; else of one usual phone.

    A mix is judged as it is mixed: by the mean of its joules, and by the slowest of a cohort of all of them.
    """
    timing = make_timing(parts, costs)
    if timing is not None:
        run = timing.expected.joules * load.participations + timing.before(load.once_up, load.once_down)
        seconds = load.rounds * max(timing.expected.seconds, timing.clock.rules.round_every)
        told = {
            "joules_per_client": describe_joules(timing.expected.joules),
            "joules_per_client_run": describe_joules(run),
            "seconds_simulated": seconds,
        }
        return Judged(told, run.total.default, seconds / 3600)
    usual = device_cost(JUDGED, load)
    nothing: dict[str, Any] = dict.fromkeys(("joules_per_client", "joules_per_client_run", "seconds_simulated"))
    return Judged(nothing, usual.run.total.default, usual.hours)


class Judged(NamedTuple):
    """What limits on joules and hours are compared with, and what a plan tells of the file's own devices."""

    told: dict[str, Any]
    joules: float
    hours: float


def limits_of(ready: Ready, load: Load, judged: Judged) -> dict[str, float | None]:
    """Return the number that each limit of `--solve` is compared with; null where there is no bound."""
    told: Mapping[str, Any] = {} if ready.plan is None else ready.plan.describe()
    return {
        "epsilon": told.get("epsilon"),
        "epsilon_server": told.get("epsilon_server"),
        "epsilon_member": told.get("epsilon_member"),
        "up": load.up,
        "down": load.down,
        "bytes": load.bytes_total,
        "joules": judged.joules,
        "hours": judged.hours,
        "rounds": load.rounds,
    }
