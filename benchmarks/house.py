"""Measure the house: how much code there is, and how many of its files a command enters.

    python -m benchmarks.house

A file is entered if one of its functions is called; importing it does not count. Nodes, workers and helpers are counted
with the command that starts them.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "sottovoce"
QUICKSTART = Path(__file__).parents[1] / "experiments" / "quickstart.toml"
SHORT = ("--set", "experiment.rounds=2", "--set", "experiment.evaluate_every=1")
PRIVATE = ("--set", "privacy.noise_multiplier=1.0", "--set", "privacy.delta=1e-3", "--set", "privacy.clip_norm=0.5")
LONGEST = 60  # lines of a function
WATCH = """
import atexit, os, sys, threading
seen = set()
def watch(frame, event, argument):
    code = frame.f_code
    if event != "call" or code.co_filename in seen or "sottovoce" not in code.co_filename or not code.co_flags & 1:
        return  # flag 1 is of functions: bodies of modules and classes lack it
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals["__name__"] != "__main__":
            return  # called by an import
        frame = frame.f_back
    seen.add(code.co_filename)
def write():
    sys.setprofile(None)
    with open(os.path.join(os.environ["HOUSE_OUT"], str(os.getpid())), "w") as file:
        file.write("\\n".join(seen))
atexit.register(write)
threading.setprofile(watch)
sys.setprofile(watch)
"""


def entered(*command: str) -> set[str]:
    """Return the files of ours that a command enters, in all its processes."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        (out / "sitecustomize.py").write_text(WATCH)
        (out / "seen").mkdir()
        environment = {**os.environ, "HOUSE_OUT": str(out / "seen"), "PYTHONPATH": f"{out}:{SRC.parent}"}
        done = subprocess.run(
            [sys.executable, "-m", "sottovoce", *command, "--out", str(out / "run"), "--quiet", "--json"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
        files = {line for path in (out / "seen").iterdir() for line in path.read_text().splitlines()}
    return {str(Path(name).relative_to(SRC)) for name in files if name.startswith(f"{SRC}/")}


def modules() -> dict[Path, ast.Module]:
    """Return the syntax tree of every source file."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SRC.rglob("*.py"))}


def long_functions(trees: dict[Path, ast.Module]) -> list[tuple[int, str]]:
    """Return the functions above the limit, longest first."""
    found = [
        (node.end_lineno - node.lineno + 1, f"{path.relative_to(SRC)}:{node.name}")
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    ]
    return sorted((item for item in found if item[0] > LONGEST), reverse=True)


def class_names(trees: dict[Path, ast.Module]) -> Counter[str]:
    """Return how often each class name is defined at the top of a module."""
    return Counter(node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef))


def own_isinstance(trees: dict[Path, ast.Module], *rooms: str) -> int:
    """Count the `isinstance` of some rooms that ask for a class of ours."""
    ours = set(class_names(trees))
    asked = (
        {name.id for part in node.args[1:] for name in ast.walk(part) if isinstance(name, ast.Name)}
        for path, tree in trees.items()
        if path.relative_to(SRC).parts[0] in rooms
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
    )
    return sum(bool(names & ours) for names in asked)


def main() -> None:
    """Print the measurements."""
    trees = modules()
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in trees}
    rooms = Counter(path.relative_to(SRC).parts[0] for path in trees if len(path.relative_to(SRC).parts) > 1)
    lines: Counter[str] = Counter()
    for path, size in sizes.items():
        lines[path.relative_to(SRC).parts[0]] += size
    for room, files in sorted(rooms.items()):
        print(f"{room:12} {files:4} files {lines[room]:6} lines")
    print(f"{'all':12} {len(trees):4} files {sum(sizes.values()):6} lines")
    print(f"files below 60 lines: {sum(size < 60 for size in sizes.values())}")
    print("class names twice:", ", ".join(sorted(n for n, count in class_names(trees).items() if count > 1)) or "none")
    print(
        "isinstance on our classes in assembly, runs, planning:", own_isinstance(trees, "assembly", "runs", "planning")
    )
    for length, name in long_functions(trees):
        print(f"{length} lines: {name}")
    quick = (str(QUICKSTART), *SHORT)
    commands = {
        "run": ("run", *quick, "--set", "engine.workers=1"),
        "run, private and secure": ("run", *quick, *PRIVATE, "--set", "aggregation.secure=real"),
        "run, private ballots": ("run", *quick, *PRIVATE, "--set", "aggregation.secure=ballot"),
        "over MQTT": ("serve", *quick, "--set", "data.clients=5", "--set", "cohort.sample_rate=1", "--local", "5"),
    }
    for name, command in commands.items():
        print(f"files entered, {name}: {len(entered(*command))}", flush=True)


if __name__ == "__main__":
    main()
