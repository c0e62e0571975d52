"""Measure small clients: a private one of fashion-everyone-dp in a whole round, and named networks beside torch."""

from __future__ import annotations

from benchmarks.measure import load, quiet_threads

quiet_threads()

import tempfile  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import replace  # noqa: E402
from pathlib import Path  # noqa: E402
from statistics import median  # noqa: E402
from time import process_time  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from numpy.random import default_rng  # noqa: E402
from torch.func import functional_call, grad, vmap  # noqa: E402

from sottovoce.assembly.engines import start  # noqa: E402
from sottovoce.assembly.parts import gather  # noqa: E402
from sottovoce.assembly.protection import protect  # noqa: E402
from sottovoce.assembly.stages import TRAINING, stages  # noqa: E402
from sottovoce.config.experiment import load as load_experiment  # noqa: E402
from sottovoce.federation.engine import drive  # noqa: E402
from sottovoce.federation.round import server_round  # noqa: E402
from sottovoce.models import LocalTraining, Shard, make_trainer, network  # noqa: E402
from sottovoce.privacy import Ledger  # noqa: E402

EXPERIMENT = Path(__file__).parents[1] / "experiments" / "fashion-everyone-dp.toml"
CLIENTS, TURNS, STEPS, BATCH, LR = 100, 7, 5, 10, 0.1


def private_client(rounds: int = 4) -> list[float]:
    """Return the CPU microseconds of a client in each round of everyone: asked, trained, noised, packed and summed."""
    parts = gather(load_experiment(EXPERIMENT, ["engine.workers=1"]))
    protection, found = protect(parts), []
    with start(parts) as (reach, evaluator), reach() as engine, tempfile.TemporaryDirectory() as folder:
        ready = stages(protection)[TRAINING].server_side(evaluator)
        with Ledger.of_server(Path(folder) / "ledger.jsonl", protection.plan) as ledger:
            ready = replace(ready, server=ready.server.with_account(ledger))
            ready.enrol(engine, None)
            state = ready.server.init(parts.start)
            for round_ in range(1, rounds + 1):
                began = process_time()
                state = drive(engine, server_round(ready.server, state, round_)).state
                found.append((process_time() - began) / parts.experiment.data.clients * 1e6)
    return found


def records(width: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the records of all clients."""
    rng = default_rng(0)
    return rng.random((CLIENTS, BATCH, width)).astype(np.float32), rng.integers(0, classes, (CLIENTS, BATCH))


def ours(name: str, width: int, classes: int, x: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    """Return what trains all clients in C."""
    net = network(name, (width,), classes, **({"hidden": 32} if name == "mlp" else {}))
    trainer = make_trainer(net, LocalTraining(local_steps=STEPS, batch_size=BATCH, client_lr=LR), "fast")
    params, shards = net.initialise(default_rng(0)), [Shard(*pair) for pair in zip(x, y, strict=True)]
    rngs = [default_rng(number) for number in range(CLIENTS)]
    return lambda: [None for _ in trainer.updates(params, shards, rngs)].clear()


def modules(name: str, width: int, classes: int) -> tuple[torch.nn.Module, Callable[..., torch.Tensor]]:
    """Return the same network in torch, and its loss."""
    if name == "mlp":
        return torch.nn.Sequential(
            torch.nn.Linear(width, 32), torch.nn.ReLU(), torch.nn.Linear(32, classes)
        ), torch.nn.functional.cross_entropy
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    return torch.nn.Linear(width, 1), lambda scores, y: loss(scores[:, 0], y.float())


def vmapped(name: str, width: int, classes: int, x: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    """Return what trains all clients by torch.func.vmap, which is faster than a loop over them."""
    module, loss = modules(name, width, classes)
    first = {key: value.detach() for key, value in module.named_parameters()}
    slope = vmap(grad(lambda params, x, y: loss(functional_call(module, params, (x,)), y)))
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)

    def train() -> None:
        params = {key: value.expand(CLIENTS, *value.shape).clone() for key, value in first.items()}
        for _ in range(STEPS):
            slopes = slope(params, inputs, labels)
            params = {key: value - LR * slopes[key] for key, value in params.items()}

    return train


def timed(work: Callable[[], None]) -> float:
    """Return the CPU microseconds of a client."""
    began = process_time()
    work()
    return (process_time() - began) / CLIENTS * 1e6


def main() -> None:
    """Print microseconds of CPU a client, in turns."""
    torch.set_num_threads(1)
    print(load())
    print("| a client | sottovoce us | torch.func.vmap us | ratio (least to most) |\n|---|---|---|---|")
    for name, width, classes in (("mlp", 64, 10), ("logistic", 170, 2)):
        x, y = records(width, classes)
        who = [maker(name, width, classes, x, y) for maker in (ours, vmapped)]
        for work in who:
            work()
        turns = np.array([[timed(work) for work in who] for _ in range(TURNS)])
        ratios = turns[:, 0] / turns[:, 1]
        middle = " | ".join(f"{median(column):.1f}" for column in turns.T)
        print(
            f"| {name}, {width} inputs | {middle} | {median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f}) |"
        )
    found = private_client()
    print(
        f"a private client, 400 -> 10, all of its round: {median(found):.0f} us ({min(found):.0f} to {max(found):.0f})"
    )


if __name__ == "__main__":
    main()
