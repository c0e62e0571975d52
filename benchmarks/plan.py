"""Measure the planner: seconds of `plan` and `plan --solve`, and what the predicted signal-to-noise ratio leaves open.

python -m benchmarks.plan            seconds, each command in a process of its own
python -m benchmarks.plan --signal   how far clients agree in small runs, and what noise cost them
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.config.experiment import Experiment, parse
from sottovoce.planning.plan import plan
from sottovoce.runs.loop import run

FILES = ("fashion-std", "fashion-top-dp", "fashion-cs-dp", "fashion-head-dp", "fashion-scattering-dp", "quickstart")
LIMITS = "epsilon<=1, epsilon_server<=4, up<=200kB, joules<=50, hours<=48"
LEAST_NOISE = 20.0  # epsilon of the runs that others are compared with
SOLVED = ("fashion-scattering-dp", "fashion-top-dp")


def seconds() -> None:
    """Print CPU and wall seconds of each command."""
    for name in FILES:
        _time("plan", f"experiments/{name}.toml", "--json")
    for name in SOLVED:
        _time("plan", f"experiments/{name}.toml", "--json", "--solve", LIMITS)


def _time(*words: str) -> None:
    before, began = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "sottovoce", *words], check=True, capture_output=True)
    after, wall = os.times(), time.perf_counter() - began
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{' '.join(words):<60} {cpu:5.1f} s CPU {wall:5.1f} s wall", flush=True)


class Watch:
    """Reads off each round how long the mean message is, in clip norms, without the noise's own length."""

    def __init__(self, noise: float) -> None:
        self.noise = noise  # squared length of the noise on a mean, in clip norms
        self.last: dict[str, Any] | None = None
        self.agreements: list[float] = []

    def on_round(self, record: dict[str, Any], state: dict[str, Any]) -> None:
        """Compare the model with that of the round before; the server adds the mean as it is."""
        if self.last is not None:
            step = np.asarray(state["params"], np.float64) - self.last["params"]
            energy = float(step @ step) / self.last["clip_norm"] ** 2 - self.noise
            self.agreements.append(math.sqrt(max(0.0, energy)))
        self.last = {"params": np.array(state["params"], np.float64), "clip_norm": float(state["clip_norm"])}


def signal() -> None:
    """Print how far clients agree, and the accuracy at several signal-to-noise ratios."""
    cases: dict[str, dict[str, dict[str, Any]]] = {
        "logistic, iid": {},
        "logistic, dirichlet 0.3": {"data": {"partition": "dirichlet", "concentration": 0.3}},
        "mlp, iid": {"model": {"name": "mlp"}},
    }
    for name, tables in cases.items():
        clean = _run(tables, LEAST_NOISE)[0]
        told = plan(_experiment(tables, LEAST_NOISE))
        spread = told["privacy"]["noise_stddev"] / told["privacy"]["clip_norm"] / told["expected_cohort"]
        watch = Watch(spread**2 * told["message_length"])
        _run(tables, LEAST_NOISE, watch)
        low, usual, high = np.quantile(watch.agreements, (0.1, 0.5, 0.9))
        print(f"{name}: agreement {low:.2f} {usual:.2f} {high:.2f} (10, 50, 90 % of rounds), accuracy {clean:.3f}")
        for epsilon in (8.0, 4.0, 2.0, 1.0):
            accuracy, most = _run(tables, epsilon)
            print(f"    most {most:6.2f}: accuracy {accuracy:.3f} ({accuracy - clean:+.3f})", flush=True)


def _run(tables: dict[str, dict[str, Any]], epsilon: float, *watch: Watch) -> tuple[float, float]:
    """Return a run's accuracy, and the most that its signal-to-noise ratio can be."""
    experiment = _experiment(tables, epsilon)
    with tempfile.TemporaryDirectory() as folder:
        summary = run(experiment, Path(folder) / "run", callbacks=watch)
    return float(summary["accuracy_final"]), float(plan(experiment)["signal_to_noise"]["most"])


def _experiment(tables: dict[str, dict[str, Any]], epsilon: float) -> Experiment:
    base: dict[str, dict[str, Any]] = {
        "experiment": {"rounds": 40, "evaluate_every": 40, "checkpoint_every": 40},
        "data": {"source": "digits", "clients": 100},
        "model": {"name": "logistic"},
        "client": {"local_steps": 5, "batch_size": 10, "client_lr": 0.2},
        "cohort": {"sample_rate": "1/5"},
        "privacy": {"epsilon": epsilon, "delta": 0.005, "clipping": "adaptive", "clip_norm": 1.0, "count_stddev": 5.0},
        "engine": {"workers": 1},
    }
    for name, table in tables.items():
        base[name] = {**base.get(name, {}), **table}
    return parse(base)


if __name__ == "__main__":
    signal() if "--signal" in sys.argv[1:] else seconds()
