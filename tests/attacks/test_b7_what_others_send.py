"""B7: a round of 4e9 ended a ballot node's run, deep JSON ended the helper, and terminals obeyed remote strings."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.checks.twin import Hand, few
from sottovoce.checks.twin import TwinAccount as Account
from sottovoce.cli import output, progress
from sottovoce.cli import progress as board
from sottovoce.cli.app import main
from sottovoce.config.experiment import Experiment
from sottovoce.core import remote
from sottovoce.core.errors import InputError, SecAggError, SottovoceError, WireError
from sottovoce.core.remote import one_line, printable, read_json
from sottovoce.core.words import value_words
from sottovoce.deployment.helper.count import Desk
from sottovoce.deployment.helper.frames import error_of
from sottovoce.deployment.helper.mark import MARK, Mark
from sottovoce.deployment.node.node import Node
from sottovoce.deployment.node.state import Book
from sottovoce.deployment.request import Registration
from sottovoce.deployment.roster import Roster
from sottovoce.deployment.server.helper_link import _run_of
from sottovoce.federation.engines.mqtt.envelope import SERVER, Envelope, Kind, open_message
from sottovoce.federation.engines.mqtt.greeting import Hello, Refusal, Welcome
from sottovoce.federation.round import server_round
from sottovoce.federation.stages.evaluation import EVALUATION
from tests.deployment.test_count import ballots
from tests.deployment.wired import RUN, member_of, parts_of, roster_of, server_key

FAR = 4_000_000_000
DEEP = b"[" * 100_000
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\r\nwarning: forged"
SECURE = few(clients=3, aggregation={"secure": "real"})
PLAIN = few(clients=3)


class Server:
    """A server that has keys and lies, with one node and its account on disk."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        ready = stages(protect(parts_of(experiment)))[TRAINING].server_side(Hand(gather(experiment)))
        self.node = Node(member_of(experiment, 1), Book(folder, None), life="ab" * 8)
        self.folder = folder
        welcome = Welcome(self.node.member.facts, "ab" * 8, ready.scheme.name, ready.setup).pack()
        assert not self.send(Kind.WELCOME, welcome)
        server = ready.server.with_account(Account())
        if experiment.secure == "ballot":
            leader = SimpleNamespace(begin=lambda *_: None, accept=lambda *_: None)  # the request alone is wanted
            server.aggregator._leader = leader  # type: ignore[attr-defined]
        self.first = next(server_round(server, server.init(ready.protection.parts.start), 1))

    def send(self, kind: Kind, payload: bytes, round_: int = 0, phase: str = "") -> list[Envelope]:
        message = Envelope(kind, SERVER, 1, payload, RUN, round_, phase).sign(server_key)
        keys = roster_of(3).keys.get
        return [
            open_message(answer, receiver=SERVER, key_of=keys, most=1 << 24) for answer in self.node.receive(message)
        ]

    def ask(self, round_: int) -> Envelope:
        (answer,) = self.send(Kind.ASK, self.first.payloads[1], round_, self.first.phase)
        return answer

    @property
    def marks(self) -> list[str]:
        return [path.read_text() for path in self.folder.glob("mark-*") if not path.name.endswith(".lock")]


@pytest.mark.parametrize("far", [FAR, 3, EVALUATION + 1, (1 << 64) - 1])
@pytest.mark.parametrize("experiment", [ballots, lambda: SECURE, lambda: PLAIN], ids=["ballots", "secure", "plain"])
def test_a_request_for_a_round_beyond_the_plan_leaves_no_mark_and_the_node_goes_on(
    experiment: Callable[[], Experiment], far: int, tmp_path: Path
) -> None:
    made = experiment()
    if far == 3 and made.experiment.rounds >= 3:
        far = made.experiment.rounds + 1
    server = Server(made, tmp_path)

    refused = server.ask(far)
    answer = server.ask(1)

    assert refused.kind == Kind.REFUSAL and b"refused" in refused.payload
    assert answer.kind == Kind.ANSWER
    assert f"{far}\n" not in server.marks


def test_a_ballot_that_cannot_be_cast_leaves_no_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(ballots(), tmp_path)

    def refuse(*_: Any, **__: Any) -> bytes:
        raise SecAggError("nothing of this kind")

    monkeypatch.setattr("sottovoce.federation.client.cast", refuse)

    assert server.ask(1).kind == Kind.REFUSAL
    assert not server.marks


def test_a_mark_of_more_lines_than_any_account_has_is_refused() -> None:
    with pytest.raises(SecAggError, match="no account has so many"):
        Mark.unpack(b"\xff" * MARK)


@pytest.mark.parametrize("deep", [DEEP, b'{"a":' * 100_000, b'["\\"]",' * 20_000, b'[{"a":[' * 9 + b"0"])
def test_deep_json_is_refused_wherever_it_comes_from(deep: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(deep)

    readers: list[Callable[[], Any]] = [
        lambda: read_json(deep, most=1 << 20),
        lambda: Hello.unpack(deep[: 16 << 10]),
        lambda: Refusal.unpack(deep[: 16 << 10]),
        lambda: Welcome.unpack((len(deep)).to_bytes(4, "little") + deep),
        lambda: Roster.read(path, "0" * 64),
        lambda: Registration.read(path),
    ]
    for reader in readers:
        with pytest.raises((WireError, InputError)):
            reader()


@pytest.mark.parametrize("greeting", [DEEP, b"{" * 5000, b"", b"\xff" * 100, b"[" * 4096])
def test_a_deep_greeting_does_not_end_the_helper(greeting: bytes, tmp_path: Path) -> None:
    with (
        Desk(ballots(), roster_of(3), (server_key, server_key), tmp_path, simulated=True) as desk,
        pytest.raises(InputError, match="plays another run than the helper: another greeting"),
    ):
        desk.answer("greet", greeting)


@given(st.binary(max_size=300) | st.text('[]{}"\\a,:', max_size=300).map(str.encode))
@settings(max_examples=300, deadline=None)
def test_whatever_comes_is_a_document_or_refused(payload: bytes) -> None:
    try:
        document = read_json(payload, most=200)
    except WireError:
        return

    assert len(payload) <= 200 and document == json.loads(payload)


def test_brackets_in_texts_open_nothing_and_hide_nothing() -> None:
    assert read_json(json.dumps(["[" * 100, '"]\\', {"}": "]"}]).encode(), most=1000) == ["[" * 100, '"]\\', {"}": "]"}]
    with pytest.raises(WireError, match="inside each other"):
        read_json(b'["]",' * (remote.DEPTH + 1), most=1000)


def harmless(text: str) -> bool:
    return all(letter.isprintable() or letter == "\n" for letter in text)


def test_the_words_of_others_are_one_harmless_line() -> None:
    refusal = Refusal.unpack(json.dumps({"life": "00", "reason": ESCAPES}).encode())
    hostile = replace(roster_facts(), version=ESCAPES)
    hello = Hello.unpack(Hello(hostile, ESCAPES, 1, ESCAPES).pack())
    words = [refusal.reason, one_line(ESCAPES.encode()), str(error_of(1, ESCAPES.encode())), hello.life, hello.run]
    words += [hello.facts.version, str(roster_facts().difference(hello.facts)), value_words(ESCAPES)]
    words.append(Welcome.unpack(Welcome(hostile, "00", ESCAPES).pack()).stage)

    assert all(word.isprintable() for word in words), words
    with pytest.raises(SecAggError, match="with no run"):
        _run_of(b"\x1b]0;owned\x07")


def roster_facts() -> Any:
    return member_of(PLAIN, 1).facts


def test_fields_of_a_roster_that_are_no_fields_are_shown_harmlessly(tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    path.write_text(json.dumps({"kind": "sottovoce roster", "version": 1, ESCAPES: 1, "\x9b31m": 2}))

    with pytest.raises(InputError) as refused:
        Roster.read(path, "0" * 64)

    assert str(refused.value).isprintable()


def test_no_escape_of_an_error_or_a_log_line_reaches_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise SottovoceError(ESCAPES)

    monkeypatch.setattr("typer.main.get_command", fail)
    for debug in ("", "1"):
        monkeypatch.setenv("SOTTOVOCE_DEBUG", debug)
        main(["schemes"])
    with output.messages():
        logging.getLogger("sottovoce.test").warning("node says %s", ESCAPES)
    output.note(ESCAPES)

    assert harmless(capsys.readouterr().err)


def test_no_escape_reaches_a_board_a_bar_or_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.table import Table
    from rich.text import Text

    for shown in (board.Board(), progress.Bar(named=True)):
        console = shown._live.console if isinstance(shown, board.Board) else shown._bars.console
        console.file = io.StringIO()
        shown.say(f"[red]{ESCAPES}[/red]")
        said = console.file.getvalue()
        assert harmless(said) and "[red]" in said
    drawn = Table(title=Text(ESCAPES))
    drawn.add_column(Text(ESCAPES))
    drawn.add_row(Text(ESCAPES))
    output.put_tables(drawn)
    output.put_json({ESCAPES: [ESCAPES, "\x7f\x9b"]})
    shown_text = capsys.readouterr().out

    assert harmless(shown_text)
    assert json.loads(shown_text[shown_text.index("{") :]) == {ESCAPES: [ESCAPES, "\x7f\x9b"]}


def test_a_log_remembers_a_bounded_number_of_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_REMEMBERED", 50)
    said: list[str] = []
    handler = output._Sayer(said.append)
    for number in range(200):
        handler.emit(logging.LogRecord("x", logging.INFO, "", 0, f"sentence {number}", None, None))

    assert len(said) == 200 and len(handler._said) == 50


@given(st.text())
def test_printable_changes_nothing_that_is_printable(text: str) -> None:
    assert harmless(printable(text).replace("\t", "")) and len(printable(text)) == len(text)
    assert printable(text) == text or not text.isprintable()
