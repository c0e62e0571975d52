"""The audit of records and persons: canary units in the real pipeline, and every build that is broken here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce.federation.units as units
from sottovoce.config.experiment import Experiment, parse
from sottovoce.models.units import Units
from sottovoce.studies.audit import Audit, audit
from sottovoce.studies.audit.federation import make_federation
from sottovoce.studies.audit.options import ready_to_play
from sottovoce.studies.audit.outsider import Trace
from sottovoce.studies.audit.presence import presence
from sottovoce.studies.audit.rules import each_share
from sottovoce.studies.audit.server_play import play_server_games
from sottovoce.studies.audit.sites import real_training, secret_coins
from sottovoce.studies.audit.units import UnitFormulas
from sottovoce.threats.audit.bounds import epsilon_of_mu
from sottovoce.threats.audit.finding import AuditFinding
from sottovoce.threats.audit.noise import NoiseSample
from tests.federation.test_persons import write_sites
from tests.studies.audit import unit_breaks as breaks
from tests.studies.audit.small import quickly

Patch = pytest.MonkeyPatch


COINS = {"privacy": {"unit_rate": "1/2"}}
SOME_SITES = {"cohort": {"sample_rate": "1/2"}, "data": {"clients": 10}, "aggregation": {"threshold": "2/3"}}


def sites(scheme: str = "fl-std", **tables: dict[str, Any]) -> Experiment:
    """Return five sites with the digits."""
    return parse(
        {
            "experiment": {"rounds": 3, **tables.get("experiment", {})},
            "data": {"source": "digits", "clients": 5, "records_per_client": 100} | tables.get("data", {}),
            "model": {"name": "logistic"},
            "scheme": {"name": scheme},
            "cohort": tables.get("cohort", {}),
            "privacy": {"unit": "record", "epsilon_server": 3.0, "delta": 1e-4, **tables.get("privacy", {})},
            "aggregation": {"threshold": 4, **tables.get("aggregation", {})},
        }
    )


def played(scheme: str = "fl-std", *, seed: int = 0, **tables: dict[str, Any]) -> Audit:
    return audit(sites(scheme, **tables), quickly(seed=seed, games=4, seeds=1))


@pytest.mark.parametrize(
    ("scheme", "tables"),
    [
        ("fl-std", {"privacy": {"unit_rate": "1/2"}}),
        ("fl-std", {"aggregation": {"colluders": 4}}),
        ("fl-sign", {}),
    ],
    ids=["coins", "all collude", "signs"],
)
def test_a_correct_build_is_not_accused(scheme: str, tables: dict[str, Any]) -> None:
    found = played(scheme, **tables)

    assert not found.accused, found.reasons
    assert found.epsilon_site is not None
    assert found.epsilon_site_lower is not None
    assert found.epsilon_lower <= found.epsilon
    assert found.epsilon_server_lower <= found.epsilon_server
    assert found.epsilon_site_lower <= found.epsilon_site


def test_half_of_what_is_proven_is_shown() -> None:
    found = audit(sites(experiment={"rounds": 2}), quickly(games=40, seeds=2))

    assert not found.accused, found.reasons
    assert found.epsilon_server / 2 < found.epsilon_server_lower <= found.epsilon_server
    assert found.epsilon_site is not None
    assert found.epsilon_site_lower is not None
    assert found.epsilon_site / 2 < found.epsilon_site_lower <= found.epsilon_site
    assert found.epsilon / 2 < found.epsilon_lower <= found.epsilon
    assert {"epsilon_site", "epsilon_site_lower"} <= set(found.document())


def test_the_bound_of_an_outsider_composes_over_rounds_as_gaussians_do() -> None:
    """At confidence 1 - 1e-6 the bound is below the truth, and with so many canaries not far below."""
    rng, noise = np.random.default_rng(0), NoiseSample(4.0, discrete=False)
    noise.add(rng.normal(0, 2, 100_000))
    present, absent = (rng.normal(mean, 2, 20_000).tolist() for mean in (1.0, 0.0))
    trace = Trace(UnitFormulas(make_federation(*ready_to_play(sites(), quickly(games=4))).plan), noise, rounds=100)
    trace.present, trace.absent = present, absent

    assert 0.7 * epsilon_of_mu(0.5 * 10, 1e-5) < trace.conditional(1e-5, 1e-6) <= epsilon_of_mu(0.5 * 10, 1e-5)


def looked(scheme: str = "fl-std", games: int = 8, **tables: dict[str, Any]) -> list[AuditFinding]:
    """Return the findings of an audit that are about units, without what takes it longest."""
    options = quickly(games=4)
    ready, plan = ready_to_play(sites(scheme, **tables), options)
    federation = make_federation(ready, plan)
    played = play_server_games(federation, games=games, seed=1)
    return [
        *played.findings(),
        *played.bounds(plan.epsilon_server, plan.request.delta, 0.025, 1e-3),
        *each_share(federation, "training", messages=1, seed=2),
        *real_training(ready.protection.parts, federation.knowledge.scheme, plan, 3),
        *secret_coins(federation, 4),
        *presence(federation, 5),
    ]


def accused(findings: list[AuditFinding]) -> list[str]:
    return [one.name for one in findings if one.p_value < 1e-6]


@pytest.mark.parametrize(
    ("scheme", "tables"),
    [("fl-std", {}), ("fl-std", COINS), ("fl-std", SOME_SITES), ("fl-rnd", {}), ("fl-cs", {}), ("fl-sign", {})],
)
def test_nor_is_one_that_is_looked_at_in_haste(scheme: str, tables: dict[str, Any]) -> None:
    assert accused(looked(scheme, **tables)) == []


BROKEN: list[tuple[Callable[[Patch], None], str, dict[str, Any]]] = [
    (breaks.coins_that_follow_from_public_seeds, "coins of two runs", COINS),
    (breaks.coins_of_the_first_round, "coins of two rounds", COINS),
    (breaks.one_coin_for_all_sites, "coins of two sites", COINS),
    (breaks.twice_the_rate, "units drawn", {"privacy": {"unit_rate": "1/4"}}),
    (breaks.sum_clipped_in_place_of_units, "centres of real records", {}),
    (breaks.units_not_clipped, "a real record more", {}),
    (breaks.units_rounded_to_the_grid, "centres of real records", {}),
    (breaks.noise_of_each_unit, "share of each client", {}),
    (breaks.no_noise_at_one_site, "share of each client", {}),
    (breaks.no_answer_without_units, "sites without units answer", {}),
    (breaks.weights_from_the_labels_of_a_site, "a real record more", {"privacy": {"clip_norm": 30.0}}),
    (breaks.rate_of_sites_charged, "epsilon_server games, Gaussian", SOME_SITES | {"experiment": {"rounds": 8}}),
]


@pytest.mark.parametrize(("broken", "test", "tables"), BROKEN, ids=[broken.__name__ for broken, *_ in BROKEN])
def test_a_broken_build_is_accused(
    broken: Callable[[Patch], None], test: str, tables: dict[str, Any], monkeypatch: Patch
) -> None:
    broken(monkeypatch)

    games = 24 if "games" in test else 8
    assert [name for name in accused(looked(games=games, **tables)) if test in name]


def test_a_person_whose_rows_are_clipped_one_by_one_is_seen(tmp_path: Path, monkeypatch: Patch) -> None:
    folder = write_sites(tmp_path, sites=5, persons=100)
    tables = {
        "data": {"source": str(folder / "site_*.csv"), "label": "died", "person": "patient", "clients": 5}
        | {"schema": str(folder / "schema.toml"), "records_per_client": None},
        "privacy": {"unit": "person", "max_rows": 4},
    }
    clipping = [name for name in accused(looked(games=150, **tables)) if "clipping" in name]
    monkeypatch.setattr(units, "units_of", lambda shard: Units.records(np.arange(len(shard.y))))

    assert clipping == []
    assert [name for name in accused(looked(games=150, **tables)) if "clipping" in name]
