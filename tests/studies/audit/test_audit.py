"""The audit accuses every build that is broken here, and no correct one.

A correct build is accused with probability 1e-4 an audit at most (FALSE_ALARM), so the twenty seeds here fail by chance
once in 500 seeds of seeds; as the p values are upper bounds, far more seldom.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from sottovoce.checks.twin import few
from sottovoce.core.errors import InputError
from sottovoce.studies.audit import FALSE_ALARM, audit
from tests.studies.audit import breaks
from tests.studies.audit.small import federation, in_this_process, played, quickly

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", range(20))
def test_a_correct_build_is_not_accused(seed: int) -> None:
    found = played(seed=seed)

    assert not found.accused, found.reasons
    assert found.epsilon_lower <= found.epsilon
    assert found.epsilon_server_lower <= found.epsilon_server


@pytest.mark.parametrize(
    ("scheme", "tables"),
    [
        ("fl-sign", {}),
        ("fl-cs", {}),
        ("fl-rnd", {}),
        ("fl-std", {"privacy": {"clipping": "adaptive", "count_stddev": 1.0}}),
        ("fl-std", {"privacy": {"mechanism": "gaussian"}}),
        ("fl-std", {"cohort": {"sampling": "fixed"}}),
        ("fl-std", {"cohort": {"sample_rate": 1}, "aggregation": {"colluders": 2}}),
        ("fl-top", {"privacy": {"vote_noise_multiplier": 2.0}}),
    ],
    ids=["signs", "measurements", "new sets", "adaptive", "continuous", "fixed size", "colluders", "vote"],
)
def test_nor_is_one_of_another_kind(scheme: str, tables: dict[str, Any]) -> None:
    found = played(scheme, **tables)

    assert not found.accused, found.reasons
    assert found.epsilon_server_lower <= found.epsilon_server


def test_games_through_real_secure_aggregation_find_the_same() -> None:
    everyone = federation(cohort={"sample_rate": 1}, experiment={"rounds": 2})

    found = audit(everyone, quickly(secure=True, games=4, seeds=1))

    assert not found.accused, found.reasons
    assert "share variance" not in [one.name for one in found.tests], "single words are masked"


BROKEN: list[tuple[Callable[[Patch], None], str]] = [
    (breaks.halved_noise, "share variance"),
    (breaks.a_tenth_less_noise, "share variance"),
    (breaks.share_of_a_client_dropped, "variance"),
    (breaks.missing_noise_not_made_up, "released sum variance"),
    (breaks.clip_skipped, "clipping, dirac 10"),
    (breaks.clipped_by_coordinate, "clipping, dense 10"),
    (breaks.one_seed_for_all_rounds, "repeated noise"),
    (breaks.one_seed_for_all_clients, "repeated noise"),
    (breaks.one_seed_for_all_runs, "repeated noise"),
    (breaks.server_noise_of_a_client, "repeated noise"),
    (breaks.uniform_noise, "share shape"),
    (breaks.laplace_noise, "share shape"),
    (breaks.cohorts_of_one_size, "cohort sizes"),
    (breaks.cohorts_drawn_too_often, "cohort sizes"),
    (breaks.no_participation_cap, "participation cap"),
    (breaks.noise_shared_by_the_expected_cohort, "variance"),
]


@pytest.mark.parametrize(("broken", "test"), BROKEN, ids=[broken.__name__ for broken, _ in BROKEN])
def test_a_broken_build_is_accused(broken: Callable[[Patch], None], test: str, monkeypatch: Patch) -> None:
    broken(monkeypatch)

    found = played()

    assert found.accused
    assert [one.name for one in found.tests if found.rejects(one) and test in one.name], found.reasons


@pytest.mark.parametrize("scheme", ["fl-sign", "fl-std"])
def test_half_the_noise_shows_in_the_lower_bound_too(scheme: str, monkeypatch: Patch) -> None:
    breaks.halved_noise(monkeypatch)

    found = audit(federation(scheme), quickly(games=40))

    assert found.epsilon_server_lower > found.epsilon_server


def test_a_run_without_any_noise_is_refuted_by_the_exact_bounds(monkeypatch: Patch) -> None:
    """Bounds that assume nothing must do here: what is left of the noise has no Gaussian shape on the integers."""
    breaks.scaled_noise(monkeypatch, Fraction(1, 10**4))

    found = audit(federation(privacy={"noise_multiplier": 8.0}), quickly(games=40, seeds=4))

    assert found.epsilon_lower > found.epsilon
    assert found.epsilon_server_lower > found.epsilon_server
    assert "epsilon_server_lower is exact" in found.note


def test_others_may_train_meanwhile() -> None:
    trained = audit(federation(), quickly(quick=False, seeds=1))

    assert not trained.accused, trained.reasons
    assert "with training" in trained.note
    assert trained.canaries == 12 + 6


def test_an_audit_repeats_itself_and_another_seed_does_not() -> None:
    first, again, other = played(), played(), played(seed=1)

    assert first.document() == again.document()
    assert first.document()["tests"] != other.document()["tests"]


def test_the_document_has_the_keys_that_were_agreed_and_only_numbers_that_json_has() -> None:
    document = json.loads(json.dumps(played().document(), allow_nan=False))

    assert set(document) == {
        *("epsilon", "epsilon_lower", "epsilon_server", "epsilon_server_lower", "confidence", "accused"),
        *("reasons", "tests", "canaries", "games", "note"),
    }
    chances = [test["threshold"] for test in document["tests"] if test["threshold"] is not None]
    assert sum(chances) == pytest.approx(FALSE_ALARM)
    assert document["reasons"] == []


def test_an_experiment_that_is_not_private_is_refused() -> None:
    with pytest.raises(InputError, match="no epsilon to audit"):
        audit(few(), quickly())


@pytest.mark.parametrize(("key", "value"), [("games", 1), ("canaries", 0), ("seeds", 0), ("confidence", 1.0)])
def test_options_out_of_range_are_refused(key: str, value: float) -> None:
    with pytest.raises(InputError, match=key):
        quickly(**{key: value})


def test_the_engine_of_the_tests_is_the_one_that_is_patched() -> None:
    assert quickly().start is in_this_process
