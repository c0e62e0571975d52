"""The audit accuses ten builds that are broken in ten ways, two of which it did not see, and no correct one.

All tests of an audit together accuse a correct build with probability 1e-4 at most (FALSE_ALARM).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.studies.audit import breaks
from tests.studies.audit.small import played

TEN: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
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


@pytest.mark.parametrize(("broken", "test"), TEN, ids=[broken.__name__ for broken, _ in TEN])
def test_a_broken_build_is_accused(
    broken: Callable[[pytest.MonkeyPatch], None], test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)

    found = played()

    assert found.accused
    assert [one.name for one in found.tests if found.rejects(one) and test in one.name], found.reasons
