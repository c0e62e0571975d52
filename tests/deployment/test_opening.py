"""One node and round 0: it answers what its own file has, once, and pays for it from an account of its own."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from sottovoce.assembly.elsewhere import gather_without_records
from sottovoce.assembly.parties import Parties
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, ServerSide, stages
from sottovoce.checks.twin import TwinAccount as Account
from sottovoce.config.experiment import Experiment
from sottovoce.core.streams import Secrets
from sottovoce.deployment.node.node import Node
from sottovoce.deployment.node.state import Book
from sottovoce.federation.engine import Request, drive
from sottovoce.federation.engines.mqtt.greeting import Hello
from sottovoce.federation.round import server_round
from sottovoce.federation.stages.evaluation import EVALUATION
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.ledger import verify
from tests.assembly.test_deployed_fronts import CASES, private
from tests.assembly.test_opening import VOTE
from tests.deployment.test_node import CLIENTS, Alter, Table, read, welcome_to
from tests.deployment.wired import RUN, member_of, parts_of, roster_of

VOTED, MEASURED = private(VOTE), private(CASES["measured by nodes"])


def plan_of(experiment: Experiment) -> PrivacyPlan:
    """Return the plan of a deployed run, in which every participation is charged."""
    parties = Parties.of_machines(Secrets(experiment.experiment.seed), roster_of(CLIENTS).keys)
    plan = protect(gather_without_records(experiment, parties)).plan
    assert plan is not None
    return plan


def same(request: Request, client: int, payload: bytes) -> bytes:
    return payload


def around(
    experiment: Experiment, books: dict[int, Book] | None = None, alter: Alter = same
) -> tuple[Table, ServerSide, ServerSide]:
    """Return nodes that were welcomed to the first stage of a run, that stage, and the server as it trains."""
    ready = stages(protect(parts_of(experiment)))[TRAINING].server_side()
    vote = stages(ready.protection).get("vote")
    first = ready if vote is None else vote.server_side()
    held = Table({}, first, alter)
    dealt = gather(experiment)
    for number in range(CLIENTS):
        held.nodes[number] = Node(member_of(experiment, number, dealt), (books or {}).get(number, Book(None, None)))
    welcome(held, first)
    return held, first, ready


def welcome(held: Table, ready: ServerSide) -> None:
    for node in held.nodes.values():
        assert not node.receive(welcome_to(node, ready))


def play(held: Table, ready: ServerSide, round_: int) -> Any:
    server = ready.server.with_account(Account())
    state = server.init(ready.protection.parts.start)
    return drive(held, server_round(server, state, round_)).total  # type: ignore[arg-type]


def test_a_node_votes_then_trains_and_the_vote_has_a_charge_of_its_own(tmp_path: Path) -> None:
    with Book(tmp_path, plan_of(VOTED), opening=True) as book:
        held, vote, ready = around(VOTED, {1: book})
        senders = [play(held, vote, 0).senders]
        welcome(held, ready)
        senders += [play(held, ready, round_).senders for round_ in (1, 2)]

        assert senders == [CLIENTS] * 3
        assert book.spent == 2
        assert (tmp_path / f"mark-{RUN.hex()}").read_text() == "2\n"
    assert verify(tmp_path / "ledger.jsonl").charged == [0, 1, 2]


def test_a_node_votes_once_whatever_the_server_says_and_however_often_it_starts_a_run(tmp_path: Path) -> None:
    with Book(tmp_path, plan_of(VOTED), opening=True) as book:
        held, vote, ready = around(VOTED, {1: book})
        play(held, vote, 0)
        welcome(held, ready)
        before = held.nodes[1].knowledge
        welcome(held, vote)  # a late copy, or a lie

        assert held.nodes[1].knowledge is before
        assert held.nodes[1].over is None
        assert "round 0 is refused: there is no round 0, or it is over" in play(held, vote, 0).failures[1]
    for mark in tmp_path.glob("mark-*"):
        mark.unlink()  # another run has a mark of its own
    with Book(tmp_path, plan_of(VOTED), opening=True) as book:
        held, vote, _ = around(VOTED, {1: book})
        assert "sent its message before round 1" in play(held, vote, 0).failures[1]
    assert verify(tmp_path / "ledger.jsonl").charged == [0]


def test_without_an_account_the_mark_lets_no_node_vote_twice(tmp_path: Path) -> None:
    for answered in (True, False):
        with Book(tmp_path, None) as book:
            held, vote, _ = around(VOTED, {1: book})
            assert (1 not in play(held, vote, 0).failures) == answered


def test_in_round_0_nothing_else_is_answered() -> None:
    held, _, ready = around(VOTED)

    assert all("round 1 is refused: round 0 is open" in words for words in play(held, ready, 1).failures.values())
    assert b"round 0 is open" in held.ask(1, EVALUATION + 1, "advertise", b"")[0].payload


@pytest.mark.parametrize("experiment", [VOTED, MEASURED], ids=["vote", "measured"])
def test_no_update_leaves_in_round_0_which_is_paid_for_at_another_price(experiment: Experiment, tmp_path: Path) -> None:
    with Book(tmp_path, plan_of(experiment), opening=experiment is VOTED) as book:
        held, _, ready = around(experiment, {1: book})
        welcome(held, ready)
        total = play(held, ready, 0)

    assert "round 0 is refused" in total.failures[1]
    assert verify(tmp_path / "ledger.jsonl").charged == []


def test_a_node_in_round_0_asks_for_the_set_up_that_is_to_come() -> None:
    held, _, ready = around(VOTED)

    def joined() -> str:
        return Hello.unpack(read(held.nodes[1].hello(2)).payload).run

    assert joined() == ""
    welcome(held, ready)
    assert joined() == RUN.hex()


def test_a_process_of_its_own_for_every_message_votes_too() -> None:
    def start_again(request: Request, client: int, payload: bytes) -> bytes:
        if client == 1:
            packed = pickle.dumps(held.nodes[1].memory())
            held.nodes[1] = Node(held.nodes[1].member, Book(None, None))
            held.nodes[1].recall(pickle.loads(packed))
        return payload

    held, vote, _ = around(VOTED, alter=start_again)

    assert play(held, vote, 0).senders == CLIENTS
