"""`sottovoce count` and `serve` with wrong input: one sentence each, and nothing is changed."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sottovoce.cli import main
from sottovoce.config.experiment import to_toml
from sottovoce.core.errors import InputError, PrivacyError, RunError
from sottovoce.deployment.helper.count import _bound, _listen, count
from sottovoce.deployment.helper.frames import HelperAddress
from sottovoce.deployment.helper.keys import add_helper
from sottovoce.deployment.helper.service import Desk, open_desk
from sottovoce.deployment.keys import renew, sign_roster
from sottovoce.deployment.node.build import config_digest
from sottovoce.deployment.party import Identity
from sottovoce.deployment.server.helper_link import HelperLink
from sottovoce.federation.aggregation.ballots.account import HELPER_LEDGER, HelperAccount
from sottovoce.privacy.ledger import verify
from tests.deployment.test_count import ballots, link, listening


@pytest.fixture
def helped(fed: Path) -> Path:
    add_helper(fed, "notary")
    sign_roster(fed)
    return fed


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.toml"
    path.write_text(to_toml(ballots().tables()))
    return path


Case = tuple[str, int, Callable[[Path, Path], list[str]]]


def _gone(fed: Path, name: str) -> str:
    (fed / "helper" / name).unlink()
    return str(fed / "helper")


def _opened(fed: Path, name: str) -> str:
    (fed / "helper" / name).chmod(0o644)
    return str(fed / "helper")


CASES: dict[str, Case] = {
    "server's keys": ("the helper needs its own", 2, lambda fed, at: ["--keys", str(fed / "server")]),
    "node's keys": ("the helper needs its own", 2, lambda fed, at: ["--keys", str(fed / "nodes" / "lyon")]),
    "no keys": ("is no folder with keys", 2, lambda fed, at: ["--keys", str(at / "nowhere")]),
    "no exchange key": ("exchange.key cannot be", 2, lambda fed, at: ["--keys", _gone(fed, "exchange.key")]),
    "no roster": ("roster.json is missing", 2, lambda fed, at: ["--keys", _gone(fed, "roster.json")]),
    "open secret": ("must be 600", 2, lambda fed, at: ["--keys", _opened(fed, "exchange.key")]),
    "no port": ("is host:port", 2, lambda fed, at: ["--listen", "8900"]),
    "no such host": ("cannot be listened to", 2, lambda fed, at: ["--listen", "no.such.host.invalid:8900"]),
    "other nodes": ("but the roster has 3 nodes", 2, lambda fed, at: ["--set", "data.clients=4"]),
    "no ballots": ("is for secure", 2, lambda fed, at: ["--set", "aggregation.secure=real"]),
    "state is a file": ("cannot be used", 2, lambda fed, at: ["--state", str(at / "experiment.toml")]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_wrong_input_of_a_helper_is_one_sentence_and_changes_nothing(
    case: str, helped: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, code, more = CASES[case]
    told = more(helped, tmp_path)
    base = {"--keys": str(helped / "helper"), "--listen": "127.0.0.1:0"}
    given = [word for key, value in base.items() if key not in told for word in (key, value)]
    before = sorted(tmp_path.rglob("*"))

    assert main(["count", str(file), *given, *told]) == code
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and words in said[0], said
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != "roster.newest"] == before


def test_a_port_that_is_taken_is_one_sentence_and_no_account(
    helped: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        told = ["--keys", str(helped / "helper"), "--listen", where, "--state", str(tmp_path / "state")]
        assert main(["count", str(file), *told]) == 2
    assert f"--listen {where} cannot be listened to: Address already in use; give another" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


def test_a_helper_that_cannot_answer_yet_refuses_callers() -> None:
    with _bound(HelperAddress("127.0.0.1", 0)) as held:
        place = held.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(place, 5)
        _listen(held, HelperAddress(*place))
        socket.create_connection(place, 5).close()


def test_two_helpers_do_not_share_an_account(
    helped: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_desk(ballots(), helped / "helper", tmp_path / "state", simulated=False)[0]:
        before = (tmp_path / "state" / HELPER_LEDGER).read_bytes()
        told = ["--keys", str(helped / "helper"), "--listen", "127.0.0.1:0", "--state", str(tmp_path / "state")]
        assert main(["count", str(file), *told]) == 3
        assert "is in use by another process" in capsys.readouterr().err
        assert (tmp_path / "state" / HELPER_LEDGER).read_bytes() == before


def test_an_account_of_another_plan_is_refused(
    helped: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_desk(ballots(rounds=3), helped / "helper", tmp_path / "state", simulated=False)[0].account.close()
    before = (tmp_path / "state" / HELPER_LEDGER).read_bytes()
    told = ["--keys", str(helped / "helper"), "--listen", "127.0.0.1:0", "--state", str(tmp_path / "state")]
    assert main(["count", str(file), *told]) == 3
    assert "belongs to another plan" in capsys.readouterr().err
    assert (tmp_path / "state" / HELPER_LEDGER).read_bytes() == before


def test_another_roster_is_one_sentence_on_both_sides(helped: Path, tmp_path: Path) -> None:
    experiment, kept = ballots(), shutil.copytree(helped, tmp_path / "older")
    renew(helped, "lyon")
    sign_roster(helped)
    place = listening(experiment, helped)
    with pytest.raises(InputError, match="the server plays another run than the helper: another roster"):
        link(experiment, kept / "server", place).reach()


@pytest.mark.parametrize("line", ["ballots", "charge"])
def test_a_full_disk_ends_the_helper_in_one_sentence_and_nothing_leaves(
    line: str, helped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, state = ballots(), tmp_path / "state"
    sent: list[bytes] = []

    def answer(desk: Desk, kind: str, payload: bytes) -> bytes:
        if kind == "greet":
            return b""
        account = desk.account
        if line == "charge":
            account.reserve(1, [0], counter=1, session="s")
        size = (state / HELPER_LEDGER).stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, before[1]))
        account.charge(1) if line == "charge" else account.reserve(1, [0], counter=1, session="s")
        sent.append(b"a share")
        return b"a share"

    monkeypatch.setattr(Desk, "answer", answer)
    before, quiet = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def ask(place: object) -> None:
        server = HelperLink(
            place,  # type: ignore[arg-type]
            Identity.read(helped / "server"),
            Identity.read(helped / "server").read_roster(),
            config_digest(experiment),
            simulated=False,
        )

        def begin() -> None:
            try:
                server.begin(b"")
            except RunError as error:
                if "is gone" not in str(error):  # it goes on: end it, so that the test can fail
                    os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=begin, daemon=True).start()

    try:
        with pytest.raises(RunError, match=r"helper-ledger.jsonl cannot be written: File too large"):
            count(experiment, helped / "helper", "127.0.0.1:0", state, ready=ask)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, quiet)
    assert not sent
    assert verify(state / HELPER_LEDGER).problem is None
    (state / "run").write_text("ab" * 16 + "\n")
    with open_desk(experiment, helped / "helper", state, simulated=False)[0] as desk:
        assert desk.account.spent == 1  # the torn line counts, and the account goes on


def test_an_account_that_could_not_be_written_takes_no_more_lines(helped: Path, tmp_path: Path) -> None:
    desk = open_desk(ballots(), helped / "helper", tmp_path / "state", simulated=False)[0]
    account: HelperAccount = desk.account

    def full(step: str) -> None:
        raise OSError(28, "No space left on device")

    account._ledger._step = lambda step: full(step) if step == "within the line" else None
    with pytest.raises(RunError, match="No space left"):
        account.reserve(1, [0], counter=1, session="s")
    account._ledger._step = lambda step: None
    with pytest.raises(PrivacyError, match="could not be written before"):
        account.charge(1)
    assert account.broken
    account.close()
    assert verify(tmp_path / "state" / HELPER_LEDGER).problem is None
