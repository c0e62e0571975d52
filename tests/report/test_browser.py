"""Open the page in a real browser, without a window and without a network, and ask it what it sees."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.report import page, read_runs
from sottovoce.report.watch import Watch

from .conftest import _maker

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium here: apt-get install chromium")

LISTEN = """<script>
window.faults = [];
addEventListener("error", function (event) { faults.push(String(event.message)); });
addEventListener("unhandledrejection", function (event) { faults.push(String(event.reason)); });
addEventListener("securitypolicyviolation", function (event) { faults.push("refused " + event.blockedURI); });
</script>"""
ASK = """<script>
addEventListener("load", function () { setTimeout(async function () {
  var told = {};
  try {
    told.plots = Array.from(document.querySelectorAll(".plot")).map(function (plot) {
      return [plot.id, plot.querySelectorAll(".main-svg").length, plot.querySelectorAll(".trace, .bars").length,
              plot.parentNode.querySelectorAll(".tools button").length];
    });
    told.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    told.width = innerWidth;
    told.paper = getComputedStyle(document.body).backgroundColor;
    told.ink = getComputedStyle(document.querySelector(".xtitle")).fill;
    told.loaded = performance.getEntriesByType("resource").length;
    var drawn = document.getElementById("trade-bytes"), figure = {data: drawn.data, layout: drawn.layout};
    told.png = (await picture(figure, "a", "png", 300, 200)).slice(0, 22);
    var svg = await picture(figure, "<b> & co", "svg", 300, 200);
    var mark = drawn.querySelector(".trace path[transform]").getBoundingClientRect();
    drawn.dispatchEvent(new PointerEvent("pointermove", {clientX: mark.x + 3, clientY: mark.y + 3}));
    told.tip = drawn.querySelector(".tip").hidden ? "" : drawn.querySelector(".tip").textContent;
    told.svg = decodeURIComponent(svg);
    told.figure = figureCsv(document.getElementById("by-round"));
    var table = document.querySelector(".sorts table"), heads = table.tHead.rows[1].cells;
    var names = function () {
      return Array.from(table.tBodies[0].rows).filter(function (row) { return !row.hidden; }).map(function (row) {
        return row.cells[0].textContent; });
    };
    var place = Array.from(heads).findIndex(function (head) { return head.textContent === "outsiders"; });
    heads[place].click(); told.ascending = names();
    heads[place].click(); told.descending = names();
    sift("FL-TOP paper"); told.sifted = names(); told.table = tableCsv(table); sift("");
    told.faults = faults.slice();
    await fetch("http://127.0.0.1:9/").catch(function () {});
    await new Promise(function (done) { setTimeout(done, 50); });
    told.refused = faults.slice(told.faults.length);
  } catch (problem) { told.problem = String(problem); told.faults = faults; }
  parent.postMessage(JSON.stringify(told), "*");
}, 1500); });
</script>"""
FRAME = """<!doctype html><meta charset="utf-8"><body><script>
addEventListener("message", function (event) {
  var told = document.createElement("pre");
  told.id = "told";
  told.textContent = event.data;
  document.body.appendChild(told);
});
</script><iframe src="PAGE" style="width: WIDTHpx; height: 900px; border: 0"></iframe>"""

Look = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Look:
    """Return what shows the page of four runs at a width, and returns what the browser says of it."""
    folder = tmp_path_factory.mktemp("browser")
    make = _maker(folder)
    threat = {"attack": "in-backdoor", "fraction": 0.1, "of": "cohort", "source": 1, "target": 2}
    audit = {"epsilon": 1.0, "epsilon_lower": 0.5, "confidence": 0.95, "accused": False}
    runs = [
        make("std", name="=cmd()", metrics=("accuracy", "loss")),
        make("top", name='a "quoted", <b>name</b>', scheme="fl-top", private=True, bytes_up=200, audit=audit),
        make("tight", name="tight", scheme="fl-top", private=True, bytes_up=250, summary={"epsilon": 0.1}),
        make("hit", name="hit", scheme="fl-cs", threat=threat, by_class=[0.9, 0.2, 0.9], success=0.5),
    ]
    rng = np.random.default_rng(1)
    np.savez(runs[0] / "model-best.npz", **{"1.kernel": rng.standard_normal(500).astype(np.float32)})
    (runs[0] / "broken").mkdir()
    text = page(*read_runs([*runs, runs[0] / "broken"]))
    probed = folder / "page.html"
    probed.write_text(
        text.replace("<head>", "<head>" + LISTEN, 1).replace("</body>", ASK + "</body>"), encoding="utf-8"
    )

    def show(width: int, *flags: str) -> dict[str, Any]:
        frame = folder / f"frame-{width}.html"
        frame.write_text(FRAME.replace("PAGE", probed.as_uri()).replace("WIDTH", str(width)), encoding="utf-8")
        words = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", *flags]
        words += ["--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1500,1000"]
        words += [f"--user-data-dir={folder / f'profile-{width}'}", "--virtual-time-budget=20000"]
        words += ["--enable-logging=stderr", "--dump-dom", frame.as_uri()]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        found = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)
        assert found, done.stderr[-2000:]
        told: dict[str, Any] = json.loads(html.unescape(found[1]))
        # The one thing that the page is made to say to the console is our own forbidden question.
        said = [line for line in done.stderr.splitlines() if "CONSOLE" in line and "127.0.0.1:9" not in line]
        return told | {"console": said}

    return show


@pytest.fixture(scope="module")
def desk(look: Look) -> dict[str, Any]:
    return look(1300)


def test_every_figure_is_drawn_and_can_be_saved_and_nothing_goes_wrong(desk: dict[str, Any]) -> None:
    assert desk.get("problem") is None and desk["faults"] == [] and desk["console"] == []
    assert {name for name, *_ in desk["plots"]} == {
        *("trade-bytes", "trade-epsilon", "by-bytes", "by-round", "by-round-loss", "epsilon-by-round", "phases"),
        *("weights", "curve-0", "audit-epsilon"),
    }
    for name, papers, traces, buttons in desk["plots"]:
        assert papers > 0 and traces > 0 and buttons == 3, name


def test_nothing_is_loaded_and_a_request_is_refused_by_the_page_itself(desk: dict[str, Any]) -> None:
    assert desk["loaded"] == 0
    assert desk["refused"] == ["refused http://127.0.0.1:9/"]


def test_pictures_stand_alone_on_white_with_a_title_that_is_no_markup(desk: dict[str, Any]) -> None:
    assert desk["png"] == "data:image/png;base64,"
    assert ">&lt;b&gt; &amp; co</text>" in desk["svg"] and "rgb(255, 255, 255)" in desk["svg"]


def test_pointing_at_a_mark_tells_its_run(desk: dict[str, Any]) -> None:
    assert "accuracy" in desk["tip"]


def test_a_csv_has_every_point_and_no_cell_is_run_by_a_spreadsheet(desk: dict[str, Any]) -> None:
    lines = desk["figure"].splitlines()

    assert lines[0] == "series,round,accuracy,note"
    assert lines[1] == "'=cmd(),2,0.58," and len(lines) == 1 + 4 * 5
    assert '"a ""quoted"", <b>name</b>",2,0.58,' in lines


def test_a_table_is_sorted_by_value_with_the_unknown_last_and_filtered_by_words(desk: dict[str, Any]) -> None:
    top, (up, down) = 'a "quoted", <b>name</b>', (desk["ascending"], desk["descending"])

    assert up[:2] == ["tight", top] and down[2:4] == [top, "tight"]  # 0.1, 0.75, infinity twice
    assert up[4].endswith("broken") and down[4].endswith("broken")
    assert desk["sifted"] == [top, "tight"]
    assert desk["table"].count("\n") == 3 and "epsilon against: outsiders" in desk["table"]


def test_on_a_phone_in_the_dark_nothing_is_wider_than_the_screen_and_ink_is_light(look: Look) -> None:
    told = look(390, "--force-dark-mode")

    assert told.get("problem") is None and told["faults"] == [] and told["console"] == []
    assert told["width"] == 390 and told["overflow"] <= 0
    assert told["paper"] == "rgb(20, 23, 26)" and told["ink"] == "rgb(230, 233, 236)"
    assert all(traces > 0 for _, _, traces, _ in told["plots"])


def test_a_followed_page_loads_itself_anew_when_its_run_goes_on(tmp_path: Path) -> None:
    path = _maker(tmp_path)(private=True, finished=False, rounds=50, done=9)
    record = {"round": 10, "bytes_up": 1, "bytes_down": 1, "epsilon": 1.0, "accuracy": 0.9}

    class Advancing(Watch):
        asked = 0

        def page(self) -> bytes:
            self.asked += 1
            made = super().page()
            if self.asked == 1:  # the run goes on after the page was made
                with (path / "rounds.jsonl").open("a") as file:
                    file.write(json.dumps(record) + "\n")
            return made

    with Advancing([path]) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        words = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        words += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=9000", "--enable-logging=stderr"]
        done = subprocess.run([*words, "--dump-dom", server.address], capture_output=True, text=True, check=False)
        server.shutdown()
        thread.join()

    assert server.asked == 2 and "10 of 50, unfinished" in done.stdout
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
