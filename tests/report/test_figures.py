from __future__ import annotations

import json
from itertools import product

import pytest

from sottovoce.report.figures import PALETTE, by_bytes, by_round, legend
from sottovoce.report.runs import read_run, read_runs

from .conftest import Maker


def test_the_bytes_are_those_of_the_rounds_added_up(make_run: Maker) -> None:
    figure = by_bytes([read_run(make_run(bytes_up=1000))])

    (trace,) = figure.data
    assert list(trace.x) == [20_000, 40_000, 60_000, 80_000, 100_000]
    assert list(trace.y) == pytest.approx([0.58, 0.66, 0.74, 0.82, 0.8])


@pytest.mark.parametrize(("other", "kind"), [(1000, None), (9_999, None), (10_001, "log"), (50, "log")])
def test_bytes_get_a_log_axis_only_when_runs_differ_more_than_tenfold(
    make_run: Maker, other: int, kind: str | None
) -> None:
    runs = read_runs([make_run("a", name="a"), make_run("b", name="b", bytes_up=other)])

    axis = by_bytes(runs).layout.xaxis

    assert axis.type == kind
    if kind == "log":
        assert all(text.endswith("B") for text in axis.ticktext)
        assert min(axis.tickvals) <= 10 * 10 * other * 10 and max(axis.tickvals) >= 10_000


def test_balanced_accuracy_is_drawn_where_every_run_has_it(make_run: Maker) -> None:
    medical = read_run(make_run("a", metrics=("accuracy", "balanced_accuracy")))
    plain = read_run(make_run("b"))

    assert by_round([medical]).layout.yaxis.title.text == "balanced accuracy"
    assert by_round([medical, plain]).layout.yaxis.title.text == "accuracy"


def test_a_private_twin_has_the_colour_of_its_scheme_and_is_dashed(make_run: Maker) -> None:
    kinds = list(product(("fl-std", "fl-top"), (False, True)))
    runs = [read_run(make_run(f"{scheme}-{private}", scheme=scheme, private=private)) for scheme, private in kinds]

    lines = [trace.line for trace in by_round(runs).data]

    assert lines[0].color == lines[1].color != lines[2].color == lines[3].color
    assert [line.dash for line in lines] == ["solid", "dash", "solid", "dash"]
    assert [(color, dashed) for _, color, dashed, _ in legend(runs)] == [
        (line.color, line.dash == "dash") for line in lines
    ]


def test_forty_runs_of_one_scheme_all_look_different(make_run: Maker) -> None:
    runs = [read_run(make_run(f"run{index}")) for index in range(40)]

    traces = by_round(runs).data

    assert len({(trace.line.color, trace.marker.symbol) for trace in traces}) == 40
    assert {trace.line.color for trace in traces} == set(PALETTE)


def test_a_run_that_was_not_evaluated_yet_draws_an_empty_figure_that_says_so(make_run: Maker) -> None:
    run = read_run(make_run(done=1, finished=False))

    for figure in (by_bytes([run]), by_round([run])):
        assert "no round has been evaluated" in figure.layout.annotations[0].text
        json.loads(figure.to_json())


def test_names_cannot_be_read_as_links(make_run: Maker) -> None:
    (trace,) = by_round([read_run(make_run(name='<a href="x">y</a>'))]).data

    assert "<" not in trace.name
