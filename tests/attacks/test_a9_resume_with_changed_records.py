"""A run that is resumed with other records says so, and what it keeps for that tells nobody anything."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.overrides import Given
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.data import Shards
from sottovoce.runs.fingerprint import secret_file
from sottovoce.runs.loop import run
from tests.runs.small import small

PRIVATE = {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 1.0}


def write(path: Path, flipped: int | None = None) -> Path:
    """Write the records; `flipped` is the one whose label is another than before."""
    rng = np.random.default_rng(5)
    x, y = rng.random((130, 4), np.float32), rng.integers(0, 3, 130)
    if flipped is not None:
        y[flipped] = (y[flipped] + 1) % 3
    np.savez(path, x_train=x[:100], y_train=y[:100], x_test=x[100:], y_test=y[100:])
    return path


class KilledError(Exception):
    """What a kill looks like to a run."""


def begin(experiment: Any, path: Path, **keys: Any) -> None:
    """Play two rounds and be killed."""

    def observe(record: dict[str, Any]) -> None:
        if record["round"] == 3:
            raise KilledError

    with pytest.raises(KilledError):
        run(experiment, path, observe=observe, **keys)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.mark.parametrize(("private", "refusal"), [(True, PrivacyError), (False, InputError)])
@pytest.mark.parametrize("flipped", [0, 99, 129], ids=["first", "last", "test record"])
def test_a_changed_label_is_noticed(
    tmp_path: Path, state: Path, private: bool, refusal: type[InputError], flipped: int
) -> None:
    tables: dict[str, Any] = {"privacy": PRIVATE} if private else {}
    experiment = small(data={"source": str(write(tmp_path / "own.npz")), "classes": 3}, **tables)
    begin(experiment, tmp_path / "run")
    kept = (tmp_path / "run" / "rounds.jsonl").read_bytes()

    write(tmp_path / "own.npz", flipped)
    with pytest.raises(refusal, match="was begun with other records"):
        run(experiment, tmp_path / "run", resume=True)

    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == kept
    write(tmp_path / "own.npz")
    assert run(experiment, tmp_path / "run", resume=True)["rounds"] == 6


def test_a_record_that_went_to_another_client_is_noticed(tmp_path: Path, state: Path) -> None:
    from sottovoce.data import load

    experiment, digits = small(), load("digits")
    order = np.arange(digits.records)
    owners = Shards(order, np.linspace(0, digits.records, 21).astype(np.int64))
    begin(experiment, tmp_path / "run", given=Given(dataset=digits, partition=owners))

    swapped = order.copy()
    swapped[[0, -1]] = swapped[[-1, 0]]
    with pytest.raises(InputError, match="was begun with other records"):
        moved = Given(dataset=digits, partition=Shards(swapped, owners.offsets))
        run(experiment, tmp_path / "run", resume=True, given=moved)


def test_the_key_stays_here_and_what_is_written_differs_from_run_to_run(tmp_path: Path, state: Path) -> None:
    experiment = small(data={"source": str(write(tmp_path / "own.npz")), "classes": 3}, experiment={"rounds": 1})
    for name in ("one", "two"):
        run(experiment, tmp_path / name)
    told = [json.loads((tmp_path / name / "checkpoint" / "records.json").read_text()) for name in ("one", "two")]

    assert told[0]["mac"] != told[1]["mac"]
    key = secret_file().read_bytes()
    assert len(key) == 32 and stat.S_IMODE(secret_file().stat().st_mode) == 0o600
    assert secret_file().is_relative_to(state)
    for name in ("one", "two"):
        written = b"".join(file.read_bytes() for file in (tmp_path / name).rglob("*") if file.is_file())
        assert key not in written and key.hex().encode() not in written
        assert stat.S_IMODE((tmp_path / name / "checkpoint" / "records.json").stat().st_mode) == 0o600


def test_without_the_key_nobody_says_that_nothing_changed(tmp_path: Path, state: Path) -> None:
    experiment = small(data={"source": str(write(tmp_path / "own.npz")), "classes": 3}, privacy=PRIVATE)
    begin(experiment, tmp_path / "run")
    key = secret_file().read_bytes()
    secret_file().write_bytes(key[::-1])  # a hash that anybody could compute would still fit
    with pytest.raises(PrivacyError, match="was begun with other records"):
        run(experiment, tmp_path / "run", resume=True)
    shutil.rmtree(state)

    with pytest.raises(PrivacyError, match=r"another machine, or .* is gone"):
        run(experiment, tmp_path / "run", resume=True)


def test_a_machine_without_a_place_for_the_key_plays_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    experiment = small()
    begin(experiment, tmp_path / "run")

    assert run(experiment, tmp_path / "run", resume=True)["rounds"] == 6


@pytest.mark.parametrize("private", [True, False])
def test_a_fingerprint_that_is_gone_is_no_leave_to_repeat_charged_rounds(
    private: bool, tmp_path: Path, state: Path
) -> None:
    experiment = small(**({"privacy": PRIVATE} if private else {}))
    begin(experiment, tmp_path / "run")
    (tmp_path / "run" / "checkpoint" / "records.json").unlink()

    if private:
        with pytest.raises(PrivacyError, match=r"records.json is gone"):
            run(experiment, tmp_path / "run", resume=True)
    else:
        assert run(experiment, tmp_path / "run", resume=True)["rounds"] == 6
