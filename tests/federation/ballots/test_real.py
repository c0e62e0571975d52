"""The real count against the ideal one, and a helper that is killed at every step."""

from __future__ import annotations

import copy
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.checks.twin import Hand, Played, TwinAccount, few, play, same
from sottovoce.core.errors import SecAggError
from sottovoce.federation.aggregation.aggregator import Total
from sottovoce.federation.aggregation.ballots.account import HELPER_LEDGER
from sottovoce.federation.aggregation.ballots.count import RealCount, counting
from sottovoce.federation.aggregation.ballots.process import HelperProcess
from sottovoce.federation.coding import Terms
from sottovoce.federation.engine import drive
from sottovoce.federation.round import server_round
from sottovoce.schemes import known
from tests.federation.ballots.forked import fork_helpers

SIGNS = {"noise_multiplier": 1.0, "delta": 1e-3}
PRIVATE = {**SIGNS, "clip_norm": 0.5, "unsafe_public": True}


@pytest.fixture(autouse=True)
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_helpers(monkeypatch)


def played(secure: str, scheme: str = "fl-std", **tables: Any) -> Played:
    private = SIGNS if "sign" in scheme else PRIVATE
    return play(few(scheme, **{"privacy": private, "aggregation": {"secure": secure}, **tables}), rounds=2)


@pytest.mark.parametrize("scheme", [name for name in known() if name not in ("fl-once", "sign-sgd")])
def test_the_real_count_is_the_ideal_one_bit_for_bit(scheme: str) -> None:
    ideal, real = played("ideal-ballot", scheme), played("ballot", scheme)

    assert all(total.reason is None for total in real.totals)
    assert same(ideal, real) and not same(ideal, ideal._replace(models=ideal.models[::-1]))
    assert ideal.story == real.story and ideal.charged == real.charged == [1, 2]


@pytest.mark.parametrize("form", ["sign", "stochastic"])
def test_so_it_is_in_every_form_and_with_clients_that_leave(form: str) -> None:
    tables = {"devices": {"leave": [[1, 3, "mask"], [2, 0, "mask"], [2, 5, "mask"]]}}
    both = [
        played("ballot", privacy=PRIVATE, aggregation={"secure": secure, "ballot": form}, **tables)
        for secure in ("ideal-ballot", "ballot")
    ]

    assert same(*both)
    assert [total.senders for total in both[1].totals] == [8, 7]


def test_who_votes_hears_nothing_about_the_others() -> None:
    parts = gather(few(privacy=PRIVATE, aggregation={"secure": "ideal-ballot"}))
    server = stages(protect(parts))[TRAINING].server_side(Hand(parts)).server.with_account(TwinAccount())

    request = next(server_round(server, server.init(parts.start), 1))

    assert {Terms.split(payload)[1].cohort for payload in request.payloads.values()} == {0}


class Play:
    """Rounds of a real count, with something between leader and helper."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.seen: list[str] = []
        self.kill: tuple[int, str, str] | None = None  # round, request, before or after
        self.round = 0
        parts = gather(few(privacy=PRIVATE, aggregation={"secure": "ballot"}))
        self.parts, self.hand = parts, Hand(parts)
        self.ready = stages(protect(parts))[TRAINING].server_side(self.hand)
        answer = HelperProcess.answer

        def watched(process: HelperProcess, kind: str, payload: bytes) -> bytes:
            self.seen.append(kind)
            hit = self.kill is not None and self.kill[:2] == (self.round, kind)
            if hit and self.kill is not None and self.kill[2] == "before" and process.process is not None:
                os.kill(process.process.pid, signal.SIGKILL)
            reply = answer(process, kind, payload)
            if hit and process.process is not None:
                os.kill(process.process.pid, signal.SIGKILL)
                process.close()
                raise SecAggError("the helper is gone; nothing was released")
            return reply

        monkeypatch.setattr(HelperProcess, "answer", watched)

    def play(self, rounds: int) -> list[Total]:
        self.ready.enrol(self.hand)
        self.book = TwinAccount()
        server = self.ready.server.with_account(self.book)
        state, totals = server.init(self.parts.start), []
        with counting(server.aggregator, self.folder):
            for round_ in range(1, rounds + 1):
                self.round = round_
                result = drive(self.hand, server_round(server, state, round_))
                state = result.state
                totals.append(result.total)
        return totals

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / HELPER_LEDGER).read_text().splitlines()]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("request_", ["roll", "confirm", "transfer", "check", "words", "compare", "prove", "open"])
def test_a_helper_killed_at_any_step_leaves_the_truth_and_the_next_round_works(
    request_: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Play(tmp_path, monkeypatch)
    run.kill = (2, request_, when)

    first, second, third = run.play(3)

    assert first.values is not None and third.values is not None
    assert second.values is None and "the helper is gone" in str(second.reason)
    lines = run.lines()
    charged = [line["round"] for line in lines if line["kind"] == "charge"]
    told = {1, 3} | ({2} if request_ == "open" else set())
    assert set(run.book.charged) == told  # the leader's charge comes before it asks for the share
    assert set(charged) == ({1, 2, 3} if (request_, when) == ("open", "after") else {1, 3})
    notes = [line for line in lines if line["kind"] == "ballots"]
    reserved = {line["round"] for line in notes}
    begun = (request_, when) not in (("roll", "before"), ("roll", "after"), ("confirm", "before"))
    assert reserved == ({1, 2, 3} if begun else {1, 3})
    assert notes[0]["session"] != notes[-1]["session"]  # new transfers after the crash
    assert run.seen.count("hello") == 2


def test_a_client_is_counted_no_more_often_than_the_helper_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Play(tmp_path, monkeypatch)
    aggregator = run.ready.server.aggregator
    assert isinstance(aggregator, RealCount)
    plan = copy.copy(aggregator.coding.plan)  # the helper's own copy is stricter than the leader's draws
    object.__setattr__(plan, "max_participations", 1)
    aggregator.coding = replace(aggregator.coding, plan=plan)

    _, second = run.play(2)

    assert second.senders == 0
    assert list(second.failures.values()) == 9 * ["the helper does not count this ballot"]
    notes = [line for line in run.lines() if line["kind"] == "ballots"]
    assert [len(line["clients"]) for line in notes] == [9, 0]
