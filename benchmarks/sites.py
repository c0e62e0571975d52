"""The papers' CNN, all weights, at ten sites that protect each record; beside Opacus on the same records.

    python -m benchmarks.sites [--epsilon 8] [--rounds 100] [--images 60000] [--seeds 1]

Both run in one process from the same weights, with the same clip norm, noise multiplier, rate of records (1/60),
rounds, step and momentum. Opacus has all records in one place; the sites add a share of the noise each, behind a sum.
Each draws coins and noise of its own. Needs Opacus 1.6, in an environment of its own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import load, quiet_threads

quiet_threads()

import numpy as np  # noqa: E402
import torch  # noqa: E402

from benchmarks.peer_opacus import trained  # noqa: E402
from sottovoce.assembly.parts import Parts, gather  # noqa: E402
from sottovoce.assembly.protection import protect  # noqa: E402
from sottovoce.config.experiment import Experiment, parse  # noqa: E402
from sottovoce.core.vectors import Vector  # noqa: E402
from sottovoce.federation.optimise import ServerStep  # noqa: E402
from sottovoce.federation.units import unit_lr  # noqa: E402
from sottovoce.models import LocalTraining, Shard  # noqa: E402
from sottovoce.models.fast import FastTrainer  # noqa: E402
from sottovoce.privacy import PrivacyPlan  # noqa: E402
from sottovoce.runs.loop import run  # noqa: E402

SITES, RATE = 10, 1 / 60
ASKED = 0.5  # points


def main() -> int:
    """Print a line for each seed; return 1 if the means differ by more than was asked."""
    asked = _arguments()
    print(f"{asked.images:,} images, {SITES} sites, {asked.rounds} rounds, epsilon_server {asked.epsilon:g}, {load()}")
    print(f"{'seed':>4}{'z':>8}{'epsilon':>9}{'sites %':>9}{'Opacus %':>10}{'CPU s':>9}{'Opacus':>9}", flush=True)
    found = []
    for seed in range(1, asked.seeds + 1):
        experiment = _experiment(asked, seed)
        parts = gather(experiment)
        plan = protect(parts).plan
        assert plan is not None
        began = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            run(experiment, Path(folder) / "run")
            with np.load(Path(folder) / "run" / "model.npz") as arrays:
                ours = np.concatenate([arrays[name].ravel() for name, _ in parts.network.layout.tensors])
        spent = time.process_time() - began
        torch.manual_seed(seed)
        rows = np.concatenate([parts.partition.records(site) for site in range(SITES)])
        shard = Shard(parts.dataset.x_train[rows], parts.dataset.y_train[rows])
        step = ServerStep(**{**experiment.server.step_keys, "lr": _lr(experiment, plan)}, rounds=asked.rounds)
        began = time.process_time()
        theirs = trained(parts.network.trained, parts.start, shard, plan, step)
        both = [100 * _accuracy(parts, weights) for weights in (ours, theirs)]
        found.append(both)
        print(
            f"{seed:>4}{plan.noise_multiplier:>8.3f}{plan.epsilon:>9.3f}{both[0]:>9.2f}{both[1]:>10.2f}{spent:>9.0f}"
            f"{time.process_time() - began:>9.0f}",
            flush=True,
        )
    means = np.mean(found, axis=0)
    print(f"difference of the means {means[0] - means[1]:+.2f} points (asked: within {ASKED})")
    return int(abs(means[0] - means[1]) > ASKED)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--seeds", type=int, default=1)
    return parser.parse_args()


def _experiment(asked: argparse.Namespace, seed: int) -> Experiment:
    tables: dict[str, Any] = {
        "experiment": {"name": "cnn", "seed": seed, "rounds": asked.rounds, "evaluate_every": asked.rounds},
        "data": {"source": "fashion-mnist", "clients": SITES, "records_per_client": asked.images // SITES},
        "model": {"name": "cnn"},
        "privacy": {
            "unit": "record",
            "unit_rate": RATE,
            "epsilon_server": asked.epsilon,
            "delta": 1e-5,
        },
        "server": {"schedule": "linear"},
        "engine": {"workers": 1},
    }
    return parse(tables)


def _lr(experiment: Experiment, plan: PrivacyPlan) -> float:
    return unit_lr(plan, momentum=experiment.server.momentum, deep=True)


def _accuracy(parts: Parts, weights: Vector) -> float:
    scores = FastTrainer(parts.network.trained, LocalTraining(1, None, 1.0)).scores(weights, parts.dataset.x_test)
    return float(np.mean(scores.argmax(axis=1) == parts.dataset.y_test))


if __name__ == "__main__":
    sys.exit(main())
