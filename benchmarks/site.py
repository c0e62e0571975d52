"""A hospital's `join` with 100,000 rows of 170 columns, over a broker: resident memory, and the CPU of a round.

    python -m benchmarks.site [--rows 100000] [--columns 170] [--drawn 2000] [--rounds 20]

Real processes: a broker, this server, and three `sottovoce join`. The first of these holds the large table (a CSV
file), the others 1,000 rows each. Every record is a unit; `drawn` of the large table are expected in a round. Memory is
the most that the process held resident, while it read the file too. CPU of a round is what it used from the end of the
first round to the end of the last, over these rounds. It should not have loaded torch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmarks.measure import cpu_of, load, quiet_threads

quiet_threads()

import numpy as np  # noqa: E402

from sottovoce.config.experiment import Experiment, parse, to_toml  # noqa: E402
from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster  # noqa: E402
from sottovoce.deployment.server.serve import serve  # noqa: E402
from sottovoce.deployment.trial.broker import Broker  # noqa: E402
from sottovoce.deployment.trial.trial import environment  # noqa: E402

SMALL = 1_000
MOST_MEMORY, MOST_CPU = 200.0, 0.3  # MB, s


def write_table(path: Path, rows: int, columns: int, seed: int) -> None:
    """Write a table of numbers between 0 and 100 with two decimals, and who died."""
    rng = np.random.default_rng(seed)
    with path.open("w", encoding="ascii") as file:
        file.write(",".join([*(f"c{number}" for number in range(columns)), "died"]) + "\n")
        for _ in range(rows):
            cells = rng.integers(0, 10_000, columns)
            died = "yes" if cells[0] + cells[1] > 10_000 else "no"
            file.write(",".join([*(f"{cell / 100:.2f}" for cell in cells), died]) + "\n")


def write_experiment(folder: Path, rows: int, columns: int, drawn: int, rounds: int, broker: str) -> Experiment:
    """Write schema and experiment of three sites, and return the experiment."""
    kinds = "".join(f'[columns.c{n}]\nkind = "number"\nminimum = 0\nmaximum = 100\n\n' for n in range(columns))
    (folder / "schema.toml").write_text(f'[label]\nclasses = ["no", "yes"]\n\n{kinds}', encoding="ascii")
    tables: dict[str, Any] = {
        "experiment": {"name": "site", "rounds": rounds, "evaluation": "none"},
        "data": {"source": "site_*.csv", "label": "died", "schema": str(folder / "schema.toml"), "clients": 3},
        "model": {"name": "logistic"},
        "privacy": {
            "unit": "record",
            "units": [rows, SMALL, SMALL],
            "unit_rate": str(Fraction(drawn, rows)),
            "noise_multiplier": 20.0,
            "delta": 1e-6,
        },
        "aggregation": {"secure": "real", "threshold": 3},
        "engine": {"name": "mqtt", "broker": broker, "min_nodes": 3, "train_timeout": 600.0, "phase_timeout": 600.0},
    }
    experiment = parse(tables)
    (folder / "experiment.toml").write_text(to_toml(experiment.tables()), encoding="utf-8")
    return experiment


def main() -> int:
    """Print what the site needed beside what is asked; return 1 if a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.site", description=__doc__.splitlines()[0])
    for name, usual in (("rows", 100_000), ("columns", 170), ("drawn", 2_000), ("rounds", 20)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="site-") as place:
        folder = Path(place)
        for number, rows in enumerate((asked.rows, SMALL, SMALL)):
            write_table(folder / f"site_{number}.csv", rows, asked.columns, number)
        init_federation(folder / "fed")
        add_nodes(folder / "fed", [f"n{number}" for number in range(3)])
        sign_roster(folder / "fed")
        with Broker(folder / "fed") as broker:
            experiment = write_experiment(folder, asked.rows, asked.columns, asked.drawn, asked.rounds, broker.url)
            memory, cpu, torch = watched(folder, experiment, broker.url)
    print(f"{asked.rows} rows x {asked.columns} columns, {asked.drawn} drawn, {asked.rounds} rounds; {load()}")
    print(f"{'resident memory, most':28}{memory:10.1f} MB   asked {MOST_MEMORY:.0f}")
    print(f"{'CPU of a round':28}{cpu:10.4f} s    asked {MOST_CPU}")
    print(f"{'torch':28}{'loaded' if torch else 'not loaded':>10}")
    return int(memory > MOST_MEMORY or cpu > MOST_CPU or torch)


def watched(folder: Path, experiment: Experiment, url: str) -> tuple[float, float, bool]:
    """Play the run; return the large site's most resident memory (MB), its CPU of a round (s), whether it has torch."""
    sites = []
    for number in range(3):
        words = [sys.executable, "-m", "sottovoce", "join", url, "--run", str(folder / "experiment.toml")]
        words += ["--keys", str(folder / "fed" / "nodes" / f"n{number}"), "--data", str(folder / f"site_{number}.csv")]
        with (folder / f"n{number}.log").open("wb") as log:
            sites.append(subprocess.Popen(words, stdout=log, stderr=log, env=environment()))
    pid, seen = sites[0].pid, []

    def observe(_: dict[str, Any]) -> None:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
        peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
        seen.append((cpu_of([pid]), peak, "libtorch" in maps))

    def check() -> None:
        for number, site in enumerate(sites):
            if site.poll():
                raise SystemExit((folder / f"n{number}.log").read_text())

    try:
        serve(experiment, folder / "out", keys=folder / "fed" / "server", observe=observe, check=check)
    finally:
        for site in sites:
            site.terminate()
            site.wait()
    first, last = seen[0], seen[-1]
    return last[1], (last[0] - first[0]) / (len(seen) - 1), last[2]


if __name__ == "__main__":
    sys.exit(main())
