from dataclasses import dataclass

import numpy as np
import pytest

from sottovoce.core.errors import InputError
from sottovoce.models import LocalTraining, Shard, choose_trainer, make_trainer, network
from sottovoce.models.fast import FastTrainer, unavailable
from sottovoce.models.plain import PlainTrainer
from sottovoce.models.torch_trainer import TorchTrainer

LOGISTIC = network("logistic", (6,), 3)
HOSPITAL = network("hospital-mlp", (6,), 2)
needs_kernels = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


@needs_kernels
def test_auto_takes_the_fast_trainer_where_it_can() -> None:
    assert isinstance(make_trainer(LOGISTIC, LocalTraining()), FastTrainer)
    assert isinstance(make_trainer(LOGISTIC, LocalTraining(), "torch"), TorchTrainer)


def test_auto_falls_back_to_torch_in_silence() -> None:
    assert isinstance(make_trainer(HOSPITAL, LocalTraining()), TorchTrainer)
    assert isinstance(make_trainer(LOGISTIC, LocalTraining(optimizer="adam")), TorchTrainer)


def test_the_choice_is_told_with_its_reason_and_is_the_one_that_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    adam = LocalTraining(optimizer="adam")
    assert choose_trainer(LOGISTIC, LocalTraining(), "torch") == ("torch", "the experiment asks for it")
    assert "device is 'cuda'" in choose_trainer(LOGISTIC, LocalTraining(), "auto", "cuda").reason
    assert choose_trainer(LOGISTIC, adam) == ("torch", "the fast trainer knows plain SGD, not optimizer 'adam'")
    assert "DropoutLayer" in choose_trainer(HOSPITAL, LocalTraining()).reason

    monkeypatch.setattr("sottovoce.models.fast.unavailable", lambda: "the processor has no AVX2 and FMA")

    assert str(choose_trainer(LOGISTIC, LocalTraining())) == "torch (the processor has no AVX2 and FMA)"
    assert isinstance(make_trainer(LOGISTIC, LocalTraining()), TorchTrainer)


def test_fast_says_what_it_cannot_do() -> None:
    with pytest.raises(InputError, match="DropoutLayer"):
        make_trainer(HOSPITAL, LocalTraining(), "fast")
    with pytest.raises(InputError, match="runs on device 'cpu', got 'cuda'"):
        make_trainer(LOGISTIC, LocalTraining(), "fast", "cuda")


def test_an_unknown_trainer_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="trainer has no 'troch'; did you mean 'torch'"):
        make_trainer(LOGISTIC, LocalTraining(), "troch")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["torch", pytest.param("fast", marks=needs_kernels)])
def test_both_trainers_move_against_the_gradient(kind: str) -> None:
    rng = np.random.default_rng(1)
    shard = Shard(rng.random((8, 6), dtype=np.float32), rng.integers(0, 3, 8))
    params = LOGISTIC.initialise(rng)
    trainer = make_trainer(LOGISTIC, LocalTraining(local_steps=1, batch_size=None, client_lr=0.5), kind)  # type: ignore[arg-type]

    (update,) = trainer.updates(params, [shard], [np.random.default_rng(2)])

    np.testing.assert_allclose(update, -0.5 * trainer.gradient(params, shard), rtol=1e-4, atol=1e-6)


@dataclass(frozen=True)
class LaterTraining(LocalTraining):
    dampening: float = 0.0


@needs_kernels
def test_an_option_that_a_trainer_does_not_know_is_refused_and_not_ignored() -> None:
    assert "does not know dampening 0.5" in choose_trainer(LOGISTIC, LaterTraining(dampening=0.5)).reason
    assert choose_trainer(LOGISTIC, LaterTraining()).trainer == "fast"
    with pytest.raises(InputError, match="the plain trainer does not know dampening"):
        PlainTrainer(LOGISTIC, LaterTraining(dampening=0.5))
