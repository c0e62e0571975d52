"""Read a large CSV source and print the most memory that it took: `python -m benchmarks.big_table [--megabytes 1000]`.

The files are made up in a temporary folder: five sites, numbers and words mixed, so that the features would be several
times as large as the text if each were a float. They are read by a schema, as a private run reads them, and one round
is played on them. The process is watched from outside.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.measure import quiet_threads, watch

_SITES: Final = 5
_CITIES: Final = [f"city {number}" for number in range(30)]
_WARDS: Final = ["heart", "intensive care", "medicine", "surgery"]
_DRUGS: Final = ["none", "steady", "up", "down"]
_ASKED: Final = 2e9  # bytes of memory for 1e9 bytes of text
_POOL: Final = 20_000  # lines that are made; the files repeat them with another person each


def write_tables(folder: Path, size: int) -> int:
    """Write files of `size` bytes together and the schema of all; return the number of rows."""
    rng, rows = random.Random(7), 0
    for site in range(_SITES):
        pool = [_row(rng) for _ in range(_POOL)]
        with (folder / f"site_{site}.csv").open("w", encoding="utf-8") as file:
            file.write("patient,age,creatinine,platelets,bmi,sex,city,ward," + ",".join(_drug_names()) + ",died\n")
            while file.tell() < size / _SITES:
                file.write("".join(f"p{rows + place:09d},{row}\n" for place, row in enumerate(pool)))
                rows += len(pool)
                file.flush()
    (folder / "schema.toml").write_text(_schema(), "utf-8")
    return rows


def _drug_names() -> list[str]:
    return [f"drug_{number}" for number in range(8)]


def _row(rng: random.Random) -> str:
    cells = [
        str(rng.randrange(18, 100)),
        f"{rng.uniform(0.4, 4):.2f}",
        str(rng.randrange(50_000, 500_000)),
        f"{rng.uniform(15, 50):.1f}",
        rng.choice("fm"),
        rng.choice(_CITIES),
        rng.choice(_WARDS),
        *(rng.choice(_DRUGS) for _ in range(8)),
        rng.choice(["no"] * 6 + ["yes"]),
    ]
    return ",".join(cells)


def _schema() -> str:
    ranges = {"age": (18, 100), "creatinine": (0, 5), "platelets": (0, 1_000_000), "bmi": (10, 60)}
    words = {"sex": ["f", "m"], "city": _CITIES, "ward": _WARDS, **dict.fromkeys(_drug_names(), _DRUGS)}
    lines = ['others = "ignore"', "[label]", 'classes = ["no", "yes"]']
    for name, (low, high) in ranges.items():
        lines += [f"[columns.{name}]", 'kind = "number"', f"minimum = {low}", f"maximum = {high}"]
    for name, categories in words.items():
        lines += [f"[columns.{name}]", 'kind = "category"', f"categories = {categories!r}".replace("'", '"')]
    return "\n".join(lines) + "\n"


def measure(folder: Path, what: str) -> tuple[float, float]:
    """Return the peak of memory in bytes, and the CPU seconds, of a process that reads the files."""
    code = f"from benchmarks.big_table import play; play({str(folder)!r}, {what!r})"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with watch(process.pid, every=0.2) as seen:
        told = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"{what} ended with exit code {process.returncode}")
    return seen.together * 2**20, float(told.split()[-1])


def play(folder: str, what: str) -> None:
    """Read the files, or play a round on them; run as a process of its own."""
    quiet_threads()
    import logging

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if what == "read":
        from sottovoce.data.table import TableKeys, read_own_table

        files = sorted(Path(folder).glob("site_*.csv"))
        read_own_table(files, TableKeys(label="died", id=None, schema="schema.toml", aside="nothing"), folder)
    else:
        from sottovoce.config.experiment import parse
        from sottovoce.runs.loop import run

        run(parse(_experiment(folder)), Path(folder) / "run")
    print(time.process_time())


def _experiment(folder: str) -> dict[str, object]:
    return {
        "experiment": {"rounds": 1, "seed": 1},
        "data": {"source": f"{folder}/site_*.csv", "label": "died", "schema": f"{folder}/schema.toml"},
        "model": {"name": "logistic"},
        "client": {"batch_size": 1000, "local_steps": 5, "client_lr": 0.1},
        "engine": {"workers": 1},
        "cohort": {"sample_rate": 1.0},
    }


def main() -> None:
    """Write the files, read them and play a round; print peaks of memory beside what was asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--only", choices=["read", "round"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = write_tables(folder, options.megabytes * 10**6)
        print(f"{options.megabytes} MB of CSV in {_SITES} files, {rows:,} rows")
        for what in [options.only] if options.only else ["read", "round"]:
            peak, seconds = measure(folder, what)
            asked = _ASKED * options.megabytes / 1000
            print(f"{what:6} peak {peak / 1e9:.2f}e9 bytes, asked {asked / 1e9:.2f}e9; {seconds:.0f} CPU s", flush=True)


if __name__ == "__main__":
    main()
