"""Metrics of the user's own: in rounds, summary, seeds and report; a wrong one is one sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.core.errors import InputError, PrivacyError, RunError
from sottovoce.report.runs import read_run
from sottovoce.report.tables import columns

RNG = np.random.default_rng(7)
X = RNG.standard_normal((400, 4)).astype(np.float32)
Y = 120 + 15 * (X @ np.array([1.0, -0.5, 0.3, 0.0])) + 2 * RNG.standard_normal(400)
CLASSES = (Y > 120).astype(int)
FEW: dict[str, Any] = {
    "clients": 8,
    "rounds": 2,
    "sample_rate": 1.0,
    "client_lr": 0.1,
    "workers": 1,
    "evaluate_every": 1,
}


def worst_error(values: Any, targets: Any) -> float:
    return float(np.abs(values - targets).max())


def brier(probabilities: Any, targets: Any) -> Any:
    assert probabilities.shape == (len(targets), 2)
    return np.square(probabilities[:, 1] - targets).mean()


def test_a_function_is_measured_in_every_round_in_the_units_of_the_label() -> None:
    test = (X[:100], Y[:100])
    result = sv.simulate((X[100:], Y[100:]), "linear", task="regression", test=test, metrics=[worst_error], **FEW)

    assert [record["worst_error"] for record in result.rounds][-1] == result["worst_error_final"]
    assert result["worst_error_final"] == pytest.approx(worst_error(result.predict(test[0]), test[1]), rel=1e-6)
    assert result["own_metrics"] == ["worst_error"]


def test_classes_come_as_probabilities_and_seeds_and_tables_show_the_metric() -> None:
    result = sv.simulate((X, CLASSES), "logistic", metrics=[brier], seeds=2, **{**FEW, "workers": 2})

    assert 0 < result["brier_final"] < 0.25
    assert result.over_seeds["metrics"]["brier_final"]["mean"] > 0
    shown = [column.key for column in columns([read_run(result.folder).summary])]
    assert "brier_final" in shown
    assert "brier_final" not in [column.key for column in columns([{"label": "a", "scheme": "b"}])]


def test_a_file_names_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_metric.py").write_text("def share(answers, labels):\n    return (answers[:, 1] > 0.9).mean()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = sv.simulate((X, CLASSES), "logistic", metrics=["mine_metric:share"], **FEW)

    assert result.config["model"]["metrics"] == ["mine_metric:share"]
    assert 0 <= result["share_final"] <= 1
    sys.modules.pop("mine_metric")


def fails(answers: Any, targets: Any) -> float:
    raise ValueError("no such thing\nsecond line")


def accuracy(answers: Any, targets: Any) -> float:
    return 1.0


def seconds(answers: Any, targets: Any) -> float:
    return 1.0


def later(answers: Any, targets: Any) -> float:
    return 1.0 if len(targets) < 10 else fails(answers, targets)


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ([fails], r"metric 'fails' fails on 8 records: ValueError: no such thing \(on made-up records"),
        ([lambda answers, targets: 1.0], "name of its function, got '<lambda>'"),
        ([accuracy], "metric 'accuracy' has a name that is taken"),
        ([seconds], "metric 'seconds' has a name that is taken"),
        ([brier, brier], "metric 'brier' has a name that is taken"),
        ([3], "must be functions or module:function, got int"),
        (["nowhere_at_all:f"], "module 'nowhere_at_all' cannot be imported.*PYTHONPATH"),
        (brier, "metrics= must be a list"),
    ],
)
def test_a_wrong_metric_is_one_sentence(metrics: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words) as caught:
        sv.simulate((X, CLASSES), "logistic", metrics=metrics, out=tmp_path / "run", **FEW)

    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_no_number_and_a_late_failure_are_sentences_too() -> None:
    def words(answers: Any, targets: Any) -> str:
        return "good"

    with pytest.raises(InputError, match="metric 'words' must return one number, got str"):
        sv.simulate((X, CLASSES), "logistic", metrics=[words], **FEW)
    with pytest.raises(RunError, match="metric 'later' fails on 80 records"):
        sv.simulate((X, CLASSES), "logistic", metrics=[later], **FEW)


def test_a_private_run_measures_it_on_others_records_only() -> None:
    keys = {**FEW, "clients": 100, "privacy": sv.Privacy(epsilon=8), "classes": 2}
    with pytest.raises(PrivacyError, match=r"'brier' is measured by the server.*clients cannot tell it"):
        sv.simulate((X, CLASSES), "logistic", metrics=[brier], **keys)
    others = RNG.standard_normal((50, 4)).astype(np.float32)
    result = sv.simulate(
        (X, CLASSES), "logistic", metrics=[brier], test=(others, np.arange(50) % 2), test_public=True, **keys
    )

    assert result["brier_final"] > 0
