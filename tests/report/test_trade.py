from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.report.phases import client_bytes, phase_bars
from sottovoce.report.runs import Run, facts, read_run
from sottovoce.report.trade import COSTS, Point, front, points, trade_legend, trades

from .conftest import Maker

JOULES = {part: {"low": 1.0, "default": 2.0, "high": 3.0} for part in ("radio_bytes", "radio_sessions", "training")}


def _read(make_run: Maker, folder: str, **keys: Any) -> Run:
    return read_run(make_run(folder, name=folder, **keys))


def test_bytes_of_a_client_are_the_totals_over_all_clients_and_what_is_sent_once(make_run: Maker) -> None:
    votes = {"bytes_vote_up_total": 500, "bytes_vote_down_total": 100}
    run = _read(make_run, "run", bytes_up=1000, summary=votes)
    (record,) = facts([run])

    parts = client_bytes(run, record)

    assert {(part.phase, part.direction): part.size for part in parts} == {
        ("set-up", "down"): 32,
        ("vote", "up"): 5,
        ("vote", "down"): 1,
        ("rounds", "up"): 10 * 10 * 1000 / 100,
        ("rounds", "down"): 10 * 40_000 / 100,
    }


def test_phases_of_a_private_run_are_expected_ones_and_never_the_operators(make_run: Maker) -> None:
    phases = {"mask": {"up": 900, "down": 3000}, "unmask": {"up": 100, "down": 1000}}
    told = {"clients": 100, "expected_cohort": 10.0, "bytes_per_client_phase": phases}
    path = make_run(private=True, summary=told)
    measured = {"round": 1, "phases": {"mask": {"up": 7_654_321, "down": 1}}}
    (path / "operator.jsonl").write_text(json.dumps(measured) + "\n")
    run = read_run(path)

    parts = client_bytes(run, facts([run])[0])

    # Ten rounds, in each of which a client is drawn with probability 1/10.
    assert [(part.phase, part.direction, part.size) for part in parts[1:]] == [
        ("mask", "up", 900),
        ("mask", "down", 3000),
        ("unmask", "up", 100),
        ("unmask", "down", 1000),
    ]


def test_phases_of_a_run_that_is_not_private_are_the_measured_ones(make_run: Maker) -> None:
    path = make_run(done=2, rounds=2)
    lines = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        line["phases"] = {"share": {"up": 4000, "down": 30_000}, "mask": {"up": 6000, "down": 10_000}}
    (path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = read_run(path)

    sizes = {(part.phase, part.direction): part.size for part in client_bytes(run, facts([run])[0])}

    assert sizes["share", "up"] == 80 and sizes["mask", "down"] == 200 and ("rounds", "up") not in sizes


@pytest.mark.parametrize(
    "broken", [{"mask": {"up": 10**9, "down": 1}}, {"mask": {"up": -5, "down": 1}}, [], {"mask": 3}, "x"]
)
def test_phases_that_contradict_the_totals_are_not_shown(make_run: Maker, broken: Any) -> None:
    told = {"clients": 100, "expected_cohort": 10.0, "bytes_per_client_phase": broken}
    run = _read(make_run, "run", private=True, summary=told)

    parts = client_bytes(run, facts([run])[0])

    assert sum(part.size for part in parts) == pytest.approx(32 + 1000 + 4000)


def test_the_bars_say_which_bytes_are_expected(make_run: Maker) -> None:
    runs = [_read(make_run, "plain"), _read(make_run, "private", private=True)]
    figure = phase_bars(runs, facts(runs))

    assert figure is not None
    said = [note.text for note in figure.layout.annotations]
    assert said == ["plain: 5.03 kB", "private: 5.03 kB, expected"]
    assert {trace.name: trace.marker.pattern.shape for trace in figure.data} == {
        "set-up, down": "/",
        "rounds, up": "",
        "rounds, down": "/",
    }


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_the_front_is_what_no_other_run_beats(pairs: list[tuple[int, int]]) -> None:
    found: Any = [Point(cost, quality, None, {}) for cost, quality in pairs]  # type: ignore[arg-type]

    best = {(point.cost, point.quality) for point in front(found)}

    beaten = {
        (c, q) for c, q in pairs if any((d <= c and r > q) or (d < c and r >= q) for d, r in pairs)
    }  # the slow twin: compare each with each
    assert best == set(pairs) - beaten


def test_quality_is_that_of_the_final_model_and_a_broken_one_has_none(make_run: Maker) -> None:
    threat = {"attack": "random", "fraction": 0.1}
    runs = [_read(make_run, "sound"), _read(make_run, "broken", threat=threat, diverged=True)]

    (point,) = points(runs, facts(runs), COSTS["trade-bytes"], "accuracy")

    assert (point.record["label"], point.quality, point.cost) == ("sound", 0.8, 5032)


def test_the_smaller_epsilon_the_larger_the_mark_and_private_ones_are_hollow(make_run: Maker) -> None:
    runs = [
        _read(make_run, f"e{epsilon}", private=True, summary={"epsilon": epsilon}, bytes_up=round(100 * epsilon))
        for epsilon in (1.0, 3.0, 8.0)
    ]
    runs.append(_read(make_run, "open", bytes_up=5000))

    (_, _, figure) = trades(runs, facts(runs))[0]

    (marks,) = [trace for trace in figure.data if trace.mode == "markers"]
    sizes = dict(zip(marks.x, marks.marker.size, strict=True))
    ordered = [sizes[cost] for cost in sorted(sizes)]
    assert ordered == sorted(ordered, reverse=True) and len(set(ordered)) == 4
    assert [symbol.endswith("-open") for symbol in marks.marker.symbol] == [True, True, True, False]


def test_every_price_in_which_runs_differ_is_drawn_and_no_other(make_run: Maker) -> None:
    told = [{"epsilon": epsilon, "joules_per_client_run": JOULES} for epsilon in (1.0, 8.0)]
    runs = [_read(make_run, f"r{n}", private=True, summary=one) for n, one in enumerate(told)]
    energy = {part: {end: 2 * value for end, value in ends.items()} for part, ends in JOULES.items()}
    more = _read(make_run, "more", private=True, summary={"epsilon": 2.0, "joules_per_client_run": energy})

    assert [name for name, _, _ in trades(runs, facts(runs))] == ["trade-bytes", "trade-epsilon"]
    assert [name for name, _, _ in trades([*runs, more], facts([*runs, more]))][-1] == "trade-joules"


def test_pointing_at_a_run_tells_it_and_its_name_is_never_markup(make_run: Maker) -> None:
    run = read_run(make_run(name="<a href=x>y</a>", scheme="<i>", private=True))

    (_, _, figure) = trades([run], facts([run]))[0]

    (text,) = figure.data[0].text
    assert "&lt;a href=x&gt;" in text and "<a" not in text and "<i>" not in text and figure.data[0].name == "&lt;i&gt;"
    assert "0.75 against outsiders, 6.5 against the server" in text and "(expected)" in text
    assert trade_legend([run])[0][0] == "<i>"  # the page escapes it
