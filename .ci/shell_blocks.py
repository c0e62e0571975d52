"""Run every shell block of README, tutorials and how-to, each page in an empty folder, with an installed wheel.

usage: shell_blocks.py BIN [PAGE...]     BIN is the folder of the environment's commands

A block of code whose first line is `# NAME.py` or `# NAME.toml` is the file of that name for the blocks after it.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
LONGEST: Final = 600  # seconds for one block

INDEX: Final = "installs from a package index; this environment was made from the wheel"
MACHINES: Final = "needs other machines or a broker of one's own; tests/deployment plays it with processes"
FETCHED: Final = "needs a data set that is downloaded"
LONG: Final = "takes minutes to hours of computing"

# Blocks that are not run, by page and the words that they begin with. An entry that fits no block is an error.
NOT_RUN: Final[dict[tuple[str, str], str]] = {
    ("README.md", "pip install sottovoce"): INDEX,
    ("README.md", "make demo"): "for a checkout; `make demo` and `make test` are run by themselves",
    ("docs/index.md", "pip install sottovoce"): INDEX,
    ("docs/medical.md", "sottovoce serve hospitals.toml --keys"): MACHINES,
    ("docs/medical.md", "sottovoce data fetch"): FETCHED,
    ("docs/medical.md", "sottovoce examples get schemas/support2"): FETCHED,
    ("docs/deploy.md", "pip install"): INDEX,
    ("docs/deploy.md", "sottovoce serve run.toml"): MACHINES,
    ("docs/deploy.md", "sottovoce count"): MACHINES,
    ("docs/deploy.md", "sottovoce join"): MACHINES,
    ("docs/deploy.md", "sottovoce agent"): MACHINES,
    ("docs/deploy.md", "install -d"): "changes the system's Mosquitto",
    ("docs/deploy.md", "podman build"): "needs podman and a registry of base images",
    ("docs/planning.md", 'sottovoce plan fashion-scattering-dp.toml --solve "epsilon_server<=8"'): FETCHED,
    ("docs/planning.md", 'sottovoce plan fashion-scattering-dp.toml --solve "epsilon<=1, epsilon_server<=4'): LONG,
    ("docs/tuning.md", "sottovoce tune"): FETCHED,
    ("docs/threats.md", "sottovoce sweep"): LONG,
    ("docs/threats.md", "sottovoce examples get threats/tab-6.11"): FETCHED,
    ("docs/defences.md", "sottovoce sweep"): LONG,
    ("docs/defences.md", "python -m benchmarks"): "for a checkout",
    ("docs/inference.md", "sottovoce examples"): FETCHED,
    ("docs/report.md", "sottovoce report runs/plain --watch"): "serves until it is stopped; tests/report/test_watch.py",
    ("docs/report.md", "python -m benchmarks"): "for a checkout",
    ("docs/audit.md", "sottovoce audit runs/private"): LONG,
    ("docs/statistics.md", "sottovoce serve"): MACHINES,
    ("docs/ray.md", "pip install"): INDEX,
    ("docs/ray.md", "export RAY"): MACHINES,
    ("docs/ray.md", "sottovoce data split"): MACHINES,
    ("docs/flower.md", "python3 -m venv"): INDEX,
    ("docs/flower.md", "flower-superlink"): MACHINES,
    ("docs/flower.md", "flwr"): MACHINES,
    ("docs/flower.md", "flower-supernode"): MACHINES,
    ("docs/flower.md", "sottovoce flower"): MACHINES,
}
COMMAND: Final = re.compile(r"(?:PYTHONPATH=\S+ )?(?:sottovoce|pip|make|podman|flwr|ray) ")
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE: Final = re.compile(r"# (\w+\.(?:py|toml))\n")


def pages() -> list[str]:
    """Return README, the first page, the tutorials and the how-to pages, as the site lists them."""
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    section = site.split("- Tutorials:")[1].split("- Reference:")[0]
    return [
        "README.md",
        "docs/index.md",
        *(f"docs/{page}" for page in re.findall(r": (\S+\.md)$", section, re.MULTILINE)),
    ]


def blocks(page: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, language and text of each fenced block of a page; refuse commands that stand in no such block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    rest = text
    for found in FENCE.finditer(text):
        rest = rest.replace(found.group(), "\n" * found.group().count("\n"))
        yield text[: found.start()].count("\n") + 2, found.group(1), found.group(2)
    for number, line in enumerate(rest.splitlines(), start=1):
        if line.startswith("    ") and COMMAND.match(line.strip()):
            raise SystemExit(f"{page}:{number}: a command outside of a ```sh block would not be run: {line.strip()}")


def reason(page: str, block: str) -> tuple[str, str] | None:
    """Return the entry of NOT_RUN that a block falls under."""
    return next((entry for entry in NOT_RUN if entry[0] == page and block.startswith(entry[1])), None)


def play(page: str, folder: Path, commands: str) -> tuple[int, list[str]]:
    """Run the blocks of one page in its folder; return how many were run and what went wrong."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SOTTOVOCE_DATA")}
    environment |= {"PATH": f"{commands}:{environment['PATH']}", "COLUMNS": "80", "HOME": str(folder / ".home")}
    played, wrong = 0, []
    for line, language, block in blocks(page):
        if (name := FILE.match(block)) and language in ("python", "toml"):
            (folder / name.group(1)).write_text(block, encoding="utf-8")
        if language != "sh" or reason(page, block):
            continue
        played += 1
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            printed, code = process.communicate(timeout=LONGEST)[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, code = process.communicate()[0], f"none after {LONGEST} s"
        if code or "Traceback" in printed:
            wrong.append(f"{page}:{line}: exit code {code}\n{block}{printed[-2000:]}")
    return played, wrong


def main(commands: str, asked: list[str]) -> int:
    """Run the blocks of all pages, or of those that are named."""
    entries = {
        entry
        for page in pages()
        for _, language, block in blocks(page)
        if language == "sh" and (entry := reason(page, block))
    }
    if unused := set(NOT_RUN) - entries:
        raise SystemExit(f"NOT_RUN names blocks that no page has: {sorted(unused)}")
    bad = []
    for page in asked or pages():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory() as folder:
            played, wrong = play(page, Path(folder), str(Path(commands).resolve()))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{page}: {played} blocks, {len(wrong)} wrong, {seconds:.0f} CPU s", flush=True)
        bad += wrong
    print(*bad, sep="\n", file=sys.stderr)
    return min(len(bad), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
