from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.report.figures import PALETTE, by_bytes, by_round, decades, legend, names_of, words
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
    runs, _ = read_runs([make_run("a", name="a"), make_run("b", name="b", bytes_up=other)])

    axis = by_bytes(runs).layout.xaxis

    assert axis.type == kind
    if kind == "log":
        assert all(text.endswith("B") for text in axis.ticktext)
        assert min(axis.tickvals) <= 10 * 10 * other * 10 and max(axis.tickvals) >= 10_000


@given(low=st.integers(1, 10**15), ratio=st.floats(10, 1e7))
def test_no_two_ticks_of_a_log_axis_have_the_same_label(low: int, ratio: float) -> None:
    ticks = decades(low, low * ratio)
    names = names_of(ticks)

    assert len(set(names)) == len(names) > 1 and ticks == sorted(set(ticks))


def test_the_digits_of_the_metric_are_left_to_plotly_which_tells_close_values_apart(make_run: Maker) -> None:
    axis = by_round([read_run(make_run())]).layout.yaxis

    assert (axis.tickformat, axis.tickvals, axis.dtick) == (None, None, None)
    assert axis.automargin


@pytest.mark.parametrize(("done", "step"), [(4, 1), (10, 1), (40, None)])
def test_few_rounds_are_numbered_one_by_one(make_run: Maker, done: int, step: int | None) -> None:
    assert by_round([read_run(make_run(rounds=40, done=done))]).layout.xaxis.dtick == step


def test_the_axis_says_that_bytes_of_private_runs_are_expected(make_run: Maker) -> None:
    new, old = make_run("new", private=True), make_run("old", private=True, older=True)

    assert "(private runs: expected)" in by_bytes([read_run(new)]).layout.xaxis.title.text
    assert "expected" not in by_bytes([read_run(old)]).layout.xaxis.title.text


@pytest.mark.parametrize("told", ["accuracy", "balanced_accuracy"])
def test_the_metric_that_chose_the_best_round_is_drawn(make_run: Maker, told: str) -> None:
    run = read_run(make_run(metrics=("accuracy", "balanced_accuracy"), summary={"selected_by": told}))

    assert by_round([run]).layout.yaxis.title.text == by_bytes([run]).layout.yaxis.title.text == words(told)


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
