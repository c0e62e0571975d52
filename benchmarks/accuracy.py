"""Compare the updates of W's clients with float64: those of the fast trainer, and those of torch in float32.

The reference is torch's autograd in float64 on the same batches. An update far from it is not rounding alone: a
ReLU or a max-pool had two outcomes so close that float32 cannot tell them apart, and took the other one. To show it,
the reference notes how close the closest decision of each client was: a ReLU's input, or the gap between the two
largest of a pool, over the sum of the absolute terms that it was made from. Float32 is good to about 6e-8 of that sum.
"""

from __future__ import annotations

from benchmarks.measure import quiet_threads

quiet_threads()

import argparse  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from numpy.random import default_rng  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from benchmarks.workload import source_of_w, workload  # noqa: E402
from sottovoce.models import LocalTraining, Network, Shard, batches, make_trainer  # noqa: E402

JUMP = 5e-5  # a relative error that rounding alone does not reach
EXACT = 1e-14  # closer than this is a tie, up to the rounding of float64
FLOAT32 = 2.0**-24
Mask = NDArray[np.bool_] | None


class Exact:
    """Train one client in float64 and remember its closest decision."""

    def __init__(self, network: Network, training: LocalTraining, start: NDArray[np.float64]) -> None:
        self._network = network
        self._training = training
        self._start = start
        self.closest = np.inf

    def update(self, shard: Shard, seed: int, mask: Mask) -> NDArray[np.float64]:
        """Return the update; `closest` is its own then."""
        self.closest = np.inf
        flat = torch.tensor(self._start, requires_grad=True)
        layout = self._network.layout
        for batch in batches(len(shard.y), self._training, default_rng(seed)):
            tensors = {name: flat[layout.span(name)].view(shape) for name, shape in layout.tensors}
            # What both trainers see: bytes scaled in float32.
            scaled = np.multiply(shard.x[batch], np.float32(self._network.input_scale), dtype=np.float32)
            logits = self._forward(torch.from_numpy(scaled.astype(np.float64)).reshape(-1, 1, 28, 28), tensors)
            loss = functional.cross_entropy(logits, torch.from_numpy(shard.y[batch].astype(np.int64)))
            (gradient,) = torch.autograd.grad(loss, flat)
            with torch.no_grad():
                flat -= self._training.client_lr * (gradient if mask is None else gradient * torch.from_numpy(mask))
        return flat.detach().numpy() - self._start

    def _forward(self, x: Tensor, tensors: dict[str, Tensor]) -> Tensor:
        for layer in (0, 2):
            kernel, bias = tensors[f"{layer}.kernel"].permute(3, 2, 0, 1), tensors[f"{layer}.bias"]
            z = functional.conv2d(x, kernel, bias, padding=2)
            with torch.no_grad():
                self._look(_windows(z), _windows(functional.conv2d(x, kernel.abs(), bias.abs(), padding=2)))
            x = functional.max_pool2d(functional.relu(z), 2)
        x = x.permute(0, 2, 3, 1).flatten(1)
        kernel, bias = tensors["5.kernel"], tensors["5.bias"]
        z = x @ kernel + bias
        with torch.no_grad():
            self._look(z[..., None], (x @ kernel.abs() + bias.abs())[..., None])
        return functional.relu(z) @ tensors["6.kernel"] + tensors["6.bias"]

    def _look(self, candidates: Tensor, terms: Tensor) -> None:
        """Note the closest decision; exact ties are decided alike by everybody, the first wins."""
        scale = terms.amax(-1)
        best = candidates.topk(min(2, candidates.shape[-1]), -1).values
        margins = [best[..., 0].abs() / scale]
        if best.shape[-1] == 2:
            margins.append(torch.where(best[..., 0] > 0, (best[..., 0] - best[..., 1]) / scale, torch.inf))
        for margin in margins:
            self.closest = min(self.closest, margin[margin > EXACT].amin().item())


def _windows(z: Tensor) -> Tensor:
    """Return the four values under each output of a pool."""
    n, c, h, w = z.shape
    return z.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 1, 2, 4, 3, 5).reshape(n, c, h // 2, w // 2, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--kept", type=float, default=1.0, help="share of the coordinates that may move")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        source = source_of_w(Path(folder))
        parts = workload(source)
    network, training, start = parts.network, parts.training(), parts.start
    data, owners = parts.dataset, range(arguments.clients)
    shards = [Shard(data.x_train[r], data.y_train[r]) for r in map(parts.partition.records, owners)]
    mask = None if arguments.kept == 1 else default_rng(3).random(network.dim) < arguments.kept
    reference = Exact(network, training, start.astype(np.float64))

    errors: dict[str, list[float]] = {"fast": [], "torch": []}
    closest: list[float] = []
    trainers = {kind: make_trainer(network, training, kind) for kind in ("fast", "torch")}  # type: ignore[arg-type]
    for seed, shard in enumerate(shards):
        wanted = reference.update(shard, seed, mask)
        closest.append(reference.closest)
        for kind, trainer in trainers.items():
            (found,) = trainer.updates(start, [shard], [default_rng(seed)], mask)
            errors[kind].append(float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted)))
    show(f"{arguments.clients} clients of W on {source}, kept {arguments.kept:g}", errors, np.array(closest))


def show(title: str, errors: dict[str, list[float]], closest: NDArray[np.float64]) -> None:
    """Print a table, and the closest decision of every client that jumped."""
    print(f"{title}; relative error against float64")
    print(f"{'':16}{'median':>12}{'maximum':>12}{'maximum without jumps':>24}{'jumps':>8}")
    found = {kind: np.array(values) for kind, values in errors.items()}
    jumped = np.flatnonzero(np.any([values > JUMP for values in found.values()], axis=0))
    for kind, values in found.items():
        smooth = np.delete(values, jumped)
        print(f"{kind:16}{np.median(values):12.2e}{values.max():12.2e}{smooth.max():24.2e}{(values > JUMP).sum():8}")
    print(f"\nclosest decision: median of all clients {np.median(closest):.1e}; float32 is good to {FLOAT32:.0e}")
    for client in jumped:
        both = "   ".join(f"{kind} {values[client]:.1e}" for kind, values in found.items())
        print(f"client {client:3}: {closest[client]:.1e}   {both}")
    calm = np.delete(closest, jumped)
    print(f"of the {calm.size} others {(calm < FLOAT32).sum()} had one below that, the closest {calm.min():.1e}")


if __name__ == "__main__":
    main()
