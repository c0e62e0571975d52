"""Play W with pfl-research, in its own environment: `FederatedAveraging` on a `SimulatedBackend`, in one process.

It is told everything by `benchmarks.peers`: a file of arrays, then one line on stdin for each round.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn


class Network(nn.Sequential):
    """The papers' CNN, with the two methods that pfl asks for."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
            nn.Linear(512, 10),
        )

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return what a step minimises."""
        return nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        """Return what an evaluation reports."""
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


class Pace(TrainingProcessCallback):
    """Say after each round that it is done, and wait to be asked for the next."""

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Stop when there is nobody to ask."""
        del aggregate_metrics, model, central_iteration
        print("done", flush=True)
        return not sys.stdin.readline(), Metrics()


def main() -> None:
    torch.set_num_threads(1)
    with np.load(os.environ["PEER_ARRAYS"]) as arrays:
        clients, cohort, steps, lr = (arrays[name].item() for name in ("clients", "cohort", "steps", "lr"))
        x = torch.from_numpy(arrays["x"]).float().div(255).reshape(clients, -1, 1, 28, 28)
        y = torch.from_numpy(arrays["y"].astype(np.int64)).reshape(clients, -1)
    users = {client: Dataset(raw_data=[x[client], y[client]], user_id=str(client)) for client in range(clients)}
    data = FederatedDataset(users.__getitem__, get_user_sampler("random", list(users)))
    network = Network()
    model = PyTorchModel(
        network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    rounds = 1_000_000  # `Pace` stops it
    FederatedAveraging().run(
        NNAlgorithmParams(
            # Evaluation happens in round 0 alone, which is the one that is not measured.
            central_num_iterations=rounds,
            evaluation_frequency=rounds,
            train_cohort_size=cohort,
            val_cohort_size=None,
        ),
        SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByUser()]),
        model,
        # Ten records in batches of ten: an epoch is a step.
        NNTrainHyperParams(local_num_epochs=steps, local_learning_rate=lr, local_batch_size=y.shape[1]),
        callbacks=[Pace()],
    )


if __name__ == "__main__":
    main()
