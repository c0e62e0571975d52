"""Play W with Flower, in its own environment: `FedAvg` on the simulation runtime, one Ray worker a core.

It is told everything by `benchmarks.peers`: a file of arrays, then one line on stdin for each round.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import cache

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

PATH = os.environ["PEER_ARRAYS"]
client_app = ClientApp()
server_app = ServerApp()


def network() -> nn.Module:
    """Return the papers' CNN."""
    return nn.Sequential(
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


@cache  # once a worker, not once a client
def records() -> tuple[torch.Tensor, torch.Tensor, int, float]:
    """Return every client's images and labels, the local steps and the rate."""
    torch.set_num_threads(1)
    with np.load(PATH) as arrays:
        clients = arrays["clients"].item()
        x = torch.from_numpy(arrays["x"]).float().div(255).reshape(clients, -1, 1, 28, 28)
        y = torch.from_numpy(arrays["y"].astype(np.int64)).reshape(clients, -1)
        return x, y, arrays["steps"].item(), arrays["lr"].item()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train one client."""
    x, y, steps, lr = records()
    client = int(context.node_config["partition-id"])
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=lr)
    loss = nn.CrossEntropyLoss()
    for _ in range(steps):
        optimiser.zero_grad()
        loss(model(x[client]), y[client]).backward()
        optimiser.step()
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(y[client])}),
    }
    return Message(content=RecordDict(content), reply_to=message)


class Paced(FedAvg):
    """Say before each round but the first that the one before is done, and wait to be asked for the next."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nobody when there is nobody to ask for it."""
        if server_round > 1:
            print("done", flush=True)
            if not sys.stdin.readline():
                raise SystemExit
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """A round in which a client failed is not W."""
        replies = list(replies)
        failed = [reply for reply in replies if reply.has_error()]
        if failed or not replies:
            print(f"failed: {len(failed)} of {len(replies)} clients", flush=True)
            raise SystemExit
        return super().aggregate_train(server_round, replies)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Play rounds until there is nobody to ask for more."""
    del context
    with np.load(PATH) as arrays:
        clients, cohort = arrays["clients"].item(), arrays["cohort"].item()
    strategy = Paced(
        fraction_train=0.0001,
        fraction_evaluate=0.0,
        min_train_nodes=cohort,
        min_available_nodes=clients,
    )
    strategy.start(grid=grid, initial_arrays=ArrayRecord(network().state_dict()), num_rounds=1_000_000)


if __name__ == "__main__":
    from benchmarks.peer_flower import client_app, server_app  # by a name that the workers can import

    with np.load(PATH) as file:
        supernodes = file["clients"].item()
    run_simulation(
        server_app, client_app, num_supernodes=supernodes, backend_config={"client_resources": {"num_cpus": 1}}
    )
