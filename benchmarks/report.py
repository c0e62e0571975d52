"""Measure the page of `sottovoce report` on 50 runs of 200 rounds, every round evaluated and every third run attacked.

    python -m benchmarks.report

The folders are written by the contract of docs/run-folder.md, with models of 100,000 weights; nothing is trained. What
was asked is wall time, from the command's start to its end. A machine that others keep busy shows in wall time and not
in CPU time, so both are printed, and CPU time, which one core needs, is compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.measure import load
from benchmarks.table import Row, missed, show
from sottovoce.privacy.ledger import Ledger

RUNS, ROUNDS, WEIGHTS = 50, 200, 100_000
SCHEMES = ("fl-std", "fl-sign", "fl-cs", "fl-top")
SECONDS, MEGABYTES = 10.0, 8.0  # asked

CONFIG = """[experiment]
name = "run-{index}"
seed = {index}
rounds = {rounds}
[data]
source = "digits"
clients = 100
[model]
name = "mlp"
[client]
local_steps = 5
[cohort]
sample_rate = "1/10"
[scheme]
name = "{scheme}"
"""


def write_run(path: Path, index: int, rng: np.random.Generator) -> None:
    """Write the folder of a finished run."""
    scheme, private, attacked = SCHEMES[index % len(SCHEMES)], index % 2 == 1, index % 3 == 0
    path.mkdir()
    config = CONFIG.format(index=index, rounds=ROUNDS, scheme=scheme)
    config += "[privacy]\ndelta = 1e-3\nepsilon = 8.0\n" if private else ""
    config += '[threat]\nattack = "in-backdoor"\nfraction = 0.1\nsource = 1\ntarget = 2\n' if attacked else ""
    (path / "config.toml").write_text(config)
    with (path / "rounds.jsonl").open("w") as file:
        for round_ in range(1, ROUNDS + 1):
            value = 1 - 0.9 / round_**0.5 + 0.01 * rng.standard_normal()
            record = {"round": round_, "bytes_up": 123_450, "bytes_down": 1_234_560, "loss": 1 - value}
            record |= {"accuracy": value, "balanced_accuracy": value - 0.01, "auroc": value + 0.001}
            record["epsilon"] = 8 * (round_ / ROUNDS) ** 0.5 if private else None
            if not private:
                record |= {"cohort": 10, "senders": 10, "seconds": 0.1234}
            if attacked:
                record |= {"attack_success": 0.5 * value, "class_accuracy": 0.9 * value}
            file.write(json.dumps(record) + "\n")
    if private:
        with Ledger(path / "ledger.jsonl", digest="d" * 64, limit=ROUNDS, deployment=False) as ledger:
            for round_ in range(1, ROUNDS + 1):
                ledger.charge(round_)
    summary = {"scheme": scheme, "private": private, "rounds": ROUNDS, "clients": 100, "expected_cohort": 10.0}
    summary |= {f"{name}_{when}": value for name in ("accuracy", "balanced_accuracy") for when in ("best", "final")}
    summary |= {"best_round": ROUNDS, "selected_by": "balanced_accuracy", "bytes_setup_per_client": 32}
    summary |= {"bytes_up_total": 123_450 * ROUNDS, "bytes_down_total": 1_234_560 * ROUNDS}
    summary |= {"bytes_per_client_phase": {"train": {"up": 12_345, "down": 123_456}}}
    summary |= {"epsilon": 8.0 if private else None, "epsilon_server": 30.0 if private else None}
    (path / "summary.json").write_text(json.dumps(summary))
    for name in ("model.npz", "model-best.npz"):
        np.savez(path / name, **{"1.kernel": rng.standard_normal(WEIGHTS).astype(np.float32)})


def main() -> int:
    """Write the folders, report them, and print what it took."""
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"run-{index}" for index in range(RUNS)]
        for index, path in enumerate(paths):
            write_run(path, index, rng)
        target = Path(folder) / "report.html"
        before, began = os.times(), time.perf_counter()
        command = [sys.executable, "-m", "sottovoce", "report", *map(str, paths), "--html", str(target)]
        subprocess.run(command, check=True, capture_output=True)
        wall, after = time.perf_counter() - began, os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        size = target.stat().st_size / 1e6
        if len(sys.argv) > 1:  # to look at it
            target.replace(sys.argv[1])
    rows = [
        Row(f"{RUNS} runs x {ROUNDS} rounds: CPU", 1e3 * cpu, "ms", 1e3 * SECONDS),
        Row(f"{RUNS} runs x {ROUNDS} rounds: wall", 1e3 * wall, "ms"),
        Row("the page, kB", 1e3 * size, "kB", 1e3 * MEGABYTES),
    ]
    print(load())
    show(rows)
    return 1 if missed(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
