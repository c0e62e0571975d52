from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sottovoce.core.errors import InputError
from sottovoce.report import facts, page, read_run, read_runs, write_html
from sottovoce.report.html import _CHARACTERS
from sottovoce.report.tables import _natural_width, split

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
    text = page(*read_runs([make_run("a", name="a"), make_run("b", name="b", private=True)]))

    elements = Elements(text)
    assert elements.links == []
    assert not {"link", "iframe", "object", "embed", "base"} & set(elements.tags)
    ours = text.replace("http://www.w3.org/2000/svg", "")  # a name, which nothing is loaded from
    assert not re.search(r"https?://|@import|url\([^#]", ours.replace('"url(#"', ""))
    assert len(text) < 150_000


def test_the_page_holds_table_figures_explanation_and_configs(make_run: Maker) -> None:
    runs, _ = read_runs(
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
    assert "against outsiders, who hold no client" in words and "against the server" in words
    assert "seed = 1" in words
    assert f"sottovoce run {runs[0].path}/config.toml --out {runs[0].path}-again" in words


def test_the_page_says_for_how_many_honest_clients_one_counts_where_a_run_knows(make_run: Maker) -> None:
    runs = [make_run("masks", private=True, summary={"votes": 11.24}), make_run("older", private=True)]
    words = [" ".join(" ".join(Elements(page(*read_runs(chosen))).words).split()) for chosen in (runs, runs[1:])]

    assert "one client counts for A honest ones" in words[0] and "honest ones (A)" in words[0]
    assert "counts for A" not in words[1] and "honest ones (A)" not in words[1]


@pytest.mark.parametrize(("metric", "title"), [("accuracy", "Accuracy"), ("balanced_accuracy", "Balanced accuracy")])
def test_titles_axes_and_highlights_name_the_metric_that_chose_the_best_round(
    make_run: Maker, metric: str, title: str
) -> None:
    told = {"selected_by": metric, "balanced_accuracy_best": 0.6123}
    metrics = ("accuracy", "balanced_accuracy")
    runs = [make_run(name, name=name, metrics=metrics, summary=told) for name in ("a", "b")]

    text = page(*read_runs(runs))

    words = title.lower()
    assert f"<figcaption>{title} for the bytes sent<" in text and f"<figcaption>{title} by round<" in text
    titles = re.findall(r'draw\("(.*?)", .*?"yaxis":{.*?"title":{.*?"text":"(.*?)"', text)
    assert dict(titles) | {"by-bytes": words, "by-round": words} == dict(titles)
    assert f"highest {words}, best round" in text and f"chosen by {words} on test data" in text


def test_a_table_that_a_window_of_1400_pixels_cannot_show_is_two(make_run: Maker) -> None:
    told = {"balanced_accuracy_best": 0.6, "balanced_accuracy_final": 0.6, "auroc_best": 0.7, "auroc_final": 0.7}
    told |= {"secure_overhead_up_bytes_per_client_round": 12_090.0, "secure_expansion": 1.8945}
    wide = read_run(make_run("wide", private=True, summary=told | {"joules_per_client": 12.5}))

    assert page([wide]).count("<table>") == 2
    assert page([read_run(make_run("narrow"))]).count("<table>") == 1
    for part in split(facts([wide]), 0):
        assert _natural_width(part, facts([wide]), 14) <= _CHARACTERS


def test_damaged_runs_and_broken_ledgers_are_on_the_page_beside_the_sound_runs(make_run: Maker) -> None:
    broken, cheated = make_run("broken"), make_run("cheated", name="cheated", private=True)
    (broken / "config.toml").write_text("<b>")
    ledger = cheated / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace("charge", "gift"))

    text = page(*read_runs([broken, make_run("sound", name="sound"), cheated]))

    assert f'<th scope="row">{broken}</th>' in text and ">damaged</td>" in text
    assert "<b>damaged: " in text and "<b>the ledger does not prove epsilon: " in text
    assert ">sound</th>" in text and "2 runs on digits" in text


BACKDOOR = {"attack": "in-backdoor", "fraction": 0.1, "of": "cohort", "source": 1, "target": 2}


def _attacked(make_run: Maker, **keys: object) -> list[Path]:
    hit = {"threat": BACKDOOR, "by_class": [0.9, 0.2, 0.9], "success": 0.7} | keys
    return [make_run("calm", name="calm"), make_run("hit", name="hit", **hit)]


def test_a_page_without_attacks_and_audits_has_nothing_of_them(make_run: Maker) -> None:
    text = page([read_run(make_run())])

    body = text[text.index("</style>") :]
    for word in (
        "Robustness",
        "Under attack",
        "Class by class",
        "curve-",
        "audit",
        "diverged",
        "Attack success",
        "alarm",
    ):
        assert word not in body


def test_attacks_bring_matrix_curves_classes_and_their_explanation(make_run: Maker) -> None:
    runs, _ = read_runs(_attacked(make_run))

    text = page(runs)
    words = " ".join(" ".join(Elements(text).words).split())

    assert "in-backdoor; 10 % of the cohort malicious; some runs without" in words
    for title in ("Accuracy, best round", "Attack success, best round", "Accuracy on the attacked class, best round"):
        assert f"<h3>{title}</h3>" in text
    assert 'style="--share: 0.8200" title="fl-std, no attack: accuracy 0.8200 — run calm"' in text
    assert 'style="--share: 0.7000"' in text and 'style="--share: 0.2000"' in text
    assert 'id="curve-0"' in text and 'draw("curve-0", {"data":' in text and "curve-1" not in text
    assert "0.2000<small>attacked</small>" in text and "0.9000<small>target</small>" in text
    assert "share of test records of the attacked class" in words and "training diverged" not in words


def test_a_run_that_diverged_is_a_hatched_dash_and_never_the_highest(make_run: Maker) -> None:
    runs, _ = read_runs(_attacked(make_run, diverged=True, summary={"accuracy_best": 0.99}))

    text = page(runs)

    assert re.search(r'class="cell broken" title="[^"]*diverged[^"]*">-</td>', text)
    assert "<b>0.8200</b><span>calm</span>" in text and "0.9900" not in text
    assert "<b>-</b> in place of an accuracy means that training diverged" in text


def test_a_dozen_curves_are_drawn_and_the_others_when_they_are_opened(make_run: Maker) -> None:
    runs = [read_run(make_run(f"r{index}", threat=BACKDOOR, success=0.5)) for index in range(14)]

    text = page(runs)

    assert "<summary>2 more</summary>" in text
    opened = text.index('addEventListener("toggle"')
    assert all(text.index(f'draw("curve-{index}"') < opened for index in range(12))
    assert all(text.index(f'draw("curve-{index}"') > opened for index in (12, 13))


def test_an_audit_is_drawn_beside_the_proof_and_an_accusation_stands_at_the_top(make_run: Maker) -> None:
    audit = {"epsilon": 1.0, "epsilon_lower": 2.0, "confidence": 0.95, "accused": True, "reasons": ["<b>leaks</b>"]}
    audit["note"] = "a lower bound is no proof"
    text = page([read_run(make_run(private=True, audit=audit))])

    assert text.index('role="alert"') < text.index("Side by side")
    assert "&lt;b&gt;leaks&lt;/b&gt;" in text and "<b>leaks" not in text
    assert 'draw("audit-epsilon"' in text and "audit-epsilon_server" not in text
    assert "with a confidence of 95 %" in text and ">a lower bound is no proof</p>" in text


def test_many_runs_that_share_a_highlight_are_not_all_named(make_run: Maker) -> None:
    text = page([read_run(make_run(f"r{index}")) for index in range(7)])

    assert "<span>r0, r1, r2, r3 and 3 more</span>" in text


def test_hostile_names_are_words_and_nothing_else(make_run: Maker) -> None:
    audit = {"epsilon": 1, "epsilon_lower": 2, "confidence": 0.9, "accused": True, "reasons": ["x"]}
    keys = {"by_class": [0.9, 0.2, 0.9], "success": 0.5, "audit": audit}
    path = make_run("calm", scheme="fl-top", source="mnist", summary={"public": "mnist"}, threat=BACKDOOR, **keys)
    calm = Elements(page([read_run(path), read_run(make_run("other", name="other"))]))

    hit = {"threat": BACKDOOR | {"attack": HOSTILE, "of": HOSTILE}, **keys, "audit": audit | {"reasons": [HOSTILE]}}
    path = make_run("hostile", name=HOSTILE, scheme=f"{HOSTILE}!", source=HOSTILE, summary={"public": HOSTILE}, **hit)
    (path / "config.toml").open("a").write(f"\n# {HOSTILE}\n")
    (path / "preprocessing.json").write_text(json.dumps({"class_names": [HOSTILE, "b", "c"]}))
    text = page([read_run(path), read_run(make_run("another", name="other"))])

    assert Elements(text).tags == calm.tags
    ours = text
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
