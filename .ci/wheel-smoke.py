"""Try an installed wheel: the library in C is there, and a short private run keeps its promise on paper."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from sottovoce.core.native import library

if library() is None:
    sys.exit("the compiled library is not there or does not load")
PRIVATE = ("--set", "privacy.epsilon=8", "--set", "privacy.delta=1e-3", "--set", "privacy.clip_norm=1")
with tempfile.TemporaryDirectory() as folder:
    for command in (
        ["examples", "get", "quickstart"],
        ["run", "quickstart.toml", "--out", "run", "--quiet", "--set", "experiment.rounds=3", *PRIVATE],
        ["report", "run"],
    ):
        subprocess.run([sys.executable, "-m", "sottovoce", *command], cwd=folder, check=True)
    summary = json.loads((Path(folder) / "run" / "summary.json").read_text())
if not (summary["private"] and summary["epsilon"] <= 8.0001):
    sys.exit(f"the run promised epsilon {summary['epsilon']}, 8 was asked for")
