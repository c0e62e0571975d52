from __future__ import annotations

from typing import Any

import pytest

from sottovoce.report.figures import by_round
from sottovoce.report.html import page
from sottovoce.report.quality import chance, lines, matrices, weak
from sottovoce.report.runs import facts, read_run
from sottovoce.report.tables import notes, warnings

from .conftest import Maker

WEAK = "no better than always answering 'no' (0.86)"


def judged(accuracy: float, verdict: str | None) -> dict[str, Any]:
    quality = {
        "records": 100,
        "accuracy": accuracy,
        "baseline": {"answer": "no", "accuracy": 0.86},
        "verdict": verdict,
        "level": 0.95,
        "intervals": {"accuracy": [accuracy - 0.05, accuracy + 0.05]},
        "classes": ["no", "<yes>"],
        "accuracy_by_class": [1.0, 0.0],
        "worst_class": {"name": "<yes>", "accuracy": 0.0},
        "confusion": [[86, 0], [14, 0]],
        "sensitivity": 0.0,
        "specificity": 1.0,
        "calibration_error": 0.1,
        "calibration": [],
        "try": [] if verdict is None else ["more rounds"],
    }
    told = {"accuracy_final": accuracy, "accuracy_best": accuracy, "best_round": 10}
    return told | {"baseline_accuracy": 0.86, "verdict": verdict, "quality": quality, "quality_reason": None}


def test_a_weak_model_is_named_before_the_table_below_it_and_on_the_page(make_run: Maker) -> None:
    run = read_run(make_run(summary=judged(0.86, WEAK)))
    records = facts([run])

    assert warnings(records) == [f"small: the final model is {WEAK}"]
    assert (f"the final model is {WEAK}; try: more rounds", "small") in notes(records)
    written = page([run])
    assert "No better than a constant answer" in written
    assert "always answering &#39;no&#39; (0.86)" in written


def test_a_coin_is_not_highlighted_as_the_best_run(make_run: Maker) -> None:
    coin = read_run(make_run("coin", name="coin", summary=judged(0.86, WEAK)))
    good = read_run(make_run("good", name="good", summary=judged(0.84, None)))

    written = page([coin, good])

    assert "<span>highest accuracy, best round</span><b>0.8400</b><span>good</span>" in written


def test_figures_have_a_line_of_chance(make_run: Maker) -> None:
    run = read_run(make_run(summary=judged(0.9, None)))

    (line,) = by_round([run]).layout.shapes

    assert line.y0 == line.y1 == 0.86
    assert chance([run], "accuracy") == (0.86, "always 'no': 0.86")
    assert chance([run], "auroc") == (0.5, "chance 0.5")
    assert chance([run], "loss") is None
    assert chance([read_run(make_run("old"))], "accuracy") is None


def test_the_page_has_the_confusion_matrix_and_escapes_the_classes(make_run: Maker) -> None:
    run = read_run(make_run(summary=judged(0.9, None)))

    written = page([run])

    assert "taken for &lt;yes&gt;" in written and "taken for <yes>" not in written
    assert matrices(facts([run]))[0].rows[1] == ("<yes>", ["14", "0"], "0.0000")


@pytest.mark.parametrize("broken", [3, [], {"confusion": 1, "classes": ["a"]}, {"intervals": {"accuracy": [1]}}])
def test_a_strange_quality_of_another_version_breaks_no_report(make_run: Maker, broken: Any) -> None:
    run = read_run(make_run(summary={"quality": broken, "verdict": 7}))

    page([run])
    assert weak(facts([run])[0]) is None


def test_a_run_that_is_not_judged_says_why() -> None:
    assert lines({"quality": None, "quality_reason": "nothing was measured"}) == {
        "quality": "not judged: nothing was measured"
    }
