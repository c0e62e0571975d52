"""The formulas of the attacks, on a laboratory whose training is arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from sottovoce.core.errors import InputError
from sottovoce.threats.attack import Attack
from sottovoce.threats.attacks import (
    ATTACKS,
    FreeRider,
    GradientAscent,
    InnerProduct,
    LittleIsEnough,
    RandomUpdate,
    SignInversion,
)

NAMES = {
    *("random-update", "gradient-ascent", "sign-inversion", "in-backdoor", "out-backdoor", "label-flip"),
    *("model-replacement", "little-is-enough", "inner-product", "edge-case-backdoor", "quarter-modulus"),
    *("energy-aware", "free-rider"),
}


@dataclass(frozen=True)
class Desk:
    """Laboratory's double: client k's update is (k, k^2), minus that up the loss; together they add 100."""

    malicious: tuple[int, ...] = (1, 2, 3)
    dim: int = 2

    @property
    def everyone(self) -> list[Any]:
        return list(self.alone(self.malicious))

    def noise(self, client: int) -> np.random.Generator:
        return np.random.default_rng(client)

    def alone(self, clients: Sequence[int], *, ascend: bool = False) -> Iterator[Any]:
        return (np.array([k, k * k], np.float32) * (-1 if ascend else 1) for k in clients)

    def together(self, *, ascend: bool = False) -> Any:
        return np.array([100, 200], np.float32) * (-1 if ascend else 1)


def sent(attack: Attack, clients: Sequence[int] = (2, 3)) -> list[list[float]]:
    return [update.tolist() for update in attack.updates(Desk(), clients)]


def test_every_attack_of_the_issue_has_its_name_a_formula_and_a_source() -> None:
    assert set(ATTACKS) == NAMES
    for name, kind in ATTACKS.items():
        told = kind.describe()
        assert told["name"] == name
        assert len(told["does"]) > 20
        assert len(told["formula"]) > 20
        assert told["paper"]
        assert kind().collude is kind.colludes


def test_random_updates_are_normal_new_for_every_client_and_the_same_when_asked_again() -> None:
    attack = RandomUpdate(stddev=200)
    desk = Desk(dim=20_000)
    one, other = attack.updates(desk, [5, 6])
    (again,) = attack.updates(desk, [5])

    assert np.array_equal(one, again)
    assert one.dtype == np.float32
    assert abs(float(np.corrcoef(one, other)[0, 1])) < 0.04  # five standard deviations: fails once in two million
    assert abs(float(one.std()) / 200 - 1) < 0.025  # five standard deviations


def test_ascent_sends_what_climbing_together_gives_or_alone_each_its_own() -> None:
    assert sent(GradientAscent()) == [[-100, -200]] * 2
    assert sent(GradientAscent(collude=False)) == [[-2, -4], [-3, -9]]


def test_sign_inversion_sends_the_opposite_of_an_honest_update() -> None:
    assert sent(SignInversion()) == [[-2, -4], [-3, -9]]


@pytest.mark.parametrize("name", ["in-backdoor", "out-backdoor", "model-replacement", "edge-case-backdoor"])
def test_backdoors_send_what_training_together_on_their_records_gives(name: str) -> None:
    assert sent(ATTACKS[name]()) == [[100, 200]] * 2


def test_label_flip_is_everyone_for_himself() -> None:
    assert sent(ATTACKS["label-flip"]()) == [[2, 4], [3, 9]]


def test_a_little_is_enough_shifts_the_mean_by_z_spreads() -> None:
    attack = LittleIsEnough(cohort=10)
    mean, spread = np.array([2, 14 / 3]), np.std([[1, 1], [2, 4], [3, 9]], axis=0)

    assert np.allclose(sent(attack), mean - attack.shift(3) * spread, atol=1e-5)
    assert sent(attack)[0] == sent(attack)[1]


def test_the_shift_grows_as_the_attackers_need_fewer_supporters() -> None:
    shifts = [LittleIsEnough(cohort=50).shift(m) for m in (5, 10, 20, 24)]

    assert shifts == sorted(shifts)
    assert shifts[0] > 0
    assert 0 <= LittleIsEnough(cohort=4).shift(4) < 5  # a majority already: any finite shift


def test_a_free_rider_sends_nothing_or_noise_of_its_disguise() -> None:
    assert sent(FreeRider()) == [[0, 0]] * 2
    disguised = np.array(sent(FreeRider(disguise=0.1), range(1000)))
    assert abs(disguised.std() - 0.1) < 0.01
    with pytest.raises(InputError, match="disguise"):
        FreeRider(disguise=-1)


def test_inner_product_sends_the_opposite_of_the_mean() -> None:
    assert np.allclose(sent(InnerProduct()), [[-2, -14 / 3]] * 2)


def test_modulus_attacks_climb_unless_they_have_a_target() -> None:
    for name in ("quarter-modulus", "energy-aware"):
        kind: Any = ATTACKS[name]
        assert sent(kind()) == [[-100, -200]] * 2
        assert sent(kind(targeted=True)) == [[100, 200]] * 2


@pytest.mark.parametrize(
    ("name", "data", "fraction", "boost"),
    [
        ("random-update", "mnist", 0.4, 1),
        ("gradient-ascent", "mnist", 0.1, 10),
        ("gradient-ascent", "imdb", 0.1, 20),
        ("in-backdoor", "mnist", 0.1, 7),
        ("in-backdoor", "mnist", 0.2, 3),
        ("in-backdoor", "mnist", 0.4, 1),
        ("in-backdoor", "cifar10", 0.2, 4),
        ("in-backdoor", "cifar10", 0.4, 2),
        ("out-backdoor", "cifar10", 0.1, 1),
        ("model-replacement", "mnist", 0.1, 10),
        ("inner-product", "mnist", 0.1, 13.5),
    ],
)
def test_boosts_are_the_papers(name: str, data: str, fraction: float, boost: float) -> None:
    attack = ATTACKS[name]()
    usual = attack.usual_boost(data=data, fraction=fraction, malicious=round(100 * fraction), cohort=100)

    assert usual == pytest.approx(boost)


def test_a_misspelt_attack_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'label-flip'"):
        ATTACKS["label-flop"]
