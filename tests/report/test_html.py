from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

from sottovoce.core.errors import InputError
from sottovoce.report import page, read_run, read_runs, write_html

from .conftest import Maker

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'{{ 7919*7907 }}&amp;"


class Elements(HTMLParser):
    """Collect what a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] != "script":
            self.words.append(data)


def test_the_page_loads_nothing_from_anywhere(make_run: Maker) -> None:
    text = page(read_runs([make_run("a", name="a"), make_run("b", name="b", private=True)]))

    elements = Elements(text)
    assert elements.links == []
    assert not {"link", "iframe", "object", "embed", "base"} & set(elements.tags)
    ours = text.replace(get_plotlyjs(), "")
    assert not re.search(r"https?://|@import|url\(", ours)
    assert len(text) - len(ours) == len(get_plotlyjs())  # inlined, and once


def test_the_page_holds_table_figures_explanation_and_configs(make_run: Maker) -> None:
    runs = read_runs(
        [make_run("a", name="one", scheme="fl-std"), make_run("b", name="two", scheme="fl-top", private=True)]
    )

    text = page(runs)
    words = " ".join(" ".join(Elements(text).words).split())

    assert "2 runs on digits" in words
    assert "scheme.name" in words and "[privacy]" in words  # what they differ in
    for value in ("0.8200 (8)", "∞", "6.5", "1.00 kB", "3.20 kB", "papers' formula"):
        assert value in words
    for place in ("by-bytes", "by-round"):
        assert f'id="{place}"' in text and f'draw("{place}", {{"data":' in text
    assert "really serialised" in words
    assert "against outsiders and other clients" in words and "against the server" in words
    assert "seed = 1" in words
    assert f"sottovoce run {runs[0].path}/config.toml --out {runs[0].path}-again" in words


def test_hostile_names_are_words_and_nothing_else(make_run: Maker) -> None:
    calm = Elements(page([read_run(make_run("calm", summary={"public": "mnist"}))]))

    path = make_run("hostile", name=HOSTILE, scheme=f"{HOSTILE}!", source=HOSTILE, summary={"public": HOSTILE})
    (path / "config.toml").open("a").write(f"\n# {HOSTILE}\n")
    text = page([read_run(path)])

    assert Elements(text).tags == calm.tags
    ours = text.replace(get_plotlyjs(), "")
    assert "<script>alert" not in ours and "<img" not in ours and "62615533" not in ours
    assert HOSTILE in " ".join(Elements(text).words)


def test_an_unfinished_run_is_reported_as_such(make_run: Maker) -> None:
    text = page([read_run(make_run(rounds=50, done=9, finished=False))])

    assert "9 of 50, unfinished" in text
    assert "unfinished, round 9 of 50" in text


def test_simulated_privacy_is_said_beside_the_table(make_run: Maker) -> None:
    text = page([read_run(make_run(private=True, summary={"note": "simulated: not private"}))])

    assert "simulated: not private</b> — small" in text


def test_a_run_with_nothing_in_it_yet_still_makes_a_page(make_run: Maker) -> None:
    path = make_run(done=0, finished=False)
    (path / "config.toml").write_text("[experiment]\n")

    assert "no round has been evaluated yet" in page([read_run(path)])


def test_writing_replaces_the_old_file_in_one_step_and_leaves_no_draft(make_run: Maker, tmp_path: Path) -> None:
    target = tmp_path / "pages" / "report.html"

    write_html([read_run(make_run())], target)
    write_html([read_run(make_run("again"))], target)

    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [file.name for file in target.parent.iterdir()] == ["report.html"]


def test_a_place_that_cannot_be_written_is_refused_in_one_sentence(make_run: Maker, tmp_path: Path) -> None:
    run = read_run(make_run())
    (tmp_path / "file").write_text("x")

    for target in (tmp_path, tmp_path / "file" / "report.html"):
        with pytest.raises(InputError, match=r"--html .* cannot be written: .*; choose another file"):
            write_html([run], target)
    assert (tmp_path / "file").read_text() == "x"
