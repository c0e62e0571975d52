from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import numpy as np
import pytest
from numpy.random import Generator

from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Vector
from sottovoce.schemes.base import Message, Scheme, State
from sottovoce.studies.inversion import infer_images
from tests.studies.tiny import images, tables

PRIVACY = {"noise_multiplier": 1.0, "delta": 1e-2, "clip_norm": 0.5, "accountant": "rdp"}


def squares(scheme: str = "fl-std", /, **more: dict[str, Any]) -> Experiment:
    base: dict[str, dict[str, Any]] = {
        "model": {"hidden": 32},
        "client": {"batch_size": 1, "client_lr": 0.3},
        "inference": {"iterations": 150, "smoothness": 0.001},
    }
    for name, table in more.items():
        base[name] = {**base.get(name, {}), **table}
    return tables(scheme, **base)


def test_a_message_gives_the_image_and_its_label_away() -> None:
    facts, true, rebuilt = infer_images(squares(), images())

    assert facts["ssim"] > 0.8 > facts["ssim_unrelated"] + 0.2
    assert facts["labels"] == 1
    assert np.abs(true - rebuilt).mean() < 0.1
    assert true.shape == rebuilt.shape == (1, 12, 12, 1)
    assert (facts["values"], facts["sees"], facts["clients"], facts["images"]) == (4772, "message", 1, 1)


@pytest.mark.parametrize("scheme", ["fl-cs", "fl-freq"])
def test_measurements_of_half_an_update_give_the_image_away(scheme: str) -> None:
    assert infer_images(squares(scheme={"name": scheme, "ratio": 0.5}), images()).facts["ssim"] > 0.7


def test_the_few_weights_of_fl_top_give_less_away() -> None:
    few, many = (infer_images(squares(scheme={"name": "fl-top", "ratio": ratio}), images()) for ratio in (0.01, 1.0))

    assert few.facts["values"] == 48
    assert few.facts["ssim"] < 0.4
    assert many.facts["ssim"] > 0.8


def test_a_clients_share_of_the_noise_hides_its_image() -> None:
    found = infer_images(squares(privacy=PRIVACY), images()).facts

    assert found["private"]
    assert found["noise_multiplier"] == 1
    assert found["ssim"] < 0.4


def test_of_a_sum_the_images_of_all_clients_are_looked_for() -> None:
    facts, true, _ = infer_images(squares(inference={"sees": "sum", "iterations": 5}), images())

    assert (facts["clients"], facts["images"], len(true)) == (2, 2, 2)


def test_rebuilt_images_stand_in_the_place_of_those_that_they_are_like() -> None:
    facts, true, rebuilt = infer_images(squares(client={"batch_size": 3}, inference={"iterations": 250}), images())

    errors = np.array([[np.abs(one - other).mean() for other in rebuilt] for one in true])
    assert (errors.argmin(1) == np.arange(3)).sum() >= 2
    assert facts["images"] == 3


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"client": {"batch_size": "all"}},
            r"batch_size must be a number of at most the 32 images of a client, got all",
        ),
        ({"client": {"batch_size": 33}}, "of at most the 32 images of a client, got 33"),
        ({"client": {"optimizer": "adam"}}, "retraces plain SGD"),
    ],
    ids=str,
)
def test_what_cannot_be_rebuilt_is_refused_in_one_sentence(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        infer_images(squares(**more), images())
    assert "\n" not in str(caught.value)


def test_more_images_than_can_be_looked_for_are_refused() -> None:
    experiment = squares(client={"batch_size": 33}, inference={"sees": "sum"})

    with pytest.raises(
        InputError, match=r"66 images would be looked for at once \(2 x \[client\] batch_size 33\), and 64"
    ):
        infer_images(experiment, images(80))


def test_records_that_are_no_images_are_refused() -> None:
    with pytest.raises(InputError, match=r"images of 11 x 11 or more .* but digits has records of shape \(8, 8, 1\)"):
        infer_images(squares(data={"source": "digits"}))


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Squared(Scheme):
    """A scheme that is neither linear nor of signs."""

    name: ClassVar[str] = "squared"
    paper: ClassVar[str] = "none"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "nothing"
    linear: ClassVar[bool] = False

    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        return update**2

    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        return {"params": state["params"] + mean}


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Doubling(Scheme):
    """A linear scheme whose decoding is not the transpose of its encoding."""

    name: ClassVar[str] = "doubling"
    paper: ClassVar[str] = "none"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "nothing"

    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        return 2 * update

    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        return {"params": state["params"] + mean / 2}


@pytest.mark.parametrize("scheme", [Squared(), Doubling()], ids=lambda scheme: scheme.name)
def test_a_scheme_that_the_attack_cannot_follow_is_refused(scheme: Scheme) -> None:
    with pytest.raises(InputError, match=f"{scheme.name} cannot be inverted"):
        infer_images(squares(), replace(images(), scheme=scheme))
