"""A round is masked once, whatever happens to the client between the mark on disk and the sending of its vector."""

from __future__ import annotations

import os
import pickle
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.secagg.conftest import key

from sottovoce.core import wire
from sottovoce.core.errors import SecAggError
from sottovoce.secagg import KeyedEntropy, Registrar, RoundClient, RoundMark, StandingClient

Factory = Any


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_mark_only_rises(tmp_path: Path, on_disk: bool) -> None:
    mark = RoundMark(tmp_path / "round") if on_disk else RoundMark()
    assert mark.highest == -1
    for round_ in (0, 3, 7):
        mark.before_mask(round_)
        assert mark.highest == round_
        for old in range(round_ + 1):
            with pytest.raises(
                SecAggError, match=f"round {old} is refused: round {round_} was masked, and rounds only"
            ):
                mark.before_mask(old)
    assert not on_disk or RoundMark(tmp_path / "round").highest == 7


def test_the_file_holds_the_number_and_nothing_else(tmp_path: Path) -> None:
    RoundMark(tmp_path / "round").before_mask(12)
    assert (tmp_path / "round").read_bytes() == b"12\n"


@pytest.mark.parametrize("damage", [b"", b"12", b"x\n", b"-3\n", b"\xff\n"])
def test_a_damaged_mark_lets_no_round_pass(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "round"
    path.write_bytes(damage)
    with pytest.raises(SecAggError, match="the mark of the highest masked round"):
        RoundMark(path).before_mask(99)
    assert path.read_bytes() == damage


KILLED = """
import os, pickle, signal, sys
from pathlib import Path
from sottovoce.secagg import RoundMark
client, request, words = pickle.loads(Path(sys.argv[1]).read_bytes())
before_mask = RoundMark.before_mask
def killed(self, round_):
    before_mask(self, round_)
    os.kill(os.getpid(), signal.SIGKILL)
RoundMark.before_mask = killed
reply = client.mask(request, words)
print("sent", flush=True)
"""


def run_and_kill(state: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", KILLED, str(state)], capture_output=True, text=True, check=False)


def test_a_client_killed_between_the_mark_and_the_sending_never_masks_that_round_again(
    cohort: Factory, tmp_path: Path
) -> None:
    round_ = cohort(4)
    round_.clients[5] = RoundClient(
        round_.session, 5, round_.signing[5], KeyedEntropy(key(5)), RoundMark(tmp_path / "round")
    )
    round_.until("mask")
    backup = pickle.dumps((round_.clients[5], round_.requests[5], round_.words[5]))
    state = tmp_path / "state"
    state.write_bytes(backup)

    killed = run_and_kill(state)

    assert killed.returncode == -signal.SIGKILL and not killed.stdout, killed.stderr
    assert (tmp_path / "round").read_bytes() == b"7\n"
    restored, request, words = pickle.loads(backup)
    with pytest.raises(SecAggError, match="round 7 was masked, and rounds only rise"):
        restored.mask(request, words)
    with pytest.raises(SecAggError, match="round 7 was masked, and rounds only rise"):
        RoundClient(round_.session, 5, round_.signing[5], mark=RoundMark(tmp_path / "round"))
    round_.step("mask", gone=[5]), round_.step("consistency"), round_.step("unmask")
    assert np.array_equal(round_.server.total(), round_.expected([8, 11, 14]))


def standing(cohort: Any, mark: RoundMark, first: int = 0) -> StandingClient:
    """Return client 5 of a cohort of four, enrolled."""
    session = replace(cohort.session, round=first, key_life="session")
    clients = {
        c: StandingClient(session, c, cohort.signing[c], KeyedEntropy(key(c)), mark if c == 5 else None)
        for c in session.clients
    }
    requests, _ = Registrar(session).collect("advertise", {c: client.advertise() for c, client in clients.items()})
    clients[5].introduce(requests[5])
    return clients[5]


def vector(cohort: Any, message: bytes) -> Any:
    length, bits = cohort.session.length, cohort.session.bits
    return wire.unpack(message[-64 - wire.frame_size(length, bits) : -64], length=length, bits=bits)


def test_a_restored_standing_client_masks_no_round_twice_and_enrols_again(cohort: Factory, tmp_path: Path) -> None:
    """Two vectors under the same masks show their difference: the attack works on a client without a mark on disk."""
    base, words = cohort(4), cohort(4).words
    forgetful = pickle.dumps(standing(base, RoundMark()))
    first, second = (pickle.loads(forgetful).mask(1, words[c]) for c in (5, 8))
    shown = (vector(base, first) - vector(base, second)) & np.uint32(0x1FFF)
    assert np.array_equal(shown, (words[5] - words[8]) & np.uint32(0x1FFF))

    backup = pickle.dumps(standing(base, RoundMark(tmp_path / "round")))
    pickle.loads(backup).mask(1, words[5])
    restored = pickle.loads(backup)
    for round_ in (1, 2):
        with pytest.raises(SecAggError, match=r"round 1 was masked, but these keys are of round 1: .*; enrol anew"):
            restored.mask(round_, words[8])
    with pytest.raises(SecAggError, match="round 1 is refused: round 1 was masked"):
        standing(base, RoundMark(tmp_path / "round"))
    assert standing(base, RoundMark(tmp_path / "round"), first=1).mask(2, words[5])


def test_a_refused_mask_leaves_the_mark_where_it_was(cohort: Factory) -> None:
    round_ = cohort(4)
    mark = RoundMark()
    round_.clients[5] = RoundClient(round_.session, 5, round_.signing[5], KeyedEntropy(key(5)), mark)
    round_.until("mask")
    with pytest.raises(SecAggError):
        round_.clients[5].mask(round_.requests[8], round_.words[5])
    assert mark.highest == -1
    round_.step("mask")
    assert mark.highest == 7


def test_file_and_folder_are_on_disk_before_the_mark_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, rename = os.fsync, Path.replace

    def noted_sync(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def noted_rename(self: Path, target: Path) -> Path:
        done.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_rename)
    RoundMark(tmp_path / "round").before_mask(3)

    assert done == ["file", "rename", "folder"]
