from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import default_rng
from torch import Tensor, nn

from sottovoce.core.errors import InputError
from sottovoce.models import LocalTraining, choose_trainer, make_model, make_trainer, network
from sottovoce.models.torch_trainer import TorchTrainer
from sottovoce.models.wrap import wrap_module


class Rows(nn.Module):
    def __init__(self, **tensors: Any) -> None:
        super().__init__()
        self.last = nn.Linear(5, 3)
        for name, tensor in tensors.items():
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)

    def forward(self, x: Tensor) -> Any:
        return self.last(x)


class Counting(Rows):
    def forward(self, x: Tensor) -> Any:
        if self.training:
            self.count += 1
        return self.last(x)


class Pair(Rows):
    def forward(self, x: Tensor) -> Any:
        return self.last(x), x


class Sealed(Rows):
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("no pickles here")


def views() -> nn.Module:
    whole = torch.zeros(10)
    return Rows(a=nn.Parameter(whole[:6]), b=nn.Parameter(whole[4:]))


REFUSALS = {
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)),
        "Sequential: 1 is a BatchNorm1d with running statistics, and BatchNorm statistics are not private.*GroupNorm",
    ),
    "batch norm in evaluation mode": (
        lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval(),
        "BatchNorm statistics are not private",
    ),
    "instance norm": (
        lambda: nn.Sequential(nn.InstanceNorm1d(5, track_running_stats=True), nn.Linear(5, 3)),
        "BatchNorm statistics are not private",
    ),
    "a buffer that counts": (lambda: Counting(count=torch.zeros(1)), "Counting: count changes while the module trains"),
    "integers": (
        lambda: Rows(a=nn.Parameter(torch.zeros(3, dtype=torch.int32), requires_grad=False)),
        "parameters must be float32, a is int32; make it a buffer",
    ),
    "doubles": (lambda: Rows().double(), r"must be dense float32, last.weight is float64; call module.float\(\)"),
    "halves": (lambda: Rows().half(), "must be dense float32, last.weight is float16"),
    "views": (views, "Rows: a and b are views of the same storage; clone one, or tie them"),
    "a buffer that is a view": (
        lambda: Rows(a=(p := nn.Parameter(torch.zeros(4))), b=p.data[1:]),
        "Rows: a and b are views of the same storage",
    ),
    "expanded": (lambda: Rows(a=nn.Parameter(torch.zeros(1).expand(4))), "a repeats its values by an expanded view"),
    "nothing to train": (lambda: Rows().requires_grad_(False), "no parameter that requires a gradient"),
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(3)), "0.weight has no shape yet; run one batch through the module"),
    "another device": (lambda: Rows().to("meta"), r"last.weight is on device 'meta'.*call module.cpu\(\)"),
    "not finite": (lambda: Rows(a=nn.Parameter(torch.tensor([1.0, np.nan]))), "a has values that are not finite"),
    "too many outputs": (
        lambda: nn.Linear(5, 4),
        r"gives outputs of shape \(3, 4\) for 3 records, but the labels have 3 classes; give it 3 outputs$",
    ),
    "one output": (lambda: nn.Linear(5, 1), r"outputs of shape \(3, 1\) for 3 records, but the labels have 3 classes"),
    "two tensors": (Pair, "Pair must return one tensor of logits, it returns tuple; wrap it"),
    "other records": (lambda: nn.Linear(6, 3), r"cannot read records of shape \(5,\): given float32 .* it says: mat1"),
    "no pickle": (Sealed, "Sealed cannot be sent to worker processes: no pickles here"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_federated_is_refused_in_one_sentence(case: str) -> None:
    make, sentence = REFUSALS[case]

    with pytest.raises(InputError, match=sentence) as caught:
        make_model(make(), (5,), 3)

    assert "\n" not in str(caught.value)


def test_constant_buffers_are_fine_and_stay() -> None:
    net = wrap_module(Rows(table=torch.arange(4)), (5,), 3)

    assert net.dim == 18
    assert torch.equal(net.filled(net.initialise(default_rng(0))).table, torch.arange(4))  # type: ignore[arg-type]


def test_a_model_must_fit_the_data() -> None:
    net = network("mlp", (4,), 3)
    module = wrap_module(nn.Linear(4, 3), (4,), 3)

    assert make_model(net, (4,), 3) is net and make_model(module, (4,), 3) is module
    for model in (net, module):
        with pytest.raises(InputError, match=r"reads records of shape \(4,\).*the data has shape \(5,\) and 3 classes"):
            make_model(model, (5,), 3)
    with pytest.raises(InputError, match=r"a torch\.nn\.Module, got int$"):
        make_model(3, (4,), 3)
    with pytest.raises(InputError, match="give an instance, not the class"):
        make_model(nn.Linear, (4,), 3)


def test_torch_trains_a_module_that_the_fast_trainer_does_not_know() -> None:
    net = wrap_module(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), (4,), 3)

    assert choose_trainer(net, LocalTraining()).trainer == "torch"
    assert isinstance(make_trainer(net, LocalTraining()), TorchTrainer)
    with pytest.raises(InputError, match=r"'fast' cannot train the torch module Sequential: not all .*; use 'torch'"):
        make_trainer(net, LocalTraining(), "fast")
