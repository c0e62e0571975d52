"""One sentence says which run to take, and never one that is accused, weak, or private on paper without saying so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import sottovoce.report
from sottovoce.report import page, read_runs
from sottovoce.report.decision import decide

from .conftest import Maker


def record(label: str, accuracy: float, server: float | None = None, **more: Any) -> dict[str, Any]:
    return {
        "label": label,
        "status": "finished",
        "accuracy_final": accuracy,
        "private": server is not None,
        "epsilon_server": server,
        "bytes_up_per_client_round": 1000,
        **more,
    }


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([record("a", 0.7, 3.0), record("b", 0.9, 7.0), record("c", 0.95)], "epsilon_server ≤ 4: a, accuracy 0.7"),
        ([record("b", 0.9, 7.0), record("c", 0.95)], "epsilon_server ≤ 8: b"),
        ([record("b", 0.9, 70.0)], "No private run keeps epsilon_server ≤ 16; the smallest is 70, of b."),
        (
            [record("b", float("nan"), 1.1)],
            "has a measured accuracy, so none is chosen; the smallest epsilon_server is 1.1",
        ),
        ([record("c", 0.95)], "No run is private. The best of the others: c"),
        ([record("a", 0.9, 3.0, audit={"accused": True, "reasons": ["it leaks"]})], "choose none"),
        ([record("a", 0.9, 3.0), record("b", 0.8, 2.0, deployed=True)], "It was simulated"),
    ],
)
def test_the_sentence_takes_the_best_private_run_within_the_least_bound(records: list[Any], words: str) -> None:
    assert words in decide(records, "accuracy")


def test_a_deployed_run_is_not_called_simulated() -> None:
    assert "simulated" not in decide([record("b", 0.8, 2.0, deployed=True)], "accuracy")


def test_warnings_come_first_then_the_decision_then_how_to_read(make_run: Maker) -> None:
    accused = {"epsilon": 1.0, "epsilon_lower": 2.0, "confidence": 0.95, "accused": True, "reasons": ["it leaks"]}
    text = page(*read_runs([make_run("a", name="a", private=True, audit=accused), make_run("b", name="b")]))

    places = [text.index(words) for words in ("Accused", 'class="decision"', "How to read this", "<dl", "Side by side")]
    assert places == sorted(places) and len(text) < 1_000_000
    assert "yes, intact" not in text


def luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("dark", [False, True])
def test_words_stand_out_on_their_paper_by_day_and_in_the_dark(dark: bool) -> None:
    css = (Path(sottovoce.report.__file__).parent / "page.css").read_text()
    block = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[1 if dark else 0]
    colors = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
    for ink in ("ink", "soft"):
        for paper in ("paper", "raised", "mark", "alarm"):
            high, low = sorted((luminance(colors[ink]), luminance(colors[paper])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, paper)


def test_of_errors_the_smallest_is_the_best() -> None:
    runs = [record("far", 0, 3.0, mae_final=9.0), record("near", 0, 3.5, mae_final=2.0)]

    assert "≤ 4: near, mean absolute error 2.0" in decide(runs, "mae")
    assert "others: near" in decide([each | {"private": False} for each in runs], "mae")
