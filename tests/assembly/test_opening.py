"""Round 0 between machines: the vote for the coordinates and the warm start, which every node answers once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.assembly.test_deployed_fronts import SCATTERING, private
from tests.deployment.wired import alone_and_together
from tests.runs.machines import federation
from tests.runs.played import Tables, ledger, merged, model

from sottovoce.core.errors import PrivacyError, RunError
from sottovoce.federation.engine import Request
from sottovoce.privacy import Ledger
from sottovoce.runs.folder import read_operator, read_rounds
from sottovoce.runs.loop import run

CLIENTS = 4
VOTE: Tables = {"scheme": {"name": "fl-top", "ratio": 0.1}, "privacy": {"vote_noise_multiplier": 1.5}}
WARM: Tables = {"scheme": {"warm_start": "fl-once"}, "privacy": {"warm_noise_multiplier": 1.0}}
WHITEN: Tables = {"model": {"whiten": True}}
CASES: dict[str, Tables] = {
    "whitening": WHITEN,
    "whitening behind a front": merged(SCATTERING, WHITEN, {"model": {"whiten_dims": 12}}),
    "vote": VOTE,
    "warm start": WARM,
    "warm start behind a front": merged(SCATTERING, WARM, {"cohort": {"sample_rate": "3/4", "sampling": "fixed"}}),
}


def stop_in(round_: int, phase: str) -> Any:
    """Return a way to lose answers that stops the server while a round is open."""

    def lost(request: Request, client: int) -> bool:
        if (request.round, request.phase) == (round_, phase):
            raise KeyboardInterrupt
        return False

    return lost


@pytest.mark.parametrize("name", CASES)
def test_round_0_between_machines_finds_what_a_simulation_finds(name: str, tmp_path: Path) -> None:
    experiment = private(CASES[name])
    alone = run(experiment, tmp_path / "alone")
    together = run(experiment, tmp_path / "together", parties=federation(experiment, simulated=True)[0])

    assert np.array_equal(model(tmp_path / "alone"), model(tmp_path / "together"))
    assert read_rounds(tmp_path / "alone") == read_rounds(tmp_path / "together")
    assert ledger(tmp_path / "alone") == ledger(tmp_path / "together")
    assert {key: together[key] for key in alone} == alone


def test_a_warm_start_without_privacy_is_equal_too(tmp_path: Path) -> None:
    experiment = private(WARM)
    tables = {**experiment.tables(), "aggregation": {}}
    del tables["privacy"]
    experiment = type(experiment).model_validate(tables)
    run(experiment, tmp_path / "alone")
    run(experiment, tmp_path / "together", parties=federation(experiment, simulated=True)[0])

    assert np.array_equal(model(tmp_path / "alone"), model(tmp_path / "together"))


@pytest.mark.parametrize("name", ["vote", "warm start", "whitening"])
def test_nodes_behind_a_broker_answer_round_0_and_go_on(name: str, tmp_path: Path) -> None:
    experiment = private(CASES[name])

    alone, together = alone_and_together(experiment, tmp_path)

    assert np.array_equal(alone, together)


@pytest.mark.parametrize("name", ["vote", "warm start", "whitening"])
def test_a_resumed_server_keeps_what_round_0_found_and_asks_nobody_again(name: str, tmp_path: Path) -> None:
    experiment, path = private(CASES[name]), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(experiment, path, parties=federation(experiment, lost=stop_in(1, "advertise"))[0])
    found = (path / "checkpoint" / "opening.npz").read_bytes()
    deployed, engines = federation(experiment)
    summary = run(experiment, path, resume=True, parties=deployed)

    assert {round_ for round_, _, _ in engines[0].requests} == {2}
    assert (path / "checkpoint" / "opening.npz").read_bytes() == found
    assert ledger(path).count(("charge", 0)) == 1
    assert [line["round"] for line in read_operator(path)] == [0, 1, 2]
    assert summary[name.replace(" ", "_")]["epsilon"] > 0


@pytest.mark.parametrize("phase", ["advertise", "unmask"])
def test_a_round_0_that_was_open_when_the_server_stopped_is_not_played_again(phase: str, tmp_path: Path) -> None:
    experiment, path = private(VOTE), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(experiment, path, parties=federation(experiment, lost=stop_in(0, phase))[0])
    deployed, engines = federation(experiment)
    with pytest.raises(RunError, match=r"stopped while the message before round 1 was open; clients send it once"):
        run(experiment, path, resume=True, parties=deployed)

    assert not engines[0].requests


@pytest.mark.parametrize("name", ["vote", "warm start", "whitening"])
def test_a_round_0_without_quorum_ends_the_run_before_anybody_trains_on_noise(name: str, tmp_path: Path) -> None:
    def lost(request: Request, client: int) -> bool:
        return request.phase == "mask" and client > 0

    experiment = private(CASES[name])
    deployed, engines = federation(experiment, lost=lost)
    with pytest.raises(RunError, match="the message before round 1 failed"):
        run(experiment, tmp_path / "run", parties=deployed)

    assert {round_ for round_, _, _ in engines[0].requests} == {0}
    assert not (tmp_path / "run" / "checkpoint" / "opening.npz").exists()


def test_a_client_pays_for_round_0_once_and_measurements_do_not_pay_for_it(tmp_path: Path) -> None:
    def opened(name: str, *, opening: int | None) -> Ledger:
        return Ledger(tmp_path / name, digest="d", limit=2, deployment=True, before=4, opening=opening)

    with opened("both", opening=1) as client:
        client.charge(0)
        assert not client.affords(0)
        with pytest.raises(PrivacyError, match="round 0 would exceed the budget: 1 of 1 are spent"):
            client.charge(0)
        for round_ in (1, 1, 2):
            client.charge(-round_)
        assert not client.affords(-3)
        assert client.spent == 0
    with opened("none", opening=0) as client:
        assert not client.affords(0)
        assert client.affords(-1)
