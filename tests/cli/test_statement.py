from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import Shell
from .test_ledger import PRIVATE

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture
def run(shell: Shell, here: Path) -> Path:
    assert shell("run", "small.toml", *PRIVATE, "--out", "run", "--quiet").code == 0
    return here / "run"


def test_a_statement_is_written_and_verified(shell: Shell, run: Path) -> None:
    outcome = shell("statement", "run", "--html", "s.html", "--out", "s.json", "--json")

    assert outcome.code == 0 and outcome.json() == json.loads(Path("s.json").read_text())
    assert Path("s.html").stat().st_size < 300_000
    for name in ("s.html", "s.json", "run"):
        assert shell("verify", name).code == 0, name
    assert shell("verify", "s.html", "--strict").code == 3
    assert shell("verify", "s.html", "--run", "run", "--strict", "--json").json()["verdict"] == "true"
    shown = shell("statement", "run")
    assert "protects nobody" in shown.out and "the server" in shown.out and "not protected" in shown.out


def test_what_is_false_exits_3_and_names_it_first(shell: Shell, run: Path) -> None:
    summary = (run / "summary.json").read_text()
    (run / "summary.json").write_text(summary.replace('"accuracy_final": 0.', '"accuracy_final": 1.'))

    outcome = shell("verify", "run")

    assert outcome.code == 3
    assert outcome.out.splitlines()[1].split()[:3] == ["FALSE", "file", "summary.json"]


def test_a_run_that_is_not_there_or_not_finished_is_refused_in_one_sentence(shell: Shell, run: Path) -> None:
    for path in ("nowhere", "small.toml"):
        assert shell("statement", path).code == 2
    assert shell("verify", "nowhere").code == 2
    assert shell("verify", "run", "--run", "run").code == 2
    (run / "summary.json").unlink()
    outcome = shell("statement", "run")
    assert outcome.code == 2 and "not finished" in outcome.err


def test_a_run_without_privacy_promises_nothing(shell: Shell, finished: Path) -> None:
    document = shell("statement", str(finished), "--json").json()

    assert document["in_one_sentence"].startswith("This run is not private")
    assert all(each["epsilon"] is None for each in document["against"])
    assert shell("verify", str(finished)).code == 0


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium here: apt-get install chromium")
def test_the_page_opens_in_a_browser_and_prints(shell: Shell, run: Path) -> None:
    shell("statement", "run", "--html", "s.html")
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={run.parent / 'chrome'}"]
    page = Path("s.html").resolve().as_uri()

    seen = subprocess.run([*command, "--dump-dom", page], capture_output=True, text=True, timeout=90, check=True).stdout
    subprocess.run([*command, "--print-to-pdf=s.pdf", page], capture_output=True, timeout=90, check=True)

    assert "Against whom" in seen and "98" in seen
    assert Path("s.pdf").read_bytes().startswith(b"%PDF")


def test_a_name_cannot_write_into_the_page(shell: Shell, here: Path) -> None:
    from sottovoce.statement.page import read_statement, statement_page

    assert shell("run", "small.toml", "--out", "run", "--quiet").code == 0
    document = shell("statement", "run", "--json").json()
    document["name"] = document["records"]["population"] = "</script><script>alert(1)</script>"
    page = statement_page(document)
    (here / "x.html").write_text(page)

    assert "<script>alert" not in page
    assert read_statement(here / "x.html")[0] == document


@pytest.mark.parametrize("option", ["--html", "--out"])
def test_a_place_that_cannot_be_written_is_one_sentence(shell: Shell, run: Path, option: str) -> None:
    for place in (".", "run/config.toml/below.html"):
        outcome = shell("statement", "run", option, place)

        assert outcome.code == 2 and f"{option} {place} cannot be written" in outcome.err
