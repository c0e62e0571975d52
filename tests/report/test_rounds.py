from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sottovoce.report.html import page
from sottovoce.report.rounds import MANY, budgets, epsilon_spent, round_figures
from sottovoce.report.runs import Run, read_run
from sottovoce.report.weights import read_weights, weight_figure

from .conftest import Maker


def _read(make_run: Maker, folder: str, **keys: Any) -> Run:
    return read_run(make_run(folder, name=folder, **keys))


def test_every_metric_that_was_recorded_has_a_figure_and_the_leading_one_is_first(make_run: Maker) -> None:
    metrics = ("accuracy", "balanced_accuracy", "auroc", "loss")
    run = _read(make_run, "run", metrics=metrics, private=True)

    assert [drawn.name for drawn in round_figures([run])] == [
        *("by-bytes", "by-round", "by-round-accuracy", "by-round-auroc", "by-round-loss", "epsilon-by-round")
    ]
    assert [drawn.name for drawn in round_figures([_read(make_run, "plain")])] == ["by-bytes", "by-round"]


def test_epsilon_is_drawn_round_by_round_rounded_up_below_its_budget(make_run: Maker) -> None:
    path = make_run("private", private=True)
    text = (path / "config.toml").read_text()
    (path / "config.toml").write_text(text.replace("[privacy]", "[privacy]\nepsilon = 2.5"))
    lines = (path / "rounds.jsonl").read_text().replace('"epsilon_spent": 0.3', '"epsilon_spent": 0.300012')
    (path / "rounds.jsonl").write_text(lines)
    runs = [read_run(path), _read(make_run, "plain")]

    figure = epsilon_spent(runs)

    assert figure is not None and budgets(runs) == [2.5]
    assert list(figure.data[0].y)[:3] == [0.1, 0.2, 0.3001] and not figure.data[1].x
    assert [note.text for note in figure.layout.annotations] == ["budget 2.5"]
    assert figure.layout.yaxis.range[1] > 2.5
    assert epsilon_spent([_read(make_run, "other")]) is None


def test_many_runs_become_panels_on_one_scale_and_no_run_is_lost(make_run: Maker) -> None:
    runs = [
        _read(make_run, f"r{n}", scheme=("fl-std", "fl-top")[n % 2], private=n % 4 > 1, bytes_up=10 ** (n % 3 + 1))
        for n in range(MANY + 22)
    ]

    for drawn in round_figures(runs)[:2]:
        names = [trace.name for panel in drawn.panels for trace in panel.figure.data]
        assert sorted(names) == sorted(run.name for run in runs)
        for axis in ("xaxis", "yaxis"):
            scales = {panel.figure.layout[axis].range for panel in drawn.panels}
            assert len(scales) == 1 and None not in scales
        for panel in drawn.panels:
            colors = [trace.line.color for trace in panel.figure.data]
            assert len(set(colors)) == len(colors) and [look[1] for look in panel.legend] == colors
            assert [look[0] for look in panel.legend] == [trace.name for trace in panel.figure.data]
    text = page(runs)
    assert "fl-top, private (2 of 2)" in text and 'id="by-bytes-0"' in text


def test_few_runs_share_one_figure(make_run: Maker) -> None:
    runs = [_read(make_run, f"r{n}") for n in range(MANY)]

    assert [len(drawn.panels) for drawn in round_figures(runs)] == [1, 1]


def _save(run: Run, name: str, weights: list[float]) -> None:
    np.savez(run.path / name, **{"1.kernel": np.array(weights, np.float32)})


def test_the_weights_drawn_are_those_that_fl_top_trains_in_every_run(make_run: Maker) -> None:
    top, std = _read(make_run, "top", scheme="fl-top"), _read(make_run, "std")
    _save(top, "model-best.npz", [0.1, 5.0, 0.2, 6.0])
    _save(top, "model.npz", [0.1, 5.5, 0.2, 6.5])
    _save(std, "model-best.npz", [1.0, 2.0, 3.0, 4.0])

    found = read_weights([top, std])

    assert [values.tolist() for values in found.values if values is not None] == [[5.0, 6.0], [2.0, 4.0]]
    assert "those that FL-TOP trains" in found.which
    _save(top, "model.npz", [0.1, 5.0, 0.2, 6.0])  # one model: nothing tells which
    assert read_weights([top, std]).which == "all weights"


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"x" * 99])
def test_a_damaged_model_takes_its_line_and_nothing_else(make_run: Maker, content: bytes) -> None:
    sound, broken = _read(make_run, "sound"), _read(make_run, "broken")
    _save(sound, "model-best.npz", [0.5, -0.5, 0.25])
    (broken.path / "model-best.npz").write_bytes(content)

    drawn = weight_figure([sound, broken])

    assert drawn is not None
    lines = drawn[1].data
    assert sum(share or 0 for share in lines[0].y) == pytest.approx(1, abs=1e-3) and not lines[1].x
    assert weight_figure([broken]) is None


def test_weights_of_many_runs_with_gaps_are_panels_too(make_run: Maker) -> None:
    runs = [_read(make_run, f"r{n}") for n in range(MANY + 2)]
    for run in runs[1:]:
        _save(run, "model-best.npz", [0.5, -0.5, 0.25])

    text = page(runs)

    assert "Weights of the model of the best round, all weights" in text and 'id="weights-1"' in text
