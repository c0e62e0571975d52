"""The audit accuses every build that is broken here, and no correct one.

A correct build is accused with probability 1e-4 an audit at most (FALSE_ALARM), so the twenty seeds here fail by chance
once in 500 seeds of seeds; as the p values are upper bounds, far more seldom.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sottovoce.privacy.plan.cohort as cohorts
from sottovoce.core.errors import InputError
from sottovoce.core.streams import Purpose, Seeds, Streams
from sottovoce.federation.coding import Opened, Private, Terms
from sottovoce.privacy import Randomness
from sottovoce.privacy.noise import path
from sottovoce.privacy.plan import plan as plans
from sottovoce.privacy.plan.plan import PrivacyPlan
from sottovoce.studies.audit import FALSE_ALARM, audit
from sottovoce.testing.twin import few
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


def halved_noise(patch: Patch) -> None:
    _scaled(patch, Fraction(1, 4))


def a_tenth_less_noise(patch: Patch) -> None:
    _scaled(patch, Fraction(81, 100))


def _scaled(patch: Patch, factor: Fraction) -> None:
    for name in ("fraction_tables", "centred_tables"):
        real = getattr(path, name)
        patch.setattr(path, name, lambda variance, *more, real=real: real(variance * factor, *more))


def share_of_a_client_dropped(patch: Patch) -> None:
    real = Private.words

    def words(self: Private, message: Any, terms: Terms, round_: int, client: int) -> Any:
        made = real(self, message, terms, round_, client)
        return made * np.uint32(0) if client == 3 else made

    patch.setattr(Private, "words", words)


def missing_noise_not_made_up(patch: Patch) -> None:
    patch.setattr(path, "add_noise", lambda total, variance, bits, randomness: total)


def clip_skipped(patch: Patch) -> None:
    def centres(message: Any, length: float, clip_norm: float, radius: float, precision: int, out: Any) -> None:
        out[:] = np.rint(message.astype(float) * 2.0**precision * radius / clip_norm)

    patch.setattr(path, "_centres", centres)


def clipped_by_coordinate(patch: Patch) -> None:
    def centres(message: Any, length: float, clip_norm: float, radius: float, precision: int, out: Any) -> None:
        out[:] = np.rint(np.clip(message, -clip_norm, clip_norm).astype(float) * 2.0**precision * radius / clip_norm)

    patch.setattr(path, "_centres", centres)


def one_seed_for_all_rounds(patch: Patch) -> None:
    real = Streams.key
    patch.setattr(
        Streams,
        "key",
        lambda self, purpose, *path, size=32: real(
            self, purpose, *(() if purpose == Purpose.NOISE else path), size=size
        ),
    )


def one_seed_for_all_clients(patch: Patch) -> None:
    real = Seeds.client
    patch.setattr(Seeds, "client", lambda self, client: real(self, 0))


def one_seed_for_all_runs(patch: Patch) -> None:
    real = Private.words
    patch.setattr(
        Private,
        "words",
        lambda self, message, terms, round_, client: real(Private(self.plan, Seeds(1)), message, terms, round_, client),
    )


def server_noise_of_a_client(patch: Patch) -> None:
    def opened(self: Private, total: Any, terms: Terms, senders: int, round_: int) -> Opened:
        key = self.seeds.client(0).key(Purpose.NOISE, round_)
        randomness = Randomness.simulated(key)
        return Opened(*self.plan.recover(total, cohort=terms.cohort, survivors=senders, randomness=randomness))

    patch.setattr(Private, "open", opened)


def _sampler(patch: Patch, noise: Callable[[np.random.Generator, float, int], Any]) -> None:
    """Replace the draws from tables by rounded noise of the same variance."""
    variances: dict[int, float] = {}

    def remembering(real: Callable[..., Any]) -> Callable[..., Any]:
        def tables(variance: Fraction, *arguments: Any) -> Any:
            made = real(variance, *arguments)
            variances[id(made)] = float(variance)
            return made

        return tables

    def draw(made: Any, centres: Any, bits: Any, *, modulus_bits: int = 32) -> Any:
        rng = np.random.default_rng(bits.take(4))
        raw = centres / made.rows + noise(rng, variances[id(made)] ** 0.5, centres.size)
        return (np.rint(raw).astype(np.int64) & ((1 << modulus_bits) - 1)).astype(np.uint32)

    patch.setattr(path, "fraction_tables", remembering(path.fraction_tables))
    patch.setattr(path, "centred_tables", remembering(path.centred_tables))
    patch.setattr(path, "draw", draw)


def uniform_noise(patch: Patch) -> None:
    _sampler(patch, lambda rng, stddev, size: rng.uniform(-1, 1, size) * stddev * 3**0.5)


def laplace_noise(patch: Patch) -> None:
    _sampler(patch, lambda rng, stddev, size: rng.laplace(0, stddev / 2**0.5, size))


def cohorts_of_one_size(patch: Patch) -> None:
    real = cohorts.draw_cohort
    patch.setattr(plans, "draw_cohort", lambda draws, **keys: real(draws, **{**keys, "sampling": "fixed"}))


def cohorts_drawn_too_often(patch: Patch) -> None:
    real = cohorts.draw_cohort
    patch.setattr(
        plans, "draw_cohort", lambda draws, **keys: real(draws, **{**keys, "sample_rate": keys["sample_rate"] * 1.2})
    )


def no_participation_cap(patch: Patch) -> None:
    real = cohorts.draw_cohort
    patch.setattr(plans, "draw_cohort", lambda draws, **keys: real(draws, **{**keys, "max_participations": 10**6}))


def noise_shared_by_the_expected_cohort(patch: Patch) -> None:
    real = PrivacyPlan.protect

    def protect(self: PrivacyPlan, message: Any, *, cohort: int, **keys: Any) -> Any:
        return real(self, message, cohort=round(self.expected_cohort), **keys)

    patch.setattr(PrivacyPlan, "protect", protect)


BROKEN: list[tuple[Callable[[Patch], None], str]] = [
    (halved_noise, "share variance"),
    (a_tenth_less_noise, "share variance"),
    (share_of_a_client_dropped, "variance"),
    (missing_noise_not_made_up, "released sum variance"),
    (clip_skipped, "clipping, dirac 10"),
    (clipped_by_coordinate, "clipping, dense 10"),
    (one_seed_for_all_rounds, "repeated noise"),
    (one_seed_for_all_clients, "repeated noise"),
    (one_seed_for_all_runs, "repeated noise"),
    (server_noise_of_a_client, "repeated noise"),
    (uniform_noise, "share shape"),
    (laplace_noise, "share shape"),
    (cohorts_of_one_size, "cohort sizes"),
    (cohorts_drawn_too_often, "cohort sizes"),
    (no_participation_cap, "participation cap"),
    (noise_shared_by_the_expected_cohort, "variance"),
]


@pytest.mark.parametrize(("breaks", "test"), BROKEN, ids=[breaks.__name__ for breaks, _ in BROKEN])
def test_a_broken_build_is_accused(breaks: Callable[[Patch], None], test: str, monkeypatch: Patch) -> None:
    breaks(monkeypatch)

    found = played()

    assert found.accused
    assert [one.name for one in found.tests if found.rejects(one) and test in one.name], found.reasons


@pytest.mark.parametrize("scheme", ["fl-sign", "fl-std"])
def test_half_the_noise_shows_in_the_lower_bound_too(scheme: str, monkeypatch: Patch) -> None:
    halved_noise(monkeypatch)

    found = audit(federation(scheme), quickly(games=40))

    assert found.epsilon_server_lower > found.epsilon_server


def test_a_run_without_any_noise_is_refuted_by_the_exact_bounds(monkeypatch: Patch) -> None:
    """Bounds that assume nothing must do here: what is left of the noise has no Gaussian shape on the integers."""
    _scaled(monkeypatch, Fraction(1, 10**4))

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
