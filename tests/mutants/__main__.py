"""Run the tests that should see each mutant against a copy that holds it.

python -m tests.mutants                 every mutant; exit 1 if one survives or no longer applies
python -m tests.mutants NAME ...        some of them
python -m tests.mutants --list          names and what they break
python -m tests.mutants --tests "..."   another selection of tests, to see what it would miss
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
LONGEST = 600  # seconds; a mutant that hangs is not killed
SURVIVED = "SURVIVED"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of mutants; return 1 if any of them is not killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--tests", help="a pytest selection instead of each mutant's own")
    asked = parser.parse_args(arguments)
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in asked.names if name not in known]:
        parser.error(f"there is no mutant {unknown[0]!r}; see --list")
    chosen = [known[name] for name in asked.names] or list(MUTANTS)
    width = max(len(mutant.name) for mutant in chosen)
    if asked.list:
        print("\n".join(f"{mutant.name:{width}}  {mutant.breaks}" for mutant in chosen))
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        return play(copied(Path(folder)), chosen, asked.tests.split() if asked.tests else None, width)


def play(copy: Path, mutants: Sequence[Mutant], tests: Sequence[str] | None, width: int) -> int:
    """Run the tests on the copy as it is, then on each mutant of it."""
    selection = tests or sorted({test for mutant in mutants for test in mutant.tests})
    found, seconds = first_failure(copy, selection)
    if found is not SURVIVED:
        print(f"the tests fail without any mutant: {found}")
        return 1
    print(f"{'mutant':{width}}  seconds  killed by")
    print(f"{'(none)':{width}}  {seconds:7.1f}  nothing, as it should be")
    survivors = []
    for mutant in mutants:
        if problem := misfit(copy, mutant):
            survivors.append(mutant.name)
            print(f"{mutant.name:{width}}  {0:7.1f}  NO LONGER APPLIES: {problem}", flush=True)
            continue
        with applied(copy, mutant):
            found, seconds = first_failure(copy, tests or mutant.tests)
        if found is SURVIVED or found.startswith("BROKEN"):
            survivors.append(mutant.name)
        print(f"{mutant.name:{width}}  {seconds:7.1f}  {found}", flush=True)
    print(
        f"{len(mutants) - len(survivors)} of {len(mutants)} killed" + "".join(f"\n  not {name}" for name in survivors)
    )
    return 1 if survivors else 0


def copied(folder: Path) -> Path:
    """Copy what the tests need; modification times are kept, so that compiled kernels are found again."""
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.egg-info"))
    shutil.copy2(ROOT / "pyproject.toml", folder)
    return folder


def misfit(copy: Path, mutant: Mutant) -> str | None:
    """Say which text of a mutant does not occur exactly once."""
    for edit in mutant.edits:
        path = copy / "src" / "sottovoce" / edit.file
        count = path.read_text().count(edit.old) if path.exists() else 0
        if count != 1:
            return f"{edit.file} has {edit.old!r} {count} times"
    return None


@contextmanager
def applied(copy: Path, mutant: Mutant) -> Iterator[None]:
    """Hold the mutant in the copy, and put everything back."""
    paths = {copy / "src" / "sottovoce" / edit.file for edit in mutant.edits}
    originals = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}
    try:
        for edit in mutant.edits:
            path = copy / "src" / "sottovoce" / edit.file
            path.write_text(path.read_text().replace(edit.old, edit.new))
        yield
    finally:
        for path, (content, modified) in originals.items():
            path.write_bytes(content)
            os.utime(path, ns=(modified, modified))


def first_failure(copy: Path, tests: Sequence[str]) -> tuple[str, float]:
    """Return the first test that fails (or that none did), and the time it took."""
    # No bytecode: a mutant of the same size and second as its original would be taken for it.
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", *tests]
    start = time.monotonic()
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return f"BROKEN: still running after {LONGEST} seconds", time.monotonic() - start
    seconds = time.monotonic() - start
    if done.returncode == 0:
        return SURVIVED, seconds
    failed = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode != 1 or not failed:  # nothing ran: the mutant does not import, or the selection is empty
        return f"BROKEN: {(done.stdout + done.stderr).strip().splitlines()[-1]}", seconds
    return failed[0].split(maxsplit=1)[1].removeprefix("tests/"), seconds


if __name__ == "__main__":
    sys.exit(main())
