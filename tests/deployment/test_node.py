"""One node alone with a server that lies, repeats itself and talks nonsense; nothing here has a network."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.assembly.elsewhere import gather_without_records
from sottovoce.assembly.parties import Parties
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, ServerSide, stages
from sottovoce.checks.twin import Hand, few, play
from sottovoce.checks.twin import TwinAccount as Account
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError, PrivacyError, RunError
from sottovoce.core.streams import Secrets
from sottovoce.deployment.node.node import Node
from sottovoce.deployment.node.state import Book
from sottovoce.federation.aggregation.secure import Secure, announce, downlink_hash
from sottovoce.federation.engine import Reply, Request, drive
from sottovoce.federation.engines.mqtt.envelope import NO_RUN, SERVER, Envelope, Kind, open_message
from sottovoce.federation.engines.mqtt.greeting import Hello, Refusal, Welcome
from sottovoce.federation.round import server_round
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.ledger import verify
from tests.deployment.wired import RUN, member_of, parts_of, roster_of, server_key, signing_key

CLIENTS = 4
SECURE = few(clients=CLIENTS, aggregation={"secure": "real"})
PRIVATE = few(
    clients=CLIENTS,
    aggregation={"secure": "real"},
    experiment={"rounds": 2},
    privacy={"noise_multiplier": 1.0, "delta": 1e-5, "clip_norm": 0.5},
)

KEYS = {SERVER: roster_of(CLIENTS).server}.get

Alter = Callable[[Request, int, bytes], bytes]


def signed(kind: Kind, number: int, payload: bytes = b"", **place: Any) -> bytes:
    return Envelope(kind, SERVER, number, payload, **{"run": RUN, **place}).sign(server_key)


def read(message: bytes) -> Envelope:
    return open_message(message, receiver=SERVER, key_of=roster_of(CLIENTS).keys.get, most=1 << 24)


def welcome_to(node: Node, ready: ServerSide, run: bytes = RUN, **changes: Any) -> bytes:
    life = Hello.unpack(read(node.hello(1)).payload).life
    told = Welcome(node.member.facts, life, ready.scheme.name, ready.setup)
    return signed(Kind.WELCOME, node.member.number, replace(told, **changes).pack(), run=run)


@dataclass
class Table:
    """A server and its nodes around one table: every message is handed over by hand."""

    nodes: dict[int, Node]
    ready: ServerSide
    alter: Alter = lambda request, client, payload: payload

    def send(self, request: Request) -> Reply:
        sizes: dict[int, int] = {}
        failures: dict[int, str] = {}
        for client, payload in request.payloads.items():
            asked = self.alter(request, client, payload)
            for answer in self.ask(client, request.round, request.phase, asked):
                if answer.kind == Kind.REFUSAL:
                    failures[client] = answer.payload.decode()
                else:
                    request.take(client, answer.payload)
                    sizes[client] = len(answer.payload)
        return Reply(sizes, failures)

    def ask(
        self, client: int, round_: int, phase: str, payload: bytes, attempt: int = 0, run: bytes = RUN
    ) -> list[Envelope]:
        message = signed(Kind.ASK, client, payload, round=round_, phase=phase, attempt=attempt, run=run)
        return [read(answer) for answer in self.nodes[client].receive(message)]

    def play(self, rounds: range) -> list[Any]:
        server = self.ready.server.with_account(Account())
        state = server.init(self.ready.protection.parts.start)
        totals = []
        for round_ in rounds:
            result = drive(self, server_round(server, state, round_))  # type: ignore[arg-type]
            state = result.state
            totals.append(result.total)
        return totals


def table(experiment: Experiment, books: dict[int, Book] | None = None, **more: Any) -> Table:
    ready = stages(protect(parts_of(experiment)))[TRAINING].server_side(Hand(gather(experiment)))
    dealt, nodes = gather(experiment), {}
    for number in range(CLIENTS):
        nodes[number] = Node(member_of(experiment, number, dealt), (books or {}).get(number, Book(None, None)))
        assert not nodes[number].receive(welcome_to(nodes[number], ready))
    return Table(nodes, ready, **more)


def plan_of(experiment: Experiment) -> PrivacyPlan:
    """Return the plan of a deployed run: every participation is charged, whatever its round."""
    parties = Parties.of_machines(Secrets(experiment.experiment.seed), roster_of(CLIENTS).keys)
    plan = protect(gather_without_records(experiment, parties)).plan
    assert plan is not None
    return plan


def test_nodes_around_a_table_make_the_sum_of_the_twin() -> None:
    totals = table(SECURE).play(range(1, 3))

    assert [total.senders for total in totals] == [CLIENTS, CLIENTS]
    assert [total.bytes_up for total in totals] == [total.bytes_up for total in play(SECURE, rounds=2).totals]


def test_a_process_of_its_own_for_every_message_changes_nothing_and_keeps_no_secret_of_an_ended_round() -> None:
    memories: list[tuple[str, bytes]] = []

    def start_again(request: Request, client: int, payload: bytes) -> bytes:
        if client == 1:
            packed = pickle.dumps(held.nodes[1].memory())
            memories.append((request.phase, packed))
            held.nodes[1] = Node(held.nodes[1].member, Book(None, None))
            held.nodes[1].recall(pickle.loads(packed))
        return payload

    held = table(SECURE, alter=start_again)
    totals = held.play(range(1, 3))

    undisturbed = table(SECURE).play(range(1, 3))
    assert all((one.values == other.values).all() for one, other in zip(totals, undisturbed, strict=True))
    kept = {phase: pickle.loads(packed).seat.state for phase, packed in memories}  # of round 2, before each phase
    assert kept["mask"].masking is not None
    assert (kept["advertise"].masking, kept["advertise"].heard) == (None, None)


@pytest.mark.parametrize("phase", ["advertise", "share", "mask", "consistency", "unmask"])
def test_a_repeated_request_gets_the_same_bytes_again(phase: str) -> None:
    again: list[tuple[bytes, bytes]] = []

    def repeat(request: Request, client: int, payload: bytes) -> bytes:
        if (request.phase, client) == (phase, 1):
            message = signed(Kind.ASK, 1, payload, round=1, phase=phase)
            again.append((held.nodes[1].receive(message)[0], held.nodes[1].receive(message)[0]))
        return payload

    held = table(SECURE, alter=repeat)
    totals = held.play(range(1, 2))

    assert again[0][0] == again[0][1]
    assert totals[0].senders == CLIENTS


@pytest.mark.parametrize("phase", ["advertise", "share", "mask", "unmask"])
def test_a_second_different_request_is_refused(phase: str) -> None:
    told: list[str] = []

    def lie(request: Request, client: int, payload: bytes) -> bytes:
        if (request.phase, client) == (phase, 1):
            held.ask(1, 1, phase, payload)
            told.append(held.ask(1, 1, phase, payload + b"!")[0].payload.decode())
        return payload

    held = table(SECURE, alter=lie)
    held.play(range(1, 2))

    assert told == [f"phase {phase} of round 1 was answered already, to another request"]


def announced(ready: ServerSide, cohort: list[int], down: bytes, **lies: Any) -> bytes:
    secure = ready.server.aggregator
    assert isinstance(secure, Secure)
    return announce(replace(secure.session(1, cohort, downlink_hash(down)), **lies), down)


@pytest.mark.parametrize(
    ("lies", "reason"),
    [
        ({"threshold": 4}, "threshold must be 3, got 4"),
        ({"bits": 8}, "bits must be 32, got 8"),
        ({"config_digest": bytes(32)}, "config_digest must be"),
        ({"length": 7}, "length must be 650, got 7"),
    ],
)
def test_terms_that_are_not_those_of_the_file_are_refused(lies: dict[str, Any], reason: str) -> None:
    held = table(SECURE)
    down = held.ready.scheme.downlink(held.ready.server.init(held.ready.protection.parts.start), 1)

    answer = held.ask(1, 1, "advertise", announced(held.ready, [0, 1, 2, 3], down, **lies))[0]

    assert answer.kind == Kind.REFUSAL and reason in answer.payload.decode()


def test_a_cohort_that_is_too_small_is_refused() -> None:
    held = table(PRIVATE)
    state = held.ready.server.init(held.ready.protection.parts.start)
    down = held.ready.scheme.downlink(state, 1)

    answer = held.ask(1, 1, "advertise", announced(held.ready, [0, 1, 2, 3], down, clients=(1, 2), threshold=2))[0]

    assert answer.kind == Kind.REFUSAL
    assert "a cohort of 2 clients, at least 3 are needed" in answer.payload.decode()


def test_a_node_goes_on_with_no_session_that_it_never_began() -> None:
    held = table(SECURE)

    answer = held.ask(2, 1, "mask", b"")[0]

    assert answer.kind == Kind.REFUSAL and "never began" in answer.payload.decode()


def test_each_participation_is_on_disk_before_its_vector_leaves(tmp_path: Path) -> None:
    books = {number: Book(tmp_path / str(number), plan_of(PRIVATE)) for number in range(CLIENTS)}
    seen: list[int] = []

    def watch(request: Request, client: int, payload: bytes) -> bytes:
        if request.phase == "consistency" and client == 1:
            seen.extend(verify(tmp_path / "1" / "ledger.jsonl").charged)
        return payload

    table(PRIVATE, books, alter=watch).play(range(1, 2))

    assert seen == [1]


def test_a_vector_whose_charge_fails_does_not_leave(tmp_path: Path) -> None:
    class Full(Book):
        def charge(self, round_: int) -> None:
            raise PrivacyError("the disk is full")

    totals = table(PRIVATE, {1: Full(tmp_path, plan_of(PRIVATE))}).play(range(1, 2))

    assert totals[0].failures == {1: "the disk is full"}
    assert totals[0].senders == CLIENTS - 1


def test_a_node_without_budget_refuses_and_stays(tmp_path: Path) -> None:
    books = {1: Book(tmp_path, plan_of(PRIVATE))}
    books[1].charge(7)
    books[1].charge(8)
    held = table(PRIVATE, books)

    totals = held.play(range(1, 2))

    assert totals[0].failures == {1: "this node has taken part 2 times, which is all that its privacy plan allows"}
    assert held.nodes[1].over is None
    assert verify(tmp_path / "ledger.jsonl").charged == [7, 8]


def test_another_run_of_the_same_experiment_has_no_budget_of_its_own(tmp_path: Path) -> None:
    with Book(tmp_path, plan_of(PRIVATE)) as book:
        book.enter(RUN)
        book.charge(1)
        book.charge(2)
    with Book(tmp_path, plan_of(PRIVATE)) as book:
        book.enter(bytes(16))

        assert not book.affords(1)
        assert book.last_run == bytes(16).hex()


def test_what_was_given_to_other_experiments_is_counted(tmp_path: Path) -> None:
    """A file that differs in a name has an account of its own, and the same records pay for both."""
    with Book(tmp_path / "a", plan_of(PRIVATE)) as other, Book(tmp_path / "b", plan_of(PRIVATE)) as book:
        assert book.given_elsewhere == 0
        other.charge(1)
        other.charge(2)
        book.charge(1)
        (tmp_path / "c").mkdir()

        assert (book.given_elsewhere, other.given_elsewhere) == (2, 1)
    assert Book(None, None).given_elsewhere == 0


def test_a_server_whose_clock_went_back_is_followed_when_it_has_said_so() -> None:
    held = table(few(clients=CLIENTS))
    down = held.ready.scheme.downlink(held.ready.server.init(held.ready.protection.parts.start), 1)
    welcome = open_message(welcome_to(held.nodes[1], held.ready), receiver=1, key_of=KEYS, most=1 << 24)

    assert len(held.ask(1, 1, "train", down, attempt=100)) == 1
    assert held.ask(1, 2, "train", down, attempt=50) == []
    held.nodes[1].receive(replace(welcome, attempt=50).sign(server_key))
    assert len(held.ask(1, 2, "train", down, attempt=50)) == 1


def test_a_second_run_gets_other_batches_from_the_same_process() -> None:
    """Or a server that begins anew with one node less takes off the rest of the sum, to the bit."""
    member = member_of(SECURE, 1, simulated=False)
    setup = stages(protect(parts_of(SECURE)))[TRAINING].server_side(Hand(gather(SECURE))).setup
    first, second = (member.training.client(setup).batches(1).integers(1 << 62) for _ in range(2))

    assert first != second


def test_a_node_that_was_started_again_masks_no_round_twice(tmp_path: Path) -> None:
    with Book(tmp_path, None) as book:
        table(SECURE, {1: book}).play(range(1, 3))

    with Book(tmp_path, None) as book:
        totals = table(SECURE, {1: book}).play(range(2, 3))

    assert "round 2 is refused: round 2 was masked" in totals[0].failures[1]


def test_a_node_runs_once(tmp_path: Path) -> None:
    with Book(tmp_path, None), pytest.raises(InputError, match="this node runs already"):
        Book(tmp_path, None)
    Book(tmp_path, None).close()


def test_what_a_private_node_says_of_itself_tells_nothing_of_its_records(tmp_path: Path) -> None:
    held = table(PRIVATE)

    def fail(*_: object) -> Any:
        raise RunError("record 17 has the value 3.5")

    seat = held.nodes[1]._seat
    assert seat is not None
    object.__setattr__(seat.client, "shard", fail)
    totals = held.play(range(1, 2))

    assert totals[0].failures == {1: "this node could not answer; its operator sees why"}


def test_a_request_of_an_earlier_life_or_round_is_dropped() -> None:
    held = table(few(clients=CLIENTS))
    down = held.ready.scheme.downlink(held.ready.server.init(held.ready.protection.parts.start), 1)

    assert len(held.ask(1, 2, "train", down, attempt=5)) == 1
    assert held.ask(1, 2, "train", down, attempt=4) == []
    assert held.ask(1, 1, "train", down, attempt=5) == []
    assert held.nodes[1].dropped == 2


def test_a_node_that_does_not_know_the_run_says_hello() -> None:
    held = table(few(clients=CLIENTS))

    answer = held.nodes[1].receive(signed(Kind.ASK, 1, b"", run=b"x" * 16, round=1, phase="train"))

    assert [read(message).kind for message in answer] == [Kind.HELLO]
    assert [read(message).kind for message in held.nodes[1].receive(signed(Kind.HELLO, 1))] == [Kind.HELLO]


def test_a_welcome_to_another_life_is_old() -> None:
    held = table(SECURE)
    node = Node(held.nodes[1].member, Book(None, None))
    node.hello(1)

    node.receive(welcome_to(held.nodes[1], held.ready))

    assert node.knowledge is None and node.over is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stage": "fl-top"}, "the server plays fl-top, and this node fl-std"),
        ({"facts": "other"}, "another experiment"),
    ],
)
def test_a_welcome_to_another_run_ends_the_node(changes: dict[str, Any], words: str) -> None:
    held = table(SECURE)
    node = Node(held.nodes[1].member, Book(None, None))
    if "facts" in changes:
        changes = {"facts": replace(node.member.facts, config="9")}

    node.receive(welcome_to(node, held.ready, **changes))

    assert node.over is not None and node.over.code == 2 and words in node.over.words


def test_a_second_set_up_for_the_same_run_ends_the_node() -> None:
    held = table(SECURE)

    held.nodes[1].receive(welcome_to(held.nodes[1], held.ready, setup=held.ready.setup + b"!"))

    over = held.nodes[1].over
    assert over is not None and over.words == "the server sent a second, different set-up for the same run"


def test_a_set_up_of_another_seed_is_refused() -> None:
    held = table(SECURE)
    other = stages(protect(parts_of(few(clients=CLIENTS, experiment={"seed": 5}))))[TRAINING].server_side(
        Hand(gather(SECURE))
    )
    node = Node(held.nodes[1].member, Book(None, None))

    node.receive(welcome_to(node, held.ready, setup=other.setup))

    assert node.knowledge is None and node.dropped == 1


def test_only_the_end_of_its_own_run_ends_a_node() -> None:
    held = table(SECURE)
    node = held.nodes[1]

    node.receive(signed(Kind.BYE, 1, b"\x01done", run=NO_RUN))
    node.receive(signed(Kind.BYE, 1, b"\x00stopped"))
    assert node.over is None
    node.receive(signed(Kind.BYE, 1, b"\x01done\x1b[31m\n!"))
    assert node.over == (0, "done [31m !")


def test_a_refusal_of_another_life_ends_nobody() -> None:
    held = table(SECURE)
    node = held.nodes[1]

    node.receive(signed(Kind.REFUSAL, 1, Refusal("00" * 8, "go away").pack()))
    assert node.over is None
    node.receive(signed(Kind.REFUSAL, 1, Refusal(Hello.unpack(read(node.hello()).payload).life, "go away").pack()))
    assert node.over == (2, "the server refuses this node: go away")


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=300),
        st.builds(
            lambda kind, payload, phase, round_: signed(kind, 1, payload, phase=phase, round=round_),
            st.sampled_from(Kind),
            st.binary(max_size=300),
            st.sampled_from(("", "train", "advertise", "share", "mask", "consistency", "unmask", "enrol", "introduce")),
            st.integers(0, 3),
        ),
    )
)
def test_nothing_that_a_server_can_sign_breaks_a_node(message: bytes) -> None:
    held = FUZZED
    node = Node(held.nodes[1].member, Book(None, None))
    node.receive(welcome_to(node, held.ready))

    for answer in node.receive(message):
        assert read(answer).kind in (Kind.HELLO, Kind.REFUSAL)


def test_a_message_of_another_node_is_dropped() -> None:
    held = table(SECURE)
    forged = Envelope(Kind.BYE, 2, 1, b"\x01done", RUN).sign(signing_key(2))

    assert held.nodes[1].receive(forged) == []
    assert held.nodes[1].over is None and held.nodes[1].dropped == 1


FUZZED = table(SECURE)


def test_a_node_that_stays_outlives_refusals_says_them_once_and_joins_the_right_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = table(SECURE)
    node = Node(held.nodes[1].member, Book(None, None), stays=True)
    other = replace(node.member.facts, config="9")

    for _ in range(3):
        node.receive(welcome_to(node, held.ready, facts=other))
    refused = node.knowledge
    node.receive(welcome_to(node, held.ready))

    lines = [record.getMessage() for record in caplog.records if "another experiment" in record.getMessage()]
    assert refused is None and node.over is None and node.knowledge is not None
    assert len(lines) == 1 and "waiting for the server to come back" in lines[0]
