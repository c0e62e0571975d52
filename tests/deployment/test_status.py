"""The operator's view of a federation at work: page, file, metrics and health; who may ask, and what it costs."""

from __future__ import annotations

import html
import http.client
import json
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sottovoce.core.errors import InputError
from sottovoce.core.pages import HTML, PageAnswer, PagePlace, PageServer
from sottovoce.deployment.status import FILE, FleetStatus, fleet_families, keeping, packed, read_status, serve_status
from sottovoce.federation.engines.mqtt.engine import Presence, Status

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
DAY = 86400


def _status(nodes: int = 3, *, private: bool = True) -> FleetStatus:
    now = 1.8e9
    names = ["lyon", "oslo", "turin", *(f"site-{number}" for number in range(3, nodes))][:nodes]
    told = Status(nodes=nodes, there=nodes - 1, round=2, phase="mask", waiting_for=1, broker=True, since=now - 7)
    told.expires = now + 20.5 * DAY
    told.presence = lambda: [
        Presence(
            number,
            name,
            there=number != 1,
            seen=None if number == 1 else now - 3 * number,
            waited_for=number == 0,
            refused="another experiment: 12ab here, 99ff there" if number == 1 else None,
            cloned=number == 2,
            expires=None if number == 1 else int(now + (11 + number) * DAY),
        )
        for number, name in enumerate(names)
    ]
    status = FleetStatus("first", 20, private=private, now=lambda: now)
    status.watch(told)
    round_ = {"round": 1, "cohort": 3, "senders": 2, "bytes_up": 1000, "bytes_down": 2000, "wire_up": 1300}
    status.observe({**round_, "seconds": 2.5, "accuracy": 0.5, "epsilon": 4.0, "epsilon_spent": 1.0, "private": True})
    return status


@pytest.fixture
def served() -> Iterator[PageServer]:
    server = serve_status("127.0.0.1:0", _status())
    yield server
    server.close()


def _ask(server: PageServer, path: str, host: str | None = None, method: str = "GET") -> tuple[int, str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, answer.headers


def test_the_document_names_who_is_there_and_who_is_waited_for_and_what_is_left() -> None:
    told = _status().document()

    assert told["waiting_for"] == ["lyon"] and told["there"] == 2 and told["phase_seconds"] == 7
    assert (told["epsilon_spent"], told["epsilon_left"], told["accuracy"]) == (1.0, 3.0, 0.5)
    assert [node["certificate_days"] for node in told["nodes"]] == [11, None, 13] and told["certificate_days"] == 20
    assert [node["seen"] for node in told["nodes"]] == [1.8e9, None, 1.8e9 - 6]
    assert told["per_round"][0] | {"quorum": True, "senders": 2, "cohort": 3} == told["per_round"][0]
    assert (told["bytes_up"], told["wire_up"], told["wire_down"]) == (1000, 1300, 0)


def test_a_round_with_a_reason_had_no_quorum_though_its_sum_was_covered_by_noise() -> None:
    status = _status()
    status.observe({"round": 2, "cohort": 3, "senders": 0, "reason": "0 masked vectors, at least 2 are needed"})
    status.observe({"round": 3, "void": True})

    told = status.document()

    assert [each["quorum"] for each in told["per_round"]] == [True, False, None] and told["without_quorum"] == 1


def test_addresses_are_few_read_only_and_for_this_machine(served: PageServer) -> None:
    code, page, headers = _ask(served, "/")
    policy = headers["Content-Security-Policy"]

    assert served.server_address[0] == "127.0.0.1" and code == 200 and len(page) < 200_000
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
    assert _ask(served, "/status.json")[0] == 200 and _ask(served, "/healthz")[:2] == (200, "ok\n")
    for path in ("/operator.jsonl", "/status.json/", "/?", "/../x", "/index.html"):
        assert _ask(served, path)[0] == 404
    assert _ask(served, "/status.json", host=f"evil.example:{served.server_port}")[0] == 403
    assert _ask(served, "/", method="POST")[0] == 501


def test_a_name_may_be_asked_for_only_where_it_cannot_be_a_foreign_one() -> None:
    server = PageServer(PagePlace("0.0.0.0", 0), {})
    try:
        assert server.knows(f"192.0.2.7:{server.server_port}") and server.knows(f"localhost:{server.server_port}")
        assert not server.knows(f"evil.example:{server.server_port}") and not server.knows(None)
    finally:
        server.server_close()
    assert PagePlace.parse("8080") == ("127.0.0.1", 8080) and not PagePlace("0.0.0.0", 1).loopback


@pytest.mark.parametrize("place", ["127.0.0.1:99999", "nonsense", "127.0.0.1", ":80", "http://127.0.0.1:80"])
def test_a_wrong_place_is_one_sentence(place: str) -> None:
    with pytest.raises(InputError, match=r"--status must be host:port, such as 127\.0\.0\.1:8080, got"):
        serve_status(place, _status())


def test_an_address_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InputError, match=f"--status {place} cannot be listened to: Address already in use; give"):
            serve_status(place, _status())


def test_health_is_503_with_the_reason_while_the_broker_is_lost(served: PageServer) -> None:
    status = _status()
    assert status.healthy is None
    lost = Status(broker=False)
    status.watch(lost)
    assert status.healthy == "the broker cannot be reached"
    status.end("done")
    assert status.healthy is None


def test_metrics_are_prometheus_text_and_small_with_a_thousand_nodes() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    status = _status(1000)
    server = serve_status("127.0.0.1:0", status)
    try:
        code, text, headers = _ask(server, "/metrics")
    finally:
        server.close()

    samples = {
        (each.name, each.labels.get("node")): each.value
        for f in parser.text_string_to_metric_families(text)
        for each in f.samples
    }
    assert code == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert samples["sottovoce_node_there", "oslo"] == 0 and samples["sottovoce_node_there", "turin"] == 1
    assert samples["sottovoce_node_certificate_days", "lyon"] == 11 and samples["sottovoce_epsilon_spent", None] == 1
    assert samples["sottovoce_payload_up_bytes_total", None] == 1000
    assert len(packed(status.document())) < 200_000


def test_without_its_package_metrics_say_how_to_get_it(monkeypatch: pytest.MonkeyPatch, served: PageServer) -> None:
    monkeypatch.setattr("sottovoce.deployment.status.installed", lambda module: False)

    code, text, _ = _ask(served, "/metrics")

    assert code == 501 and "pip install 'sottovoce[metrics]'" in text


def test_what_was_never_measured_is_no_metric() -> None:
    told = {name: values for name, _, _, values in fleet_families(FleetStatus("a", 3, private=True).document())}

    assert told["sottovoce_accuracy"] == told["sottovoce_epsilon"] == told["sottovoce_round_cohort"] == []


def test_the_file_is_its_owners_alone_and_holds_the_last_word(tmp_path: Path) -> None:
    status = _status()
    with keeping(status, tmp_path):
        status.end("done")

    assert read_status(tmp_path)["state"] == "done"
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    (tmp_path / FILE).write_text('{"kind": "half')
    with pytest.raises(InputError, match="is damaged"):
        read_status(tmp_path)
    with pytest.raises(InputError, match="no server of a federation"):
        read_status(tmp_path / "elsewhere")


ASK = """<script>addEventListener("load", function () { setTimeout(function () {
  var told = {nodes: document.querySelectorAll("#nodes tr").length, text: document.querySelector("main").innerText,
    width: innerWidth, overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    paper: getComputedStyle(document.body).backgroundColor};
  document.body.setAttribute("data-told", JSON.stringify(told));
}, 1500); });</script>"""


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium here: apt-get install chromium")
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (400, True)])
def test_the_page_shows_the_nodes_in_a_browser(tmp_path: Path, width: int, dark: bool) -> None:
    status = _status()
    server = serve_status("127.0.0.1:0", status)
    content, kind, code, policy = server.routes["/"]()
    outer = (
        f'<iframe id="page" src="/" width="{width}" height="900"></iframe>{ASK}'  # chromium's least window is 500 px
    )
    outer = outer.replace("document.", "page.contentDocument.").replace("innerWidth", "page.contentWindow.innerWidth")
    outer = outer.replace("getComputedStyle", "page.contentWindow.getComputedStyle")
    outer = outer.replace("page.contentDocument.body.setAttribute", "document.body.setAttribute")
    server.routes["/outer"] = lambda: PageAnswer(outer.encode(), HTML)
    framed = policy.replace("frame-ancestors 'none'", "frame-ancestors 'self'")
    server.routes["/"] = lambda: PageAnswer(content, kind, code, framed)
    try:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
        flags += ["--virtual-time-budget=8000", "--dump-dom"]
        flags += ["--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
        command = [str(BROWSER), *flags, f"{server.address}outer"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    finally:
        server.close()

    told = json.loads(html.unescape(shown.split('data-told="', 1)[1].split('"', 1)[0]))
    assert told["nodes"] == 3 and told["width"] == width and told["overflow"] == 0
    for words in ("waits for lyon", "two processes use its key", "another experiment", "3.000", "11 days", "2 of 3"):
        assert words in told["text"]
    assert told["paper"] == ("rgb(20, 23, 26)" if dark else "rgb(253, 253, 251)")
