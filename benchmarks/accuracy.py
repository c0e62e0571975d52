"""Compare the updates of W's clients with float64: those of the fast trainer, and those of torch in float32.

The reference is torch's autograd in float64 on the same batches. An update far from it is not a matter of rounding: a
value crossed a kink of ReLU or of max-pool, and from there on the network is another one. To show that, float64 itself
is asked what becomes of the client when all weights move by one part in ten million.
"""

from __future__ import annotations

from benchmarks.measure import quiet_threads

quiet_threads()

import argparse  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Iterable  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from numpy.random import default_rng  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from torch.nn import functional  # noqa: E402

from benchmarks.workload import source_of_w, workload  # noqa: E402
from sottovoce.models import LocalTraining, Network, Shard, batches, make_trainer  # noqa: E402

JUMP = 1e-4  # a relative error that rounding alone does not reach
Mask = NDArray[np.bool_] | None


def exact(
    network: Network, training: LocalTraining, start: NDArray[np.float64], shard: Shard, seed: int, mask: Mask
) -> NDArray[np.float64]:
    """Return a client's update in float64."""
    flat = torch.tensor(start, requires_grad=True)
    layout = network.layout
    for batch in batches(len(shard.y), training, default_rng(seed)):
        t = {name: flat[layout.span(name)].view(shape) for name, shape in layout.tensors}
        # What both trainers see: bytes scaled in float32.
        scaled = np.multiply(shard.x[batch], np.float32(network.input_scale), dtype=np.float32)
        x = torch.from_numpy(scaled.astype(np.float64)).reshape(len(batch), 1, 28, 28)
        for layer in (0, 2):
            x = functional.conv2d(x, t[f"{layer}.kernel"].permute(3, 2, 0, 1), t[f"{layer}.bias"], padding=2)
            x = functional.max_pool2d(functional.relu(x), 2)
        x = x.permute(0, 2, 3, 1).flatten(1)
        x = functional.relu(x @ t["5.kernel"] + t["5.bias"])
        loss = functional.cross_entropy(x @ t["6.kernel"] + t["6.bias"], torch.from_numpy(shard.y[batch].astype(int)))
        (gradient,) = torch.autograd.grad(loss, flat)
        with torch.no_grad():
            flat -= training.client_lr * (gradient if mask is None else gradient * torch.from_numpy(mask))
    return flat.detach().numpy() - start


def distance(found: NDArray[np.floating], wanted: NDArray[np.float64]) -> float:
    """Return the relative error."""
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def describe(name: str, errors: NDArray[np.float64], others: Iterable[int]) -> None:
    smooth = np.delete(errors, list(others))
    print(f"{name:22}{np.median(errors):>12.2e}{errors.max():>12.2e}{smooth.max():>16.2e}{(errors > JUMP).sum():>8}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--kept", type=float, default=1.0, help="share of the coordinates that may move")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        assembly = workload(source_of_w(Path(folder)))
    network, training, start = assembly.network, assembly.training(), assembly.start
    data, owners = assembly.dataset, range(arguments.clients)
    shards = [Shard(data.x_train[r], data.y_train[r]) for r in map(assembly.partition.records, owners)]
    mask = None if arguments.kept == 1 else default_rng(3).random(network.dim) < arguments.kept
    wide = start.astype(np.float64)

    errors: dict[str, NDArray[np.float64]] = {}
    wanted = [exact(network, training, wide, shard, seed, mask) for seed, shard in enumerate(shards)]
    for kind in ("fast", "torch"):
        found = make_trainer(network, training, kind).updates(start, shards, [default_rng(k) for k in owners], mask)  # type: ignore[arg-type]
        errors[kind] = np.array([distance(row, right) for row, right in zip(found, wanted, strict=True)])
    jumped = np.flatnonzero((errors["fast"] > JUMP) | (errors["torch"] > JUMP)).tolist()

    print(f"{arguments.clients} clients of W, kept {arguments.kept:g}; relative error against float64")
    print(f"{'':22}{'median':>12}{'maximum':>12}{'without jumps':>16}{'jumps':>8}")
    describe("fast trainer", errors["fast"], jumped)
    describe("torch, float32", errors["torch"], jumped)
    calm = [client for client in owners if client not in jumped][:5]
    print("\nfloat64, every weight moved by 1e-7 of itself, eight times: largest and median change of the update")
    for client in [*jumped, *calm]:
        changes = []
        for turn in range(8):
            moved = wide * (1 + 1e-7 * default_rng((client, turn)).choice([-1.0, 1.0], wide.size))
            changes.append(distance(exact(network, training, moved, shards[client], client, mask), wanted[client]))
        print(
            f"client {client:3}: {max(changes):.1e} {np.median(changes):.1e}"
            f"   fast {errors['fast'][client]:.1e}   torch {errors['torch'][client]:.1e}"
            f"{'   jumped' if client in jumped else ''}"
        )


if __name__ == "__main__":
    main()
