"""Attack the first message of a client, or the first sum of a round, and say how much of its images comes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from sottovoce.assembly.overrides import NOTHING, Given
from sottovoce.assembly.parts import Parts
from sottovoce.assembly.stages import ServerSide
from sottovoce.config.experiment import Experiment
from sottovoce.config.tables import InferenceTable
from sottovoce.core.errors import InputError
from sottovoce.core.packages import require
from sottovoce.core.streams import Purpose
from sottovoce.core.vectors import Vector
from sottovoce.federation.coding import Terms
from sottovoce.models import Shard, make_trainer
from sottovoce.studies.setting import prepare, public_of
from sottovoce.threats.measures import WINDOW, ssim

MOST_IMAGES: Final = 64  # more were never rebuilt, by us or by the papers, and each costs time
_ROUND: Final = 1
_OTHERS: Final = 20  # unrelated records that each image is compared with

Tell = Callable[[int, int], None]  # steps that are done, steps in all


class Pictures(NamedTuple):
    """What was found, in plain JSON, and the images in [0, 1]: those of the clients, and those that came back."""

    facts: dict[str, Any]
    true: NDArray[np.float32]
    rebuilt: NDArray[np.float32]  # each in the place of the one that it is most like


def infer_images(experiment: Experiment, given: Given = NOTHING, tell: Tell = lambda done, steps: None) -> Pictures:
    """Train one round of clients from w_0, and rebuild their images from what the server sees of it.

    A client trains on `[client] batch_size` images, the same in all local steps, which the attacker knows; it does not
    know the labels.
    """
    began = time.perf_counter()
    table = experiment.inference or InferenceTable()
    require("rebuilding images from an update", "torch")
    ready = prepare(experiment, given)
    parts = ready.protection.parts
    clients = round(parts.cohort.expected) if table.sees == "sum" else 1
    shards = _shards(parts, clients)
    message = _message(ready, shards)
    rebuilt = _attack(ready, table, clients, len(shards[0].y)).run(
        parts.start,
        message,
        parts.seeds.adversary.get(Purpose.ATTACK),
        lambda done: tell(done, table.iterations * table.restarts),
    )
    true = np.concatenate([_pixels(parts, shard.x) for shard in shards])
    labels = np.concatenate([shard.y for shard in shards])
    alike = np.array([[ssim(one, other) for other in rebuilt.images] for one in true])
    rows, places = linear_sum_assignment(-alike)
    facts = {
        "name": experiment.experiment.name,
        "scheme": parts.scheme.name,
        "ratio": getattr(parts.scheme, "ratio", None),
        "private": ready.plan is not None,
        "noise_multiplier": None if ready.plan is None else ready.plan.noise_multiplier,
        "epsilon": None if ready.plan is None else ready.plan.describe()["epsilon"],
        "sees": table.sees,
        "clients": clients,
        "images": len(true),
        "local_steps": parts.training().local_steps,
        "values": message.size,
        "ssim": float(alike[rows, places].mean()),
        "ssim_unrelated": _unrelated(parts, true),
        "labels": float((rebuilt.labels[places] == labels).mean()),
        "distance": rebuilt.distance,
        "seconds": time.perf_counter() - began,
    }
    return Pictures(facts, true, rebuilt.images[places])


def _attack(ready: ServerSide, table: InferenceTable, clients: int, records: int) -> Any:
    from sottovoce.models.inversion import Inversion  # it imports torch

    parts, scheme = ready.protection.parts, ready.scheme
    seed, rng = scheme.round_seed(_ROUND), np.random.default_rng(0)

    def encode(update: Vector) -> Vector:
        return scheme.encode(update, seed, rng)

    def transpose(message: Vector) -> Vector:
        return scheme.transpose(message, seed)

    if scheme.form == "floats":
        _check_linear(scheme.name, scheme.linear, scheme.dim, encode, transpose)
    return Inversion(
        network=parts.network,
        training=parts.training(),
        encode=encode,
        transpose=transpose,
        form=scheme.form,
        trainable=scheme.trainable(seed),
        clients=clients,
        records=records,
        iterations=table.iterations,
        smoothness=table.smoothness,
        restarts=table.restarts,
    )


def _check_linear(
    name: str, linear: bool, dim: int, encode: Callable[[Vector], Vector], transpose: Callable[[Vector], Vector]
) -> None:
    """Raise if the attack could not follow the encoding: <E u, y> must be <u, E^T y>."""
    update = np.random.default_rng(1).standard_normal(dim).astype(np.float32)
    if linear:
        message = encode(update)
        one, other = float(message @ message), float(update @ transpose(message))
        if abs(one - other) <= 1e-3 * abs(one):
            return
    raise InputError(
        f"{name} cannot be inverted: it sends neither signs nor a linear map of the update that has a transpose"
    )


def _message(ready: ServerSide, shards: list[Shard]) -> Vector:
    """Return what clients with these records add up to in round 1, clipped and noised if the run is private.

    In a private run each adds its share of the noise of a whole cohort.
    """
    parts, public, scheme = ready.protection.parts, public_of(ready), ready.scheme
    seed, table = scheme.round_seed(_ROUND), parts.experiment.client
    terms = Terms(public.cohort, 0.0 if ready.plan is None else ready.plan.request.clip_norm)
    trainer = make_trainer(parts.network, parts.training(), table.trainer, table.device)
    streams = [parts.seeds.client(client) for client in range(len(shards))]
    updates = trainer.updates(
        parts.start, shards, [own.get(Purpose.BATCH, _ROUND) for own in streams], scheme.trainable(seed)
    )
    total = np.zeros(scheme.length, np.float32)
    for own, update in zip(streams, updates, strict=True):
        message = scheme.encode(update, seed, own.get(Purpose.ENCODE, _ROUND))
        total += public.contribution(message, terms, own.key(Purpose.NOISE, _ROUND))
    return total


def _shards(parts: Parts, clients: int) -> list[Shard]:
    """Return the records of the first clients, one batch each, or raise if they are no images or too many."""
    shape, size = parts.dataset.shape, parts.experiment.client.batch_size
    if len(shape) != 3 or min(shape[:2]) < WINDOW:
        raise InputError(
            f"images of {WINDOW} x {WINDOW} or more are rebuilt and compared, but {parts.dataset.name} has records of "
            f"shape {shape}; use mnist or fashion-mnist"
        )
    smallest = min(parts.partition.size(client) for client in range(clients))
    if size == "all" or size > smallest:
        raise InputError(
            f"[client] batch_size must be a number of at most the {smallest} images of a client, got {size}"
        )
    if clients * size > MOST_IMAGES:
        raise InputError(
            f"{clients * size} images would be looked for at once ({clients} x [client] batch_size {size}), and "
            f"{MOST_IMAGES} are the most; lower batch_size, or for a sum [data] clients or [cohort] sample_rate"
        )
    owned = [parts.partition.records(client)[:size] for client in range(clients)]
    return [Shard(parts.dataset.x_train[places], parts.dataset.y_train[places]) for places in owned]


def _pixels(parts: Parts, x: NDArray[Any]) -> NDArray[np.float32]:
    return np.asarray(np.multiply(x, np.float32(parts.dataset.input_scale), dtype=np.float32))


def _unrelated(parts: Parts, true: NDArray[np.float32]) -> float:
    """Return how like the images are to records that have nothing to do with them: what a blind guess would reach."""
    rng = parts.seeds.world.get(Purpose.ATTACK, 3)
    others = _pixels(parts, parts.dataset.x_test[rng.integers(len(parts.dataset.y_test), size=_OTHERS)])
    return float(np.mean([ssim(one, other) for one in true for other in others]))
