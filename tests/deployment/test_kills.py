"""kill -9 of the helper, and of the server, at every step of a count between machines: what left was charged."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from sottovoce.config.experiment import parse
from sottovoce.deployment.helper.keys import add_helper
from sottovoce.deployment.helper.service import open_desk
from sottovoce.deployment.keys import sign_roster
from sottovoce.privacy.ledger import verify
from tests.deployment.lives import World, helper_lives, server_life
from tests.deployment.test_trial import tables
from tests.secagg.ballots.stage import without_base_transfers

ROUNDS = 130
BEFORE = ("roll", "confirm", "transfer", "check", "words", "compare")
THEN = ("asked", "answered", "sent")
STEPS = ("before the write", "within the line", "before the sync", "after the sync")
HELPER = (
    *("run file before", "run file after"),
    *(f"{kind} {when}" for kind in (*BEFORE, "greet", "begin", "hello", "keys") for when in THEN),
    *(f"{line} {step}" for line in ("ballots", "charge") for step in STEPS),
    *(f"compare {step}" for step in STEPS[:3]),
    *("prove asked", "prove answered", "settle asked", *(f"settled {step}" for step in STEPS[:3])),
    *("prove sent", "settled after the sync", "open asked", "settle answered"),  # each first leaves a comparison open
    *("compare after the sync", "settle sent", "open answered", "open sent"),
)

SERVER = (
    *(f"{kind} {when}" for kind in ("begin", "hello", "keys", *BEFORE, "greet") for when in ("asks", "heard")),
    *(f"{kind} mark {when}" for kind in ("confirm", "compare", "open") for when in ("before", "after")),
    *("prove asks", "prove heard", "settle asks", "settle heard"),
    *("prove mark before", "settle mark before", "prove mark after", "settle mark after"),
    *(f"{line} {step}" for line in ("draws", "charge") for step in STEPS),
    *("open asks", "open heard", "begin mark before", "begin mark after"),  # a mark that was lost is written at begin
    *("opened before", "opened after", "record before", "record after", "checkpoint after"),
)
ORDER = (  # in which a helper passes these places
    *(f"{kind} {when}" for kind in ("greet", "begin", "hello", "keys", "roll") for when in THEN),
    *("confirm asked", *(f"ballots {step}" for step in STEPS), "confirm answered", "confirm sent"),
    *(f"{kind} {when}" for kind in ("transfer", "check", "words", "compare") for when in THEN),
    *("prove asked", *(f"compare {step}" for step in STEPS), "prove answered", "prove sent"),
    *("open asked", *(f"charge {step}" for step in STEPS), "open answered", "open sent"),
)


@pytest.fixture
def world(fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return a federation whose processes are forked from here, and go away in the end."""
    add_helper(fed, "notary")
    sign_roster(fed)
    without_base_transfers(monkeypatch)
    told = tables(
        clients=3,
        rounds=ROUNDS,
        aggregation={"secure": "ballot"},
        privacy={"noise_multiplier": 9.0, "delta": 1e-2, "clip_norm": 0.5},
        engine={"max_aborts": 1000},
    )
    told["experiment"]["evaluate_every"] = ROUNDS
    folder = tmp_path / "world"
    folder.mkdir()
    experiment = parse(told)
    open_desk(experiment, fed / "helper", tmp_path / "solved", simulated=False)[0].account.close()  # solved once
    yield World(fed, folder, experiment)


def the_truth(world: World) -> None:
    """Assert what holds whoever was killed, and wherever."""
    account = world.account()
    begun = [line["round"] for line in account if line["kind"] == "ballots"]
    charged, problem = verify(world.state / "helper-ledger.jsonl")
    ours = verify(world.out / "ledger.jsonl")
    rounds = [json.loads(line)["round"] for line in (world.out / "rounds.jsonl").read_text().splitlines()]
    sessions: dict[str, list[int]] = {}
    for line in account:
        if line["kind"] == "ballots":
            sessions.setdefault(line["session"], []).append(line["counter"])

    assert (world.out / "summary.json").exists(), world.errors()
    assert rounds == list(range(1, ROUNDS + 1))
    assert problem is None and ours.problem is None
    assert all(before < after for before, after in pairwise(begun))  # no round is begun twice
    assert set(charged) <= set(begun) and len(set(charged)) == len(charged)
    assert set(charged) <= set(ours.charged) and len(set(ours.charged)) == len(ours.charged)
    assert all(all(each) for each in (told[2:] for told in world.seen("helper left"))) and world.seen("helper left")
    assert all(told[1] for told in world.seen("server opens")) and world.seen("server opens")
    for side in ("server", "helper"):
        rows = [tuple(told) for told in world.seen(f"{side} transfers")]
        assert len(set(rows)) == len(rows) > 0  # no row of any session twice
    assert all(before < after for reach in sessions.values() for before, after in pairwise(reach))
    for number in range(3):
        node = verify(world.folder / f"node{number}" / "ledger.jsonl")
        assert node.problem is None and len(set(node.charged)) == len(node.charged)
        assert set(begun) <= set(node.charged)


@contextmanager
def helpers(world: World, places: tuple[str, ...] = ()) -> Iterator[None]:
    """Let helpers live while the block lasts."""
    pid = helper_lives(world, places)
    try:
        yield
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_run_whose_helper_is_killed_at_every_step_ends_with_two_true_accounts(world: World) -> None:
    with helpers(world, HELPER):
        ended = [server_life(world) for _ in range(3)]
    said = world.errors()
    account, operator = world.account(), world.operator()
    failed = [round_ for round_, line in operator.items() if "reason" in line]
    begun = {line["round"] for line in account if line["kind"] == "ballots"}
    charged = set(verify(world.state / "helper-ledger.jsonl").charged)

    the_truth(world)
    assert said.count("Error: the helper at") == 2 and ended[2] == 0  # killed before the first round: --resume
    assert world.diary("helper").count("dead") == len(HELPER)
    passed = {place for place in world.diary("helper") if not place.startswith("torn")}
    passed -= {f"countersign {step}" for step in ("asked", "answered", "sent")}  # after the last round
    assert passed == {*HELPER, "listening", "dead"}  # these are all steps
    for place, round_ in world.seen("helper died"):
        at = ORDER.index(place) if place in ORDER else -1  # what was written and not synchronised outlives the process
        assert (round_ in begun) == (at >= ORDER.index("ballots before the sync")), place
        assert (round_ in charged) == (at >= ORDER.index("charge before the sync")), place
    # Where the next round waits for the helper, and none fails:
    waits = ("run file", "greet", "begin asked", "begin answered", "settle asked", "settle answered", "settled")
    waits += ("open sent",)
    fail = sum(not place.startswith(waits) for place in HELPER)
    assert fail <= len(failed) <= fail + 1  # after "open sent" the server may have looked before the helper was dead
    assert sum(line["kind"] == "torn" for line in account) == 4  # each counts as a round that was charged
    assert all(operator[round_]["senders"] == 3 for round_ in operator)
    assert set(operator) - set(failed) <= charged  # every other round was counted
    assert set(verify(world.out / "ledger.jsonl").charged) == set(operator)  # and nobody sees which ones failed


def test_a_run_whose_server_is_killed_at_every_step_ends_with_two_true_accounts(world: World) -> None:
    with helpers(world):
        first = server_life(world, "greet heard")
        assert os.WIFSIGNALED(first) and not world.out.exists()
        ended = {place: server_life(world, place) for place in SERVER}
        last = server_life(world)

    assert not [place for place, status in ended.items() if not os.WIFSIGNALED(status)]
    assert last == 0
    the_truth(world)
    operator = world.operator()
    void = {round_ for round_, line in operator.items() if "void" in line}
    charged = set(verify(world.state / "helper-ledger.jsonl").charged)
    assert set(operator) - void <= charged  # a round that was not open at a kill was counted
    assert 0 < len(charged & void) <= 6  # open heard, its marks, the record: charged, and void all the same
    passed = {place for place in world.diary("server") if not place.startswith(("torn", "countersign"))}
    assert passed == {*SERVER, "dead"}  # countersigning comes after the last round
