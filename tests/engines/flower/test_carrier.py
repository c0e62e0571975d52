"""The carrier between our server and a Flower fleet, with a grid that fails; the apps, and what they let out."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.supercore.task_identity import TaskIdentity

from sottovoce.config.experiment import parse
from sottovoce.deployment.flower import fleet as flower
from sottovoce.deployment.flower.fleet import GridCarrier, Times, client_app
from sottovoce.deployment.flower.folder import write_app
from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster
from sottovoce.federation.engines.mqtt.envelope import NO_RUN, SERVER, Envelope, Kind, topic_to
from tests.deployment.wired import roster_of, server_key, signing_key, until

PLACE = 77
ROSTER = roster_of(2)


class Grid:
    """A SuperLink with one SuperNode, which answers what the test says; pushes fail as often as it says."""

    def __init__(self) -> None:
        self.pushed: list[Message] = []
        self.replies: list[Any] = []
        self.failures = 0

    def get_node_ids(self) -> list[int]:
        return [PLACE]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the SuperLink is away")
        self.pushed.extend(messages)
        return [str(len(self.pushed))]

    def pull_messages(self, numbers: Iterable[str]) -> list[Any]:
        due = [reply for reply in self.replies if reply.metadata.reply_to_message_id in numbers]
        self.replies = [reply for reply in self.replies if reply not in due]
        return due

    def answer(self, number: int, *parts: bytes, error: bool = False) -> None:
        """Let the SuperNode answer the message of a number."""
        content = RecordDict({"sottovoce": ConfigRecord({"parts": list(parts)})})
        told = SimpleNamespace(reply_to_message_id=str(number))
        self.replies.append(SimpleNamespace(metadata=told, content=content, has_error=lambda: error))

    def parts(self, number: int) -> list[bytes]:
        """Return what a message carries."""
        return list(self.pushed[number - 1].content.config_records["sottovoce"]["parts"])  # type: ignore[arg-type]


class Ear:
    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def heard(self, topic: str, message: bytes) -> None:
        self.messages.append(message)

    def connected(self, connection: int) -> None:
        pass


@pytest.fixture(autouse=True)
def in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Flower make messages as it does within a run."""
    for name in ("run_id", "node_id", "task_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> Grid:
    for name, seconds in (("_TICK", 0.01), ("_ROLL_CALL", 0.02), ("_LONGEST_PAUSE", 0.3), ("_COMPANY", 0.3)):
        monkeypatch.setattr(flower, name, seconds)
    return Grid()


def hello(number: int = 0) -> bytes:
    return Envelope(Kind.HELLO, number, SERVER, b"").sign(signing_key(number))


def to_node(kind: Kind, phase: str = "", payload: bytes = b"") -> bytes:
    return Envelope(kind, SERVER, 0, payload, NO_RUN, 1, phase).sign(server_key)


def carried(grid: Grid) -> tuple[GridCarrier, Ear]:
    ear = Ear()
    return GridCarrier(grid, Times(5.0, 50.0), ear, ROSTER, 1 << 20), ear  # type: ignore[arg-type]


def greeted(grid: Grid) -> tuple[GridCarrier, Ear]:
    """Return a carrier whose SuperNode has greeted as client 0."""
    carrier, ear = carried(grid)
    carrier.connect()
    until(lambda: len(grid.pushed) == 1)
    grid.answer(1, hello())
    until(lambda: ear.messages == [hello()])
    return carrier, ear


def test_what_could_not_be_pushed_is_pushed_later_in_the_order_of_the_server(grid: Grid) -> None:
    carrier, _ = greeted(grid)
    messages = [to_node(Kind.WELCOME), to_node(Kind.ASK, "train")]
    grid.failures = 2
    for message in messages:
        carrier.publish(topic_to(ROSTER.federation, 0), message)
    until(lambda: len(grid.pushed) == 2)
    carrier.close()

    assert grid.failures == 0 and grid.parts(2) == messages


def test_a_welcome_travels_with_the_first_request_or_alone_after_a_while(grid: Grid) -> None:
    carrier, _ = greeted(grid)
    welcome, ask = to_node(Kind.WELCOME), to_node(Kind.ASK, "train")
    carrier.publish(topic_to(ROSTER.federation, 0), welcome)
    carrier.publish(topic_to(ROSTER.federation, 0), ask)
    until(lambda: len(grid.pushed) == 2)
    grid.answer(2)
    carrier.publish(topic_to(ROSTER.federation, 0), welcome)
    until(lambda: len(grid.pushed) == 3)
    carrier.close()

    assert (grid.parts(2), grid.parts(3)) == ([welcome, ask], [welcome])


def test_a_supernode_that_could_not_be_woken_is_woken_later(grid: Grid) -> None:
    carrier, _ = carried(grid)
    grid.failures = 2
    carrier.connect()
    until(lambda: len(grid.pushed) == 1)
    carrier.close()

    assert grid.parts(1) == []


def test_a_supernode_that_fails_is_woken_again_after_longer_and_longer_pauses(grid: Grid) -> None:
    carrier, ear = carried(grid)
    carrier.connect()
    pauses = []
    for number in range(1, 7):
        until(lambda number=number: len(grid.pushed) == number)  # type: ignore[misc]
        pauses.append(carrier._pause.get(PLACE, 0.0))
        grid.answer(number, error=True)
    until(lambda: len(grid.pushed) == 7)
    grid.answer(7, hello())
    until(lambda: ear.messages == [hello()])
    carrier.close()

    assert pauses == [0.0, 0.02, 0.04, 0.08, 0.16, 0.3]
    assert PLACE not in carrier._pause


def test_a_node_that_the_server_refuses_is_asked_for_its_greeting_again(grid: Grid) -> None:
    carrier, _ = greeted(grid)
    carrier.publish(topic_to(ROSTER.federation, 0), to_node(Kind.REFUSAL))
    until(lambda: len(grid.pushed) == 2)
    grid.answer(2)
    until(lambda: len(grid.pushed) == 3)
    carrier.close()

    assert grid.parts(3) == []


def test_a_message_is_under_way_as_long_as_its_phase_lasts(grid: Grid) -> None:
    times = Times(5.0, 50.0)

    assert times.of([]) == times.of([to_node(Kind.WELCOME)]) == times.of([to_node(Kind.ASK, "share")]) == 5.0
    assert times.of([to_node(Kind.WELCOME), to_node(Kind.ASK, "mask")]) == 50.0
    assert times.of([b"", b"\x05" * 5, b"\xff" * 200]) == 5.0


def test_what_is_not_signed_by_a_node_of_the_roster_moves_nobody(grid: Grid, caplog: pytest.LogCaptureFixture) -> None:
    carrier, ear = greeted(grid)
    stranger = Envelope(Kind.HELLO, 0, SERVER, b"").sign(b"x" * 32)
    grid.pushed.append(grid.pushed[0])
    carrier.publish(topic_to(ROSTER.federation, 0), to_node(Kind.WELCOME))
    until(lambda: len(grid.pushed) == 3)
    grid.answer(3, stranger, b"", hello(1)[:-1])
    until(lambda: len(grid.pushed) == 4)  # it is asked for its greeting again
    carrier.close()

    assert ear.messages == [hello()] and carrier._places == {0: PLACE}
    assert "SuperNode 77 is not heard: message is not signed by node 0" in caplog.text


@pytest.mark.parametrize("error", [ValueError("x[3] = 17 is a record"), OSError(28, "No space left", "/srv/x")])
def test_why_a_node_failed_is_not_told_to_the_server(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> list[bytes]:
        raise error

    monkeypatch.setattr(flower, "answers", fail)
    message = Message(RecordDict({}), PLACE, "query")
    with pytest.raises(RuntimeError) as told:
        client_app()(message, SimpleNamespace(node_config={}))  # type: ignore[arg-type]

    assert str(told.value) == "this node could not answer; its operator sees why"
    assert str(error.args[-1] if isinstance(error, OSError) else error) in "".join(capfd.readouterr())


def test_nothing_that_is_put_into_the_app_folder_later_is_sent_to_the_nodes(tmp_path: Path) -> None:
    init_federation(tmp_path / "fed")
    add_nodes(tmp_path / "fed", ["lyon", "oslo"])
    sign_roster(tmp_path / "fed")
    experiment = parse({"data": {"clients": 2}, "cohort": {"sample_rate": 1}, "engine": {"name": "flower"}})
    write_app(experiment, tmp_path / "app", keys=tmp_path / "fed" / "server", out=tmp_path / "out")
    for name in ("operator.jsonl", "key.json", "sottovoce_run/records.json", "sottovoce_run/mine.py"):
        (tmp_path / "app" / name).write_text('"secret"')

    fab = zipfile.ZipFile(io.BytesIO(build_fab_from_disk(tmp_path / "app")))

    names = {name.rsplit("/", 1)[-1] for name in fab.namelist()}
    assert {"server.py", "client.py", "experiment.toml", "pyproject.toml"} <= names
    assert not names & {"operator.jsonl", "key.json", "records.json", "mine.py"}
