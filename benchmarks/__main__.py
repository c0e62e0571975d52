"""Run every benchmark: `make bench`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WHICH = ("engine", "own", "small", "lean", "schemes", "privacy", "secagg", "ballots", "threats", "report")


def main() -> int:
    """Run each in a process of its own, so that none sees another's threads or caches."""
    worst = 0
    for name in WHICH:
        if (Path(__file__).parent / f"{name}.py").exists():
            print(f"\n== {name}", flush=True)
            worst = max(worst, subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
