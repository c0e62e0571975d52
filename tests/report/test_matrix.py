from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from sottovoce.core.errors import InputError
from sottovoce.report import facts, read_run
from sottovoce.report.matrix import MatrixView, matrix_tables, remarks, views
from sottovoce.report.png import write_robustness_png
from sottovoce.report.robustness import SeedGroup, cells

from .conftest import Maker

BACKDOOR = {"attack": "in-backdoor", "fraction": 0.1, "source": 1, "target": 2}
RANDOM = {"attack": "random", "fraction": 0.1}


def _cells(make_run: Maker, *runs: dict[str, Any]) -> list[SeedGroup]:
    read = []
    for index, keys in enumerate(runs):
        summary = {"accuracy_best": keys.pop("accuracy", 0.9)}
        read.append(read_run(make_run(f"run{index}", **{"name": f"r{index}", "summary": summary} | keys)))
    return cells(read, facts(read))


def _drawn(*renderables: object, width: int = 200) -> str:
    text = io.StringIO()
    console = Console(file=text, width=width)
    for renderable in renderables:
        console.print(renderable)
    return text.getvalue()


def _texts(view: MatrixView) -> list[list[str]]:
    return [[view.text(cell) for cell in row] for row in view.cells]


def test_cells_are_three_digits_a_dash_where_all_diverged_and_empty_where_there_is_no_run(make_run: Maker) -> None:
    found = _cells(
        make_run,
        {"scheme": "fl-sign", "threat": RANDOM, "accuracy": 0.98765},
        {"scheme": "fl-std", "threat": RANDOM, "diverged": True},
        {"scheme": "fl-std", "accuracy": 0.5},
    )

    (view,) = views(found, "accuracy")

    assert (view.rows, view.columns) == (("fl-sign", "fl-std"), (("no attack", ""), ("random", "10 %")))
    assert _texts(view) == [["", "0.988"], ["0.500", "-"]]
    assert [[view.share(cell) for cell in row] for row in view.cells] == [[None, 0.98765], [0.5, None]]
    assert view.headings == [("no attack", 1), ("random", 1)]


def test_an_average_that_leaves_runs_out_says_so_and_an_unfinished_run_is_marked(make_run: Maker) -> None:
    found = _cells(
        make_run,
        {"threat": RANDOM, "accuracy": 0.9, "seed": 1},
        {"threat": RANDOM, "accuracy": 0.8, "seed": 2},
        {"threat": RANDOM, "diverged": True, "seed": 3},
        {"threat": RANDOM | {"fraction": 0.2}, "finished": False, "done": 4},
    )

    (view,) = views(found, "accuracy")

    assert _texts(view) == [["0.850 (2/3)", "0.660*"]]
    told = "; ".join(remarks(found))
    for words in (
        "average of 1 to 3 runs that differ in their seeds",
        "-: diverged",
        "(2/3): 1 of 3 runs diverged",
        "*: a run",
    ):
        assert words in told


def test_a_cell_tells_its_runs_their_spread_and_what_went_wrong(make_run: Maker) -> None:
    found = _cells(
        make_run,
        {"threat": BACKDOOR, "accuracy": 0.9, "seed": 1, "success": 0.25, "by_class": [0.5, 0.75], "rejected": (1, 2)},
        {"threat": BACKDOOR, "accuracy": 0.8, "seed": 2, "success": 0.75, "by_class": [0.5, 0.75]},
        {"threat": BACKDOOR, "seed": 3, "diverged": True},
        {},
    )
    view = views(found, "accuracy")[0]

    honest, attacked = (view.words(cell) for cell in found)

    assert honest == "fl-std, no attack: accuracy 0.9000 — run r3"
    assert attacked == (
        "fl-std, in-backdoor 10 %, source 1, target 2: accuracy 0.8500 (0.8000 to 0.9000); attack success 0.5000 "
        "(0.2500 to 0.7500); accuracy on the attacked class 0.7500 (0.7500 to 0.7500); 1 of 3 diverged; 2 rounds "
        "rejected — average of 3 runs: r0, r1, r2"
    )


def test_a_cell_tells_what_the_run_filled_in(make_run: Maker) -> None:
    filled = {"accuracy_best": 0.9, "attack_boost": 3.0, "attack_source": 0, "attack_target": 1}
    found = _cells(
        make_run,
        {"threat": {"attack": "out-backdoor", "fraction": 0.1, "of": "cohort", "stddev": 200.0}, "summary": filled},
        {},
    )

    assert views(found, "accuracy")[0].words(found[1]) == (
        "fl-std, out-backdoor 10 %, of cohort, boost 3.0, source 0, target 1: accuracy 0.9000 — run r0"
    )


def test_targeted_attacks_have_views_of_their_own_with_their_columns_alone(make_run: Maker) -> None:
    found = _cells(
        make_run,
        {"threat": BACKDOOR, "success": 0.6, "by_class": [0.5, 0.25]},
        {"threat": RANDOM},
        {},
    )

    drawn = views(found, "accuracy")

    assert [view.quantity for view in drawn] == ["accuracy", "attack_success", "class_accuracy"]
    assert [len(view.columns) for view in drawn] == [3, 1, 1]
    assert [_texts(view) for view in drawn[1:]] == [[["0.600"]], [["0.250"]]]


def test_one_column_draws_nothing_anywhere(make_run: Maker, tmp_path: Any) -> None:
    found = _cells(make_run, {"threat": RANDOM}, {"threat": RANDOM, "scheme": "fl-top"})

    assert views(found, "accuracy") == [] and matrix_tables(found, "accuracy", 80) == []
    with pytest.raises(InputError, match="more than one attack or fraction"):
        write_robustness_png([], [], tmp_path / "x.png")
    assert views([], "accuracy") == [] and remarks([]) == []


@pytest.mark.parametrize(("width", "tables"), [(200, 1), (60, 2), (20, 8)])
def test_a_narrow_terminal_gets_the_matrix_in_parts_with_every_value_whole(
    make_run: Maker, width: int, tables: int
) -> None:
    runs = [
        {"scheme": scheme, "threat": {"attack": attack, "fraction": fraction}, "accuracy": accuracy / 1000}
        for accuracy, (scheme, attack, fraction) in enumerate(
            ((s, a, f) for s in ("fl-std", "fl-sign") for a in ("random", "in-backdoor") for f in (0.1, 0.2, 0.4, 0.6)),
            start=900,
        )
    ]
    found = _cells(make_run, *runs)

    drawn = matrix_tables(found, "accuracy", width)
    text = _drawn(*drawn, width=max(width, 24))

    assert len(drawn) == tables
    assert max(len(line.rstrip()) for line in text.splitlines()) <= max(width, 24)  # a name and one column
    assert sorted(re.findall(r"0\.\d{3}", text)) == [f"{value / 1000:.3f}" for value in range(900, 916)]


def test_the_terminal_says_what_is_averaged_and_what_a_column_does_not_tell(make_run: Maker) -> None:
    found = _cells(
        make_run,
        {"threat": BACKDOOR | {"boost": 7}, "seed": 1},
        {"threat": BACKDOOR | {"boost": 7}, "seed": 2},
        {"scheme": "fl-cs", "threat": BACKDOOR | {"boost": 1}, "seed": 1},
        {"scheme": "fl-cs", "threat": BACKDOOR | {"boost": 1}, "seed": 2},
        {"seed": 1},
        {"seed": 2},
    )

    text = _drawn(*matrix_tables(found, "accuracy", 200))

    assert "a cell is the average of 2 runs that differ in their seeds" in text
    assert "within a column, runs differ in [threat] boost" in text
    assert "diverged" not in text and "unfinished" not in text


def test_a_run_that_was_made_twice_is_not_called_another_seed(make_run: Maker) -> None:
    found = _cells(make_run, {"threat": RANDOM}, {"threat": RANDOM}, {})

    assert remarks(found) == ["a cell is the average of 1 to 2 runs in the same place"]


def test_names_in_the_matrix_are_never_read_as_markup(make_run: Maker) -> None:
    found = _cells(make_run, {"scheme": "[red]x", "threat": RANDOM | {"attack": "[bold]y"}}, {"scheme": "[red]x"})

    text = _drawn(*matrix_tables(found, "accuracy", 200))

    assert "[red]x" in text and "[bold]y" in text


def test_the_picture_is_a_whole_png_or_svg(make_run: Maker, tmp_path: Any) -> None:
    found = _cells(make_run, {"threat": RANDOM, "diverged": True}, {}, {"threat": BACKDOOR, "success": 0.5})

    write_robustness_png(views(found, "accuracy"), remarks(found), tmp_path / "deep" / "x.png")
    write_robustness_png(views(found, "accuracy"), remarks(found), tmp_path / "x.svg")

    content = (tmp_path / "deep" / "x.png").read_bytes()
    assert content.startswith(b"\x89PNG") and content.rstrip().endswith(b"IEND\xaeB`\x82")
    assert (tmp_path / "x.svg").read_text().rstrip().endswith("</svg>")
