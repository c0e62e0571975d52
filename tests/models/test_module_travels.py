import pickle
import subprocess
import sys

import numpy as np
from numpy.random import default_rng
from torch import Tensor, nn

from sottovoce.models import LocalTraining, Shard
from sottovoce.models.torch_trainer import TorchTrainer
from sottovoce.models.wrap import wrap_module

READER = """
import pickle, sys
import numpy as np
net = pickle.load(sys.stdin.buffer)
assert "torch" not in sys.modules
from sottovoce.models import LocalTraining, Shard, make_trainer
import torch
torch.set_num_threads(1)
rng = np.random.default_rng(1)
x, y = rng.standard_normal((9, 5), dtype=np.float32), rng.integers(0, 3, 9)
trainer = make_trainer(net, LocalTraining(local_steps=2))
(update,) = trainer.updates(net.initialise(rng), [Shard(x, y)], [np.random.default_rng(2)])
sys.stdout.write(update.tobytes().hex())
"""
WRITER = """
import pickle, sys
from torch import nn
from sottovoce.models import make_model
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(5, 3)
    def forward(self, x):
        return scale(self.last(x))
def scale(x):
    return 2 * x
sys.stdout.buffer.write(pickle.dumps(make_model(Own(), (5,), 3)))
"""


def python(code: str, given: bytes = b"") -> bytes:
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_a_class_of_a_test_function_travels_to_a_fresh_process() -> None:
    class Local(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.2), nn.Linear(8, 3))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.body(x)
            return out

    net = wrap_module(Local(), (5,), 3)
    rng = default_rng(1)
    shard = Shard(rng.standard_normal((9, 5), dtype=np.float32), rng.integers(0, 3, 9))

    (here,) = TorchTrainer(net, LocalTraining(local_steps=2)).updates(
        net.initialise(default_rng(0)), [shard], [default_rng(2)]
    )
    there = python(READER, pickle.dumps(net))

    assert bytes.fromhex(there.decode()) == here.tobytes()


def test_a_class_of_python_c_travels_to_a_fresh_process() -> None:
    assert len(python(READER, python(WRITER))) == 2 * 4 * 18


def test_models_by_name_never_import_torch() -> None:
    python(
        "import sys, sottovoce.models as m\n"
        "m.make_model('mlp', (4,), 3).start_payload()\n"
        "assert 'torch' not in sys.modules and 'cloudpickle' not in sys.modules"
    )
