"""C4: operator.jsonl, environment.json, preprocessing.json and roster.newest were not looked at when a run went on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sottovoce.core.errors import InputError, PrivacyError, RunError, SottovoceError
from sottovoce.deployment.party import Identity
from sottovoce.runs.loop import run
from tests.attacks.test_c2_damaged_checkpoint import DEPLOYED, StopError, deploy, stop_after, stopped
from tests.deployment.conftest import _made as _made
from tests.deployment.conftest import fed as fed
from tests.runs.small import small

PRIVATE = {"noise_multiplier": 2.0, "delta": 1e-2, "clip_norm": 0.5}
OFTEN = {"rounds": 8, "checkpoint_every": 2}
SIMULATED = small(experiment=OFTEN, privacy=PRIVATE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the folder of a private simulation that was stopped after round 5, one after its checkpoint."""
    with pytest.raises(StopError):
        run(SIMULATED, tmp_path / "run", observe=stop_after(5))
    return tmp_path / "run"


def drop_a_round(file: Path) -> None:
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:1], *lines[2:]]))


def alter_a_round(file: Path) -> None:
    records = [json.loads(line) for line in file.read_text().splitlines()]
    records[1]["seconds" if "seconds" in records[1] else "round_"] = 12345.0
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def swap_two_rounds(file: Path) -> None:
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([lines[1], lines[0], *lines[2:]]))


@pytest.mark.parametrize("name", ["operator.jsonl", "rounds.jsonl"])
@pytest.mark.parametrize("change", [drop_a_round, alter_a_round, swap_two_rounds, Path.unlink])
@pytest.mark.parametrize("between_machines", [False, True])
def test_records_that_were_changed_after_the_checkpoint_are_refused(
    change: Callable[[Path], None], name: str, between_machines: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = stopped(tmp_path / "deployed") if between_machines else request.getfixturevalue("path")
    change(folder / name)

    with pytest.raises(RunError, match=r"operator\.jsonl"):
        if between_machines:
            deploy(folder, resume=True)
        else:
            run(SIMULATED, folder, resume=True)


def set_environment(folder: Path, **changes: Any) -> None:
    file = folder / "environment.json"
    told = json.loads(file.read_text())
    told["packages"] |= changes.pop("packages", {})
    file.write_text(json.dumps(told | changes))


@pytest.mark.parametrize(
    "change",
    [{"packages": {"numpy": "1.0"}}, {"packages": {"sottovoce": "0.0.1"}}, {"machine": "vax"}, {"trainer": "x"}],
)
def test_charged_rounds_are_not_repeated_on_another_machine_or_version(change: dict[str, Any], path: Path) -> None:
    """Two sums with the same noise and updates that differ: their difference has no noise."""
    set_environment(path, **change)

    with pytest.raises(PrivacyError, match="rounds 5 to 5 would be repeated with the same noise and other updates"):
        run(SIMULATED, path, resume=True)


def test_where_no_charged_round_is_repeated_another_version_is_said_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run"
    plain = small(experiment=OFTEN)
    with pytest.raises(StopError):
        run(plain, path, observe=stop_after(5))
    set_environment(path, packages={"numpy": "1.0"})

    run(plain, path, resume=True)

    assert "another version or kind of numpy" in caplog.text


@pytest.mark.parametrize("name", ["environment.json", "preprocessing.json"])
@pytest.mark.parametrize("text", ["", "[]", "{", '"x"', "[" * 100_000])
@pytest.mark.parametrize("between_machines", [False, True])
def test_a_damaged_description_is_one_sentence(
    name: str, text: str, between_machines: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = stopped(tmp_path / "deployed") if between_machines else request.getfixturevalue("path")
    (folder / name).write_text(text)

    with pytest.raises(SottovoceError, match=rf"{name} is damaged.*restore it"):
        if between_machines:
            deploy(folder, resume=True)
        else:
            run(SIMULATED, folder, resume=True)


def test_a_run_does_not_go_on_with_other_inputs(path: Path) -> None:
    file = path / "preprocessing.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"classes": 99}))

    with pytest.raises(InputError, match="describes other inputs than the data of this experiment now"):
        run(SIMULATED, path, resume=True)


def test_a_description_of_inputs_that_is_gone_is_written_again(path: Path) -> None:
    before = (path / "preprocessing.json").read_bytes()
    (path / "preprocessing.json").unlink()

    run(SIMULATED, path, resume=True)

    assert (path / "preprocessing.json").read_bytes() == before


def test_the_run_of_another_federation_does_not_go_on_by_a_changed_description(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    for change in ({"keys": "0" * 64}, {"run": "zz"}, {"run": None}):
        text = (folder / "environment.json").read_text()
        set_environment(folder, **change)
        with pytest.raises(SottovoceError):
            deploy(folder, resume=True)
        (folder / "environment.json").write_text(text)
    assert deploy(folder, resume=True)["rounds"] == DEPLOYED.experiment.rounds


def test_a_machine_that_has_taken_part_does_not_forget_which_roster_is_the_newest(fed: Path) -> None:
    home = fed / "nodes" / "oslo"
    used = Identity.read(home).read_roster()
    (home / "state" / "0123456789abcdef").mkdir(parents=True)
    newest = home / "roster.newest"
    for damage in (lambda: newest.unlink(), lambda: newest.write_text("x"), lambda: newest.write_text("")):
        damage()
        with pytest.raises(InputError, match=f"echo {used.revision} {used.digest.hex()} > ") as refused:
            Identity.read(home).read_roster()
        assert "roster.newest" in str(refused.value)

    newest.write_text(f"{used.revision} {used.digest.hex()}\n")
    assert Identity.read(home).read_roster() == used


def test_a_machine_that_never_took_part_needs_no_newest_roster(fed: Path) -> None:
    home = fed / "nodes" / "turin"
    (home / "roster.newest").unlink(missing_ok=True)

    assert Identity.read(home).read_roster().entries
    assert (home / "roster.newest").exists()
