"""The audit accuses ten builds that are broken in ten ways, two of which it did not see, and no correct one.

All tests of an audit together accuse a correct build with probability 1e-4 at most (FALSE_ALARM), so that the correct
builds here fail by chance in one of 500 seeds of seeds at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sottovoce.studies.audit import audit
from tests.studies.audit import breaks
from tests.studies.audit.small import federation, played, quickly

Break = Callable[[pytest.MonkeyPatch], None]
ADAPTIVE = {"privacy": {"clipping": "adaptive", "count_stddev": 1.0}}
MEASURED = {
    "experiment": {"evaluation": "federated"},
    "client": {"held_out": 0.2},
    "privacy": {"evaluation_noise_multiplier": 3.0},
}
VOTE = {"privacy": {"vote_noise_multiplier": 2.0}}
MANY = {"data": {"clients": 60}, "cohort": {"sample_rate": "9/10"}}

TEN: list[tuple[Break, str]] = [
    (breaks.halved_noise, "share variance"),
    (breaks.share_of_a_client_dropped, "share of each client"),
    (breaks.one_coordinate_without_noise, "share in each coordinate"),
    (breaks.clip_skipped, "clipping, dirac 10"),
    (breaks.model_divided_by_the_realised_cohort, "published"),
    (breaks.cohorts_of_one_size, "cohort sizes"),
    (breaks.cohort_size_in_the_records, "published"),
    (breaks.one_seed_for_all_rounds, "repeated noise"),
    (breaks.missing_noise_not_made_up, "released sum variance"),
    (breaks.no_participation_cap, "participation cap"),
]

FURTHER: list[tuple[Break, str, str, dict[str, Any]]] = [
    (breaks.one_coordinate_not_clipped, "clipping in each coordinate", "fl-std", {}),
    (breaks.one_coordinate_without_the_servers_noise, "cohort of 0 in each coordinate", "fl-std", {}),
    (breaks.one_client_of_many_without_noise, "share of each client", "fl-std", MANY),
    (breaks.same_cohort_in_every_round, "draws of a client", "fl-std", {}),
    (breaks.grid_carries_the_sum, "sum as it was sent", "fl-std", {}),
    (breaks.noise_from_a_short_seed, "repeated noise of any two", "fl-std", {}),
    (breaks.clip_norm_by_the_number_of_records, "clipping in each coordinate", "fl-std", {}),
    (breaks.count_without_noise, "share in each coordinate", "fl-std", ADAPTIVE),
    (breaks.votes_without_noise, "vote", "fl-top", VOTE),
    (breaks.measurements_without_noise, "measurement", "fl-std", MEASURED),
    (breaks.measurements_never_charged, "short run, rounds charged", "fl-std", MEASURED),
    (breaks.draws_forgotten, "short run, draws bound", "fl-std", {}),
]


@pytest.mark.parametrize(("broken", "test"), TEN, ids=[broken.__name__ for broken, _ in TEN])
def test_a_broken_build_is_accused(broken: Break, test: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)

    found = played()

    assert found.accused
    assert [one.name for one in found.tests if found.rejects(one) and test in one.name], found.reasons


@pytest.mark.parametrize(
    ("broken", "test", "scheme", "tables"), FURTHER, ids=[broken.__name__ for broken, *_ in FURTHER]
)
def test_so_is_one_that_is_broken_elsewhere(
    broken: Break, test: str, scheme: str, tables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)

    found = played(scheme, **tables)

    assert [one.name for one in found.tests if found.rejects(one) and test in one.name], found.reasons


@pytest.mark.parametrize("sampling", ["poisson", "fixed", "everyone"])
@pytest.mark.parametrize(
    ("scheme", "mechanism"),
    [
        ("fl-sign", "discrete"),  # signs have no continuous noise
        *((scheme, mechanism) for scheme in ("fl-std", "fl-top", "fl-cs") for mechanism in ("discrete", "gaussian")),
    ],
)
def test_no_correct_build_is_accused(scheme: str, sampling: str, mechanism: str) -> None:
    cohort = {"sample_rate": 1} if sampling == "everyone" else {"sampling": sampling}
    privacy: dict[str, Any] = {} if mechanism == "discrete" else {"mechanism": "gaussian"}
    if scheme == "fl-top":
        privacy["vote_noise_multiplier"] = 2.0

    found = played(scheme, seed=len(scheme + sampling + mechanism), cohort=cohort, privacy=privacy)

    assert not found.accused, found.reasons


@pytest.mark.parametrize("scheme", ["fl-std", "fl-sign"])
def test_nor_is_one_with_real_masks(scheme: str) -> None:
    everyone = federation(scheme, cohort={"sample_rate": 1}, experiment={"rounds": 2})

    found = audit(everyone, quickly(secure=True, games=4, seeds=1))

    assert not found.accused, found.reasons


@pytest.mark.parametrize("tables", [MEASURED, ADAPTIVE, MANY], ids=["measured", "adaptive", "many clients"])
def test_nor_is_one_with_more_than_rounds(tables: dict[str, Any]) -> None:
    found = played(**tables)

    assert not found.accused, found.reasons
