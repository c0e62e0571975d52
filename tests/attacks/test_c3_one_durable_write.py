"""C3: files were written in nine ways: some skipped the disk, some the folder, some narrowed secrets afterwards."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sottovoce.core import files
from sottovoce.core.files import PRIVATE, new_folder, replace_file, replacing
from sottovoce.secagg import RoundMark

SOURCES = Path(files.__file__).parents[1]
# A cache of what can be read again, and downloads that are compared with a checksum when they are used.
# What is made again: copies of what is elsewhere, and the operator's view of a run that goes on.
CACHES = ("data/cache.py", "data/download.py", "deployment/status.py")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the order in which files are made, synchronised and renamed."""
    made: list[str] = []

    def watch(name: str, told: Callable[..., str]) -> None:
        inner = getattr(os, name)

        def watched(*given: object, **more: object) -> object:
            made.append(told(*given))
            return inner(*given, **more)

        monkeypatch.setattr(os, name, watched)

    watch("fsync", lambda descriptor: "sync " + Path(f"/proc/self/fd/{descriptor}").readlink().name)
    watch("replace", lambda old, new: f"rename to {Path(new).name}")
    watch("rename", lambda old, new: f"rename to {Path(new).name}")
    return made


def test_a_file_is_on_disk_before_it_has_its_name_and_the_folder_after(tmp_path: Path, calls: list[str]) -> None:
    home = tmp_path / "home"
    home.mkdir()

    replace_file(home / "a", b"1")

    assert calls == [f"sync .a.{os.getpid()}.new", "rename to a", "sync home"]
    assert list(home.iterdir()) == [home / "a"]


def test_a_folder_is_on_disk_with_all_that_is_in_it_before_it_has_its_name(tmp_path: Path, calls: list[str]) -> None:
    home = tmp_path / "home"
    home.mkdir()

    with new_folder(home / "run") as draft:
        (draft / "inner").mkdir()
        (draft / "inner" / "a").write_text("1")

    assert set(calls[:3]) == {"sync inner", "sync a", f"sync .run.{os.getpid()}.new"}
    assert calls[3:] == ["rename to run", "sync home"]


def test_a_mark_is_written_the_same_way(tmp_path: Path, calls: list[str]) -> None:
    RoundMark(tmp_path / "mark").before_mask(7)

    assert calls == [f"sync .mark.{os.getpid()}.new", "rename to mark", f"sync {tmp_path.name}"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    replace_file(path, "old")

    with pytest.raises(OSError, match="full"), replacing(path) as draft:
        draft.write_text("ne")
        raise OSError("the disk is full")

    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_draft_of_a_killed_process_goes_away_and_one_of_a_living_process_stays(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, living = (tmp_path / f".a.{number}.new" for number in (ended.pid, os.getppid()))
    for path in (dead, living, tmp_path / ".a.txt.new", tmp_path / f".ab.{ended.pid}.new"):
        path.write_text("half")

    replace_file(tmp_path / "a", b"1")

    assert {path.name for path in tmp_path.iterdir()} == {"a", living.name, ".a.txt.new", f".ab.{ended.pid}.new"}


def test_a_secret_is_private_from_its_first_moment_and_others_follow_the_umask(tmp_path: Path) -> None:
    modes = []
    before = os.umask(0)
    try:
        with replacing(tmp_path / "secret", PRIVATE) as draft:
            modes.append(draft.stat().st_mode & 0o777)
        os.umask(0o027)
        replace_file(tmp_path / "public", b"")
    finally:
        os.umask(before)

    assert modes == [0o600] and (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "public").stat().st_mode & 0o777 == 0o640


def _called(tree: ast.AST) -> set[str]:
    return {
        node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }


def test_nothing_else_puts_a_file_into_place_or_narrows_it_afterwards() -> None:
    """Names alone cannot tell `str.replace` from `Path.replace`: that one has a single argument."""
    elsewhere = []
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        moves = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "replace"
            and len(node.args) == 1
            and not node.keywords
        ]
        if moves or _called(tree) & {"chmod", "fchmod", "write_text", "mkstemp", "NamedTemporaryFile"}:
            elsewhere.append(name)

    assert [name for name in elsewhere if name not in ("core/files.py", *CACHES)] == ["data/machine_parts.py"], (
        "machine_parts.py fills a new folder, which `new_folder` brings to the disk"
    )
