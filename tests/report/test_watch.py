from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sottovoce.report.watch import Watch, state_of

from .conftest import Maker


@pytest.fixture
def served(make_run: Maker) -> Iterator[Watch]:
    path = make_run(private=True, finished=False, rounds=50, done=9)
    (path / "operator.jsonl").write_text('{"round": 1, "cohort": "sesame-7351"}\n')
    (path / "checkpoint").mkdir()
    (path / "checkpoint" / "state.npz").write_text("draws-of-client-sesame-7351")
    with Watch([path]) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _ask(server: Watch, path: str, host: str | None = None, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_the_page_follows_the_run_and_holds_no_secret_of_the_operator(served: Watch) -> None:
    code, first = _ask(served, "/")
    state = _ask(served, "/state")[1]
    (path,) = served.paths
    with (path / "rounds.jsonl").open("a") as file:
        file.write(json.dumps({"round": 10, "bytes_up": 1, "bytes_down": 1, "epsilon": 1.0, "accuracy": 0.9}) + "\n")

    after = _ask(served, "/state")[1]
    second = _ask(served, "/")[1]

    assert code == 200 and f'follow("{state}")' in first and "9 of 50, unfinished" in first
    assert after != state and f'follow("{after}")' in second and "10 of 50, unfinished" in second
    assert "sesame-7351" not in first + second and "connect-src &#39;self&#39;" in first


def test_what_only_the_operator_may_see_does_not_change_the_state(served: Watch) -> None:
    (path,) = served.paths
    before = state_of([path])
    (path / "operator.jsonl").write_text("more")
    (path / "checkpoint" / "state.npz").write_text("more")

    assert state_of([path]) == before


@pytest.mark.parametrize(
    "path",
    [
        "/operator.jsonl",
        "/config.toml",
        "/../operator.jsonl",
        "/%2e%2e/x",
        "/state/",
        "/?x",
        "/checkpoint/state.npz",
    ],
)
def test_nothing_but_the_page_is_served(served: Watch, path: str) -> None:
    assert _ask(served, path)[0] == 404


def test_a_foreign_name_and_other_methods_are_refused(served: Watch) -> None:
    assert _ask(served, "/", host="evil.example")[0] == 403
    assert _ask(served, "/state", host=f"evil.example:{served.server_port}")[0] == 403
    assert _ask(served, "/", method="POST")[0] == 501
    assert served.server_address[0] == "127.0.0.1"


def test_a_folder_that_disappears_is_told_and_awaited(served: Watch) -> None:
    (path,) = served.paths
    path.rename(path.with_name("away"))

    code, text = _ask(served, "/")

    assert code == 200 and "there is no run folder" in text and 'http-equiv="refresh"' in text


def test_ctrl_c_ends_the_command_with_0_and_leaves_nothing(make_run: Maker, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sottovoce", "report", str(make_run()), "--watch"]
    # As from a terminal: a shell's background job would ignore the signal.
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=_hear) as process:
        if process.stderr is None:
            pytest.fail("stderr is not read")
        said = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", said)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()

    assert found and process.returncode == 0 and rest == "no longer followed\n"
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=5).connect()


def _hear() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
