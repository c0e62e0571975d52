"""The audit of ballots accuses every count that is broken here, and no correct one.

A correct build is accused with probability 1e-4 an audit at most (FALSE_ALARM), so the seeds here fail by chance once
in a thousand seeds of seeds; as the p values are upper bounds, more seldom.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sottovoce.config.experiment import Experiment
from sottovoce.core.streams import Purpose
from sottovoce.federation.aggregation.ballots.account import HelperAccount
from sottovoce.federation.aggregation.ballots.coding import Ballots, BallotSum
from sottovoce.federation.aggregation.ballots.count import IdealCount
from sottovoce.privacy import Randomness
from sottovoce.privacy.plan import ballots as plans
from sottovoce.privacy.plan.cohort import Shares
from sottovoce.secagg.ballots import Helper, Leader
from sottovoce.secagg.ballots import message as messages
from sottovoce.secagg.ot import extension
from sottovoce.studies.audit import Audit, audit
from sottovoce.studies.audit.ballots.views import planned_variance
from tests.secagg.ballots import stage
from tests.secagg.ballots.stage import without_base_transfers
from tests.studies.audit.small import federation, quickly

Patch = pytest.MonkeyPatch


def counted(scheme: str = "fl-std", **tables: dict[str, Any]) -> Experiment:
    """Return twelve clients that vote."""
    tables["aggregation"] = {"secure": "ballot", **tables.get("aggregation", {})}
    return federation(scheme, **tables)


def played(scheme: str = "fl-std", *, seed: int = 0, games: int = 8, **tables: dict[str, Any]) -> Audit:
    return audit(counted(scheme, **tables), quickly(games=games, seed=seed))


def securely(patch: Patch, games: int = 4) -> Audit:
    """Audit through the real protocol, with base transfers that cost nothing."""
    without_base_transfers(patch)
    return audit(_twice(), quickly(secure=True, games=games, seeds=1))


def _twice() -> Experiment:
    """Return three rounds, and clients that may be in two of them."""
    return counted(cohort={"sample_rate": "3/4"}, experiment={"rounds": 3}, privacy={"max_participations": 2})


def accusing(found: Audit) -> list[str]:
    return [test.name for test in found.tests if found.rejects(test)]


@pytest.mark.parametrize("seed", range(8))
def test_a_correct_count_is_not_accused(seed: int) -> None:
    found = played(seed=seed)

    assert not found.accused, found.reasons
    assert found.epsilon_lower <= found.epsilon
    assert 0 < found.epsilon_server_lower <= found.epsilon_server


@pytest.mark.parametrize(
    ("scheme", "tables"),
    [
        ("fl-sign", {}),
        ("fl-std", {"aggregation": {"ballot": "sign", "secure": "ideal-ballot"}}),
        ("fl-std", {"cohort": {"sample_rate": 1}, "privacy": {"noise_multiplier": 3.0}}),
        ("fl-std", {"aggregation": {"noise": "joint"}}),
    ],
    ids=["signs", "sign of values", "everyone", "joint noise"],
)
def test_nor_is_one_of_another_kind(scheme: str, tables: dict[str, Any]) -> None:
    found = played(scheme, **tables)

    assert not found.accused, found.reasons


def test_both_aggregators_are_named_and_the_larger_bound_is_quoted() -> None:
    document = played().document()

    lower = {name: told["epsilon_lower"] for name, told in document["aggregators"].items()}
    assert list(lower) == ["leader", "helper"]
    assert document["epsilon_server_lower"] == max(lower.values()) > 0
    names = {test["name"] for test in document["tests"]}
    for name in lower:
        assert f"epsilon_server games of the {name}, exact" in names
        assert f"{name}'s noise variance" in names and f"charged before opened, {name}" in names


def test_the_noise_is_compared_with_the_formula_of_the_documentation() -> None:
    assert planned_variance(1.2244 * 2**0.5, 8_317) == pytest.approx(1.2244**2 * 8_317 + 4)


def test_an_audit_repeats_itself_also_through_the_real_protocol(monkeypatch: Patch) -> None:
    first, again = securely(monkeypatch), securely(monkeypatch)

    assert not first.accused, first.reasons
    assert first.document() == again.document()
    views = [test.name for test in first.tests if "view" in test.name]
    assert len(views) == 5, "three of the leader's, two of the helper's"


def test_games_through_the_real_protocol_show_what_the_ideal_count_shows(monkeypatch: Patch) -> None:
    ideal, real = audit(_twice(), quickly(games=4, seeds=1)), securely(monkeypatch)

    assert ideal.aggregators == real.aggregators
    assert ideal.epsilon_lower == real.epsilon_lower


def test_joint_noise_through_the_real_protocol_shows_what_the_ideal_count_shows(monkeypatch: Patch) -> None:
    joint = counted(cohort={"sample_rate": "3/4"}, experiment={"rounds": 2}, aggregation={"noise": "joint"})
    ideal = audit(joint, quickly(games=4, seeds=1))
    without_base_transfers(monkeypatch)
    real = audit(joint, quickly(secure=True, games=4, seeds=1))

    assert not ideal.accused, ideal.reasons
    assert not real.accused, real.reasons
    assert ideal.aggregators == real.aggregators


def test_others_may_train_meanwhile() -> None:
    found = audit(counted(), quickly(quick=False, seeds=1, games=2))

    assert not found.accused, found.reasons
    assert "6 canaries with training" in found.note


def _open(patch: Patch, opened: Callable[[Ballots, Any, int], Any]) -> None:
    patch.setattr(
        Ballots, "open", lambda self, total, terms, senders, round_: self.decode(opened(self, total, round_), round_)
    )


def no_noise_of_the_leader(patch: Patch) -> None:
    _open(patch, lambda coding, total, round_: total + coding.helper_noise(round_))


def no_noise_of_the_helper(patch: Patch) -> None:
    _open(patch, lambda coding, total, round_: total + coding.leader_noise(round_))


def noise_of_the_leader_twice(patch: Patch) -> None:
    _open(patch, lambda coding, total, round_: total + 2 * coding.leader_noise(round_))


def no_noise_of_nobody(patch: Patch) -> None:
    def opened(coding: Ballots, total: Any, round_: int) -> Any:
        return total + (coding.leader_noise(round_) + coding.helper_noise(round_)) * total.any()

    _open(patch, opened)


def one_noise_for_both(patch: Patch) -> None:
    patch.setattr(Ballots, "helper_noise", Ballots.leader_noise)


def noise_of_one_stream(patch: Patch) -> None:
    """The helper's noise begins somewhere in the leader's."""
    patch.setattr(Ballots, "helper_noise", lambda self, round_: np.roll(self.leader_noise(round_), 17))


def coins_of_the_leader_alone(patch: Patch) -> None:
    patch.setattr(Ballots, "joint_noise", lambda self, round_: self.plan.coin_votes(self.leader_coins(round_)))


def coins_of_half_the_weight(patch: Patch) -> None:
    real = Ballots.joint_noise
    patch.setattr(Ballots, "joint_noise", lambda self, round_: real(self, round_) // 2)


@pytest.mark.parametrize(
    ("broken", "test"), [(coins_of_the_leader_alone, "repeated noise"), (coins_of_half_the_weight, "noise variance")]
)
def test_coins_that_one_side_knows_or_that_weigh_less_are_accused(
    broken: Callable[[Patch], None], test: str, monkeypatch: Patch
) -> None:
    broken(monkeypatch)
    found = played(aggregation={"noise": "joint"})

    assert any(test in name for name in accusing(found)), accusing(found)


def helper_noise_of_the_leaders_secrets(patch: Patch) -> None:
    _named(patch, lambda coding: coding.seeds.server)


def helper_noise_of_the_public_seed(patch: Patch) -> None:
    _named(patch, lambda coding: coding.seeds.public)


def _named(patch: Patch, owner: Callable[[Ballots], Any]) -> None:
    """Draw the helper's noise from a stream of somebody else, which nobody else uses."""

    def noise(self: Ballots, round_: int) -> Any:
        key = owner(self).key(Purpose.NOISE, round_, 7)
        return self.plan.aggregator_noise(Randomness.simulated(key))

    patch.setattr(Ballots, "helper_noise", noise)


def one_noise_for_all_rounds(patch: Patch) -> None:
    real = Ballots._noise
    patch.setattr(Ballots, "_noise", lambda self, owner, round_: real(self, owner, 1))


def _scaled(patch: Patch, factor: Fraction) -> None:
    real = plans.centred_tables
    patch.setattr(plans, "centred_tables", lambda variance, centres: real(variance * factor, centres))


def half_the_variance(patch: Patch) -> None:
    _scaled(patch, Fraction(1, 2))


def a_tenth_less_noise(patch: Patch) -> None:
    _scaled(patch, Fraction(81, 100))


def half_the_variance_of_the_helper(patch: Patch) -> None:
    real = Ballots.helper_noise
    patch.setattr(Ballots, "helper_noise", lambda self, round_: np.rint(real(self, round_) / 2**0.5).astype(np.int64))


def one_coordinate_without_noise_of_the_helper(patch: Patch) -> None:
    real = Ballots.helper_noise

    def still(self: Ballots, round_: int) -> Any:
        noise = real(self, round_)
        noise[5] = 0
        return noise

    patch.setattr(Ballots, "helper_noise", still)


def uniform_noise_of_the_leader(patch: Patch) -> None:
    def noise(self: Ballots, round_: int) -> Any:
        wide = (3 * planned_variance(self.plan.noise_multiplier, self.length)) ** 0.5
        rng = self.seeds.server.get(Purpose.NOISE, round_)
        return np.rint(rng.uniform(-wide, wide, self.length)).astype(np.int64)

    patch.setattr(Ballots, "leader_noise", noise)


def clients_counted_twice(patch: Patch) -> None:
    real = BallotSum.add

    def add(self: BallotSum, accumulator: Any, payload: bytes) -> None:
        real(self, accumulator, payload)
        real(self, accumulator, payload)

    patch.setattr(BallotSum, "add", add)


def helper_never_charged(patch: Patch) -> None:
    patch.setattr(HelperAccount, "charge", lambda self, round_: None)


def leader_never_charged(patch: Patch) -> None:
    real = IdealCount.collect
    patch.setattr(
        IdealCount,
        "collect",
        lambda self, round_, cohort, down, terms, spend: real(self, round_, cohort, down, terms, lambda: None),
    )


def helper_counts_for_ever(patch: Patch) -> None:
    patch.setattr(HelperAccount, "admits", lambda self, client, round_: True)


BROKEN: list[tuple[Callable[[Patch], None], str]] = [
    (no_noise_of_the_leader, "leader's noise variance"),
    (no_noise_of_the_helper, "helper's noise variance"),
    (noise_of_the_leader_twice, "repeated noise"),
    (no_noise_of_nobody, "cohort of 0 variance"),
    (one_noise_for_both, "repeated noise"),
    (noise_of_one_stream, "repeated stretch"),
    (helper_noise_of_the_leaders_secrets, "repeated noise"),
    (helper_noise_of_the_public_seed, "repeated noise"),
    (one_noise_for_all_rounds, "repeated noise"),
    (half_the_variance, "released sum variance"),
    (a_tenth_less_noise, "leader's noise variance"),
    (half_the_variance_of_the_helper, "helper's noise variance"),
    (one_coordinate_without_noise_of_the_helper, "helper's noise in each coordinate"),
    (uniform_noise_of_the_leader, "leader's noise shape"),
    (clients_counted_twice, "one vote, signs, leader"),
    (helper_never_charged, "charged before opened, helper"),
    (leader_never_charged, "charged before opened, leader"),
    (helper_counts_for_ever, "participation cap of the helper"),
]


@pytest.mark.parametrize(("breaks", "test"), BROKEN, ids=[breaks.__name__ for breaks, _ in BROKEN])
def test_a_broken_count_is_accused(breaks: Callable[[Patch], None], test: str, monkeypatch: Patch) -> None:
    breaks(monkeypatch)

    found = played()

    assert test in accusing(found), accusing(found)


def test_an_epsilon_that_counts_noise_which_an_aggregator_knows_is_refuted(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Shares, "server_part", 1.0)

    refuted = accusing(played(games=40))

    assert refuted == [f"epsilon_server games of the {name}, Gaussian" for name in ("leader", "helper")]


def test_one_ballot_alone_is_not_opened(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Shares, "survivors", lambda self, cohort: min(cohort, 1))
    everyone = counted(cohort={"sample_rate": 1})

    assert accusing(audit(everyone, quickly(games=2, seeds=1))) == ["too few ballots"]


@pytest.mark.parametrize("name", ["leader", "helper"])
def test_an_aggregator_without_noise_shows_in_the_bound_of_the_other(name: str, monkeypatch: Patch) -> None:
    """A hundredth of the noise, so that bounds that assume nothing do."""
    real = getattr(Ballots, f"{name}_noise")
    monkeypatch.setattr(
        Ballots, f"{name}_noise", lambda self, round_: np.rint(real(self, round_) / 100).astype(np.int64)
    )

    found = audit(counted(privacy={"noise_multiplier": 8.0}), quickly(games=60, seeds=1))

    exact = {each.name: each.exact for each in found.aggregators}
    blind = "helper" if name == "leader" else "leader"
    assert exact[blind] > found.epsilon_server > exact[name]


def leader_opens_without_noise(patch: Patch) -> None:
    real = Leader.open
    patch.setattr(Leader, "open", lambda self, noise: real(self, 0 * noise))


def helper_answers_without_noise(patch: Patch) -> None:
    real = Helper.__init__

    def init(self: Helper, *rest: Any, noise: Any, **more: Any) -> None:
        real(self, *rest, noise=lambda round_: 0 * noise(round_), **more)

    patch.setattr(Helper, "__init__", init)


def no_pads(patch: Patch) -> None:
    patch.setattr(messages.Pad, "take", lambda self, size: np.zeros(size, np.uint8))


def no_masks_of_words(patch: Patch) -> None:
    patch.setattr(extension, "tweaked_hash", lambda rows, first: np.zeros_like(rows))


def one_stream_of_both_keys(patch: Patch) -> None:
    """Both keys of a base transfer are one: checks hold, both counts are right, and the choices lie open."""
    fake = stage._fake
    patch.setattr(stage, "_fake", lambda session, offer, index, choice: fake(session, offer, index, 0))


def helper_answers_uncharged(patch: Patch) -> None:
    patch.setattr(HelperAccount, "charge", lambda self, round_: None)


BROKEN_PROTOCOLS: list[tuple[Callable[[Patch], None], str]] = [
    (leader_opens_without_noise, "leader's noise variance"),
    (helper_answers_without_noise, "helper's noise variance"),
    (no_pads, "leader's view, masked ballots"),
    (no_masks_of_words, "leader's view, transfers"),
    (one_stream_of_both_keys, "helper's view, transfers"),
    (helper_answers_uncharged, "charged before opened, helper"),
    (helper_counts_for_ever, "participation cap of the helper"),
]


@pytest.mark.parametrize(("breaks", "test"), BROKEN_PROTOCOLS, ids=[breaks.__name__ for breaks, _ in BROKEN_PROTOCOLS])
def test_a_broken_protocol_is_accused(breaks: Callable[[Patch], None], test: str, monkeypatch: Patch) -> None:
    breaks(monkeypatch)

    assert test in accusing(securely(monkeypatch, games=2))
