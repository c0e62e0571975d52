"""Run the tests that should see each mutant against a copy that holds it.

python -m tests.mutants                 every mutant; exit 1 if one survives or no longer applies
python -m tests.mutants NAME ...        some of them
python -m tests.mutants --seconds 240   as many as fit, in an order that is another one for every commit
python -m tests.mutants --list          names and what they break
python -m tests.mutants --tests "..."   another selection of tests, to see what it would miss
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
LONGEST = 600  # seconds; a mutant that hangs is not killed
SURVIVED = "SURVIVED"
NOT_TRIED = "not tried: all of its tests are skipped here"  # no emulator, or an engine of another environment


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of mutants; return 1 if any of them is not killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--tests", help="a pytest selection instead of each mutant's own")
    parser.add_argument("--seconds", type=float, help="begin no mutant after this time; the order rotates by commit")
    parser.add_argument("--workers", type=int, default=1, help="copies that are tested at the same time")
    parser.add_argument("--trust", action="store_true", help="do not run the tests without any mutant first")
    asked = parser.parse_args(arguments)
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in asked.names if name not in known]:
        parser.error(f"there is no mutant {unknown[0]!r}; see --list")
    chosen = [known[name] for name in asked.names] or list(MUTANTS)
    if asked.seconds is not None:
        turn = commit()
        chosen.sort(key=lambda mutant: hashlib.sha256(f"{turn} {mutant.name}".encode()).digest())
    width = max(len(mutant.name) for mutant in chosen)
    if asked.list:
        print("\n".join(f"{mutant.name:{width}}  {mutant.breaks}" for mutant in chosen))
        return 0
    tests = asked.tests.split() if asked.tests else None
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [copied(Path(folder) / str(number)) for number in range(asked.workers)]
        if not asked.trust and not sound(copies[0], chosen, tests):
            return 1
        return play(copies, chosen, tests, width, math.inf if asked.seconds is None else asked.seconds)


def commit() -> str:
    """Return the id of the commit that is checked out; the date where there is none."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or time.strftime("%Y-%m-%d")


def sound(copy: Path, mutants: Sequence[Mutant], tests: Sequence[str] | None) -> bool:
    """Tell whether the tests pass on the copy as it is."""
    verdict, seconds = first_failure(copy, tests or sorted({test for mutant in mutants for test in mutant.tests}))
    if verdict not in (SURVIVED, NOT_TRIED):
        print(f"the tests fail without any mutant: {verdict}")
        return False
    print(f"without any mutant the tests pass, in {seconds:.1f} seconds")
    return True


def play(
    copies: Sequence[Path], mutants: Sequence[Mutant], tests: Sequence[str] | None, width: int, seconds: float
) -> int:
    """Test each mutant in one of the copies, until the time is over; return 1 if one is not killed."""
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)
    end, survivors, skipped, played = time.monotonic() + seconds, [], 0, 0

    def verdict_of(mutant: Mutant) -> tuple[str, float] | None:
        if time.monotonic() > end:
            return None
        copy = free.get()
        try:
            if problem := misfit(copy, mutant):
                return f"NO LONGER APPLIES: {problem}", 0.0
            with applied(copy, mutant):
                return first_failure(copy, tests or mutant.tests)
        finally:
            free.put(copy)

    print(f"{'mutant':{width}}  seconds  killed by")
    with ThreadPoolExecutor(len(copies)) as pool:
        for mutant, outcome in zip(mutants, pool.map(verdict_of, mutants), strict=True):
            if outcome is None:
                continue
            verdict, took = outcome
            played += verdict is not NOT_TRIED
            skipped += verdict is NOT_TRIED
            if verdict is SURVIVED or verdict.startswith(("BROKEN", "NO LONGER")):
                survivors.append(mutant.name)
            print(f"{mutant.name:{width}}  {took:7.1f}  {verdict}", flush=True)
    more = f", {skipped} not tried" if skipped else ""
    print(f"{played - len(survivors)} of {played} killed{more}" + "".join(f"\n  not {name}" for name in survivors))
    return 1 if survivors or not played else 0


def copied(folder: Path) -> Path:
    """Copy what the tests need; modification times are kept, so that compiled kernels are found again."""
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.egg-info"))
    shutil.copy2(ROOT / "pyproject.toml", folder)
    return folder


def misfit(copy: Path, mutant: Mutant) -> str | None:
    """Say which edit of a mutant cannot be made."""
    for edit in mutant.edits:
        path = copy / "src" / "sottovoce" / edit.file
        if problem := edit.problem(path.read_text() if path.exists() else ""):
            return problem
    return None


def texts_of(copy: Path, mutant: Mutant) -> dict[Path, str]:
    """Return the files that a mutant changes, as they are with it."""
    texts: dict[Path, str] = {}
    for edit in mutant.edits:
        path = copy / "src" / "sottovoce" / edit.file
        texts[path] = edit.made(texts.get(path) or path.read_text())
    return texts


@contextmanager
def applied(copy: Path, mutant: Mutant) -> Iterator[None]:
    """Hold the mutant in the copy, and put everything back."""
    texts = texts_of(copy, mutant)
    originals = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in texts}
    try:
        for path, text in texts.items():
            path.write_text(text)
        yield
    finally:
        for path, (content, modified) in originals.items():
            path.write_bytes(content)
            os.utime(path, ns=(modified, modified))


def first_failure(copy: Path, tests: Sequence[str]) -> tuple[str, float]:
    """Return the first test that fails (or that none did), and the time it took."""
    # No bytecode: a mutant of the same size and second as its original would be taken for it.
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-rfEp", "-p", "no:cacheprovider", *tests]
    start = time.monotonic()
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return f"BROKEN: still running after {LONGEST} seconds", time.monotonic() - start
    seconds = time.monotonic() - start
    if done.returncode == 0:
        passed = any(line.startswith("PASSED ") for line in done.stdout.splitlines())
        return SURVIVED if passed else NOT_TRIED, seconds
    failed = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode != 1 or not failed:  # nothing ran: the mutant does not import, or the selection is empty
        return f"BROKEN: {(done.stdout + done.stderr).strip().splitlines()[-1]}", seconds
    return failed[0].split(maxsplit=1)[1].removeprefix("tests/"), seconds


if __name__ == "__main__":
    sys.exit(main())
