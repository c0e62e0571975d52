"""Answer `sottovoce privacy --unit record`: noise and epsilons of sites that protect records or persons."""

from __future__ import annotations

import math
from typing import Any, Final

from sottovoce.core.errors import InputError
from sottovoce.privacy.accounting.events import Accountant
from sottovoce.privacy.adjacency import Unit
from sottovoce.privacy.plan.plan import PrivacyPlan

_LENGTH: Final = 1000  # values of a message; the last digit of an epsilon depends on it


def calculate_units(
    *,
    unit: Unit,
    units: int,
    sites: int,
    rounds: int,
    delta: float,
    unit_rate: float = 1.0,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    epsilon_server: float | None = None,
    accountant: Accountant = "pld",
    threshold: float = 2 / 3,
    colluders: int = 0,
) -> dict[str, Any]:
    """Return noise and the three epsilons of records or persons; give the noise, or one or both epsilons.

    `threshold` is the share of the sites that must stay, or above 1 their number.

    Guarantee: the numbers are those of a plan, with the rounding of its grid: `epsilon` against outsiders,
    `epsilon_server` against the server with `colluders` sites, `epsilon_site` against another site.

    >>> told = calculate_units(unit="record", units=30_000, sites=5, rounds=80, delta=1e-5, noise_multiplier=40.0)
    >>> round(told["epsilon"], 3), told["unit"]
    (0.819, 'record')
    """
    if unit == "client":
        raise InputError('units are of unit "record" or "person", got "client"; leave --unit and --units out')
    if (noise_multiplier is None) == (epsilon is None and epsilon_server is None):
        raise InputError("give either noise_multiplier or epsilon and epsilon_server, not both and not neither")
    plan = PrivacyPlan.solve(
        unit=unit,
        units=units,
        clients=sites,
        sample_rate=1.0,
        rounds=rounds,
        delta=delta,
        unit_rate=unit_rate,
        noise_multiplier=noise_multiplier,
        epsilon=epsilon,
        epsilon_server=epsilon_server,
        accountant=accountant,
        threshold=_share(threshold, sites),
        colluders=colluders,
        length=_LENGTH,
        clip_norm=1.0,
    )
    promised = plan.describe()
    return {
        "accountant": accountant,
        "unit": unit,
        "units": units,
        "unit_rate": unit_rate,
        "sites": sites,
        "rounds": rounds,
        "delta": delta,
        "noise_multiplier": plan.noise_multiplier,
        "epsilon": promised["epsilon"],
        "epsilon_server": promised["epsilon_server"],
        "epsilon_site": promised["epsilon_site"],
        "threshold": plan.shares.survivors(sites),
        "colluders": colluders,
        "noise_by": promised["noise_by"],
        "adjacency": promised["adjacency"],
    }


def _share(threshold: float, sites: int) -> float:
    """Return a threshold as the share of which one site more must stay."""
    if not math.isfinite(threshold) or threshold > sites:
        raise InputError(f"threshold must be at most the {sites} sites, got {threshold:g}")
    if threshold > 1:
        return max(0.5, (threshold - 1) / sites)
    return threshold
