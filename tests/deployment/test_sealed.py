"""A node's state between processes: sealed, taken in turns, and without secrets once a round has ended."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sottovoce.core.errors import InputError, RunError
from sottovoce.deployment.flower import node_memory
from sottovoce.deployment.flower.node_memory import remembering, taking_turns
from sottovoce.deployment.node.node import Kept, Memory
from sottovoce.federation.client import ClientState

SECRET = b"the mask of a client in round 3"


@dataclass
class Forgetful:
    """A node of which only the memory matters."""

    told: Memory | None = None
    kept: Memory = field(
        default_factory=lambda: Memory("ab", 1, bytes(16), 0, SECRET, Kept(3, {}, ClientState(participations=2)), None)
    )

    def memory(self) -> Memory:
        return self.kept

    def recall(self, memory: Memory) -> None:
        self.told = memory


def remember(folder: Path, node: Any, purpose: bytes = b"run") -> Any:
    with remembering(node, folder, purpose):
        pass
    return node.told


def test_the_next_process_remembers_what_the_last_one_sealed(tmp_path: Path) -> None:
    assert remember(tmp_path, Forgetful()) is None

    told = remember(tmp_path, Forgetful())

    assert told.setup == SECRET and told.seat.state.participations == 2


def test_nothing_in_the_folder_tells_the_secret_and_only_the_owner_may_read_it(tmp_path: Path) -> None:
    remember(tmp_path, Forgetful())

    for file in tmp_path.iterdir():
        assert SECRET not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0


def test_a_state_of_another_experiment_or_key_or_with_another_byte_does_not_open(tmp_path: Path) -> None:
    remember(tmp_path, Forgetful())
    with pytest.raises(RunError, match="does not open with this node's key; delete it"):
        remember(tmp_path, Forgetful(), b"another run")
    whole = (tmp_path / "sealed").read_bytes()
    for changed in (whole[:-1], bytes([whole[0] ^ 1]) + whole[1:], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        (tmp_path / "sealed").write_bytes(changed)
        with pytest.raises(RunError, match="does not open"):
            remember(tmp_path, Forgetful())
    (tmp_path / "seal.key").write_bytes(bytes(31))
    with pytest.raises(InputError, match="must hold 32 bytes"):
        remember(tmp_path, Forgetful())
    (tmp_path / "seal.key").chmod(0o644)
    with pytest.raises(InputError, match="has mode 644, must be 600"):
        remember(tmp_path, Forgetful())


def test_a_state_of_another_version_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(tmp_path, Forgetful())
    monkeypatch.setattr(node_memory, "version", lambda name: "0.0.1")

    assert remember(tmp_path, Forgetful()) is None
    assert remember(tmp_path, Forgetful()).setup == SECRET


def test_a_process_killed_while_it_makes_the_key_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        remember(tmp_path, Forgetful())
    monkeypatch.undo()

    assert not (tmp_path / "seal.key").exists()
    assert remember(tmp_path, Forgetful()) is None


def test_a_node_that_fails_keeps_what_it_remembered_before(tmp_path: Path) -> None:
    remember(tmp_path, Forgetful())
    before = (tmp_path / "sealed").read_bytes()

    with pytest.raises(RuntimeError, match="in the middle"), remembering(Forgetful(), tmp_path, b"run"):  # type: ignore[arg-type]
        raise RuntimeError("in the middle")

    assert (tmp_path / "sealed").read_bytes() == before


def test_two_processes_of_one_node_take_turns(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from sottovoce.deployment.flower.node_memory import taking_turns\n"
        "with taking_turns(pathlib.Path(sys.argv[1])): print('mine', flush=True)"
    )
    with taking_turns(tmp_path):
        other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(timeout=3)

    assert other.communicate(timeout=60)[0] == "mine\n"
