from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sottovoce.core import lock
from sottovoce.core.lock import hold

SOURCES = Path(lock.__file__).parents[1]
HOLDER = """
import os, sys
from sottovoce.core.lock import hold
hold(os.open(sys.argv[1], os.O_RDONLY), wait=True)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_lock_of_another_process_is_seen_and_ends_with_it_however_it_ends(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    place.mkdir() if kind == "folder" else place.touch()
    ours = os.open(place, os.O_RDONLY)
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(place)], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError):
            hold(ours, wait=False)
        other.kill()
        other.wait()
    hold(ours, wait=True)
    os.close(ours)


def test_only_one_module_knows_how_a_system_locks() -> None:
    users = {path.name for path in SOURCES.rglob("*.py") if "fcntl" in path.read_text() or "msvcrt" in path.read_text()}

    assert users == {"lock.py"}
