"""What a private run may publish tells nothing of the cohorts that were drawn; the operator's file has all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from sottovoce.assembly.overrides import Stop
from sottovoce.checks.twin import few
from sottovoce.cli import main
from sottovoce.core.errors import RunError
from sottovoce.core.streams import Seeds, Streams
from sottovoce.federation.engines.local import LocalEngine
from sottovoce.planning.plan import plan
from sottovoce.privacy import PrivacyPlan
from sottovoce.runs.evaluation import no_patience_left
from sottovoce.runs.folder import read_operator, read_rounds, read_summary
from sottovoce.runs.loop import run
from sottovoce.runs.records import OPERATOR_ONLY
from sottovoce.schemes import State
from tests.runs.small import small

PRIVACY = {"noise_multiplier": 2.0, "delta": 1e-2, "clip_norm": 0.5, "accountant": "rdp"}
VOTE = {"scheme": {"name": "fl-top", "ratio": 0.1}, "privacy": {**PRIVACY, "vote_noise_multiplier": 3.0}}
ONE = {"workers": 1}
CASES: dict[str, dict[str, Any]] = {
    "ideal": {"privacy": PRIVACY},
    "real": {"privacy": PRIVACY, "aggregation": {"secure": "real"}},
    "vote": VOTE,
}


def keys(document: Any) -> Iterator[str]:
    """Yield every key of a JSON document, however deep."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            yield from keys(value)
    elif isinstance(document, list):
        for value in document:
            yield from keys(value)


def byte_fields(document: Any) -> dict[str, Any]:
    """Return the fields of a record that count bytes, or follow from bytes."""
    return {key: value for key, value in document.items() if "bytes" in key or key.startswith("secure_")}


@pytest.mark.parametrize("case", CASES)
def test_runs_that_differ_in_their_cohorts_alone_publish_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    experiment = small(**CASES[case], engine=ONE)
    one = run(experiment, tmp_path / "one")
    monkeypatch.setattr(Seeds, "server", property(lambda self: Streams(99)))
    other = run(experiment, tmp_path / "other")

    drawn = [[record["cohort"] for record in read_operator(tmp_path / name)] for name in ("one", "other")]
    assert drawn[0] != drawn[1], "the cohorts did differ"
    assert byte_fields(one) == byte_fields(other)
    rounds = [byte_fields(record) for name in ("one", "other") for record in read_rounds(tmp_path / name)]
    assert all(record == rounds[0] for record in rounds), "and they are equal in every round"
    assert one["bytes_up_total"] == 6 * rounds[0]["bytes_up"] == 60 * one["bytes_up_per_client_round"]
    assert one["bytes_down_total"] == 6 * rounds[0]["bytes_down"] == 60 * one["bytes_down_per_client_round"]
    assert one["seconds"] is other["seconds"] is None
    assert one.keys() == other.keys()


@pytest.mark.parametrize("case", CASES)
def test_nothing_that_may_be_published_has_a_key_of_the_operators(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    folder = tmp_path / "run"
    # Somebody leaves in every round, so that there are failures to hide.
    leave = [[round_, client, "mask"] for round_ in range(7) for client in range(3)]
    dropouts = {"devices": {"leave": leave}, "aggregation": {"threshold": 0.6, **CASES[case].get("aggregation", {})}}
    summary = run(small(**{**CASES[case], **dropouts}, engine=ONE), folder)
    assert main(["report", str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)

    published = [summary, read_summary(folder), read_rounds(folder), report]
    # The key "seconds" of a summary is promised to every reader; here it is null.
    assert {key for document in published for key in keys(document)} & set(OPERATOR_ONLY) <= {"seconds"}
    assert not {key for record in read_rounds(folder) for key in record} & set(OPERATOR_ONLY)
    assert (summary["seconds"], report["runs"][0]["seconds"]) == (None, None)
    told = [record for record in read_operator(folder) if record["round"] > 0]
    assert [record["round"] for record in told] == [1, 2, 3, 4, 5, 6]
    assert all({"cohort", "senders", "bytes_up", "bytes_down", "seconds"} <= set(record) for record in told)
    assert any("failures" in record for record in told)


def test_a_run_that_is_not_private_keeps_everything_in_one_place(tmp_path: Path) -> None:
    summary = run(small(engine=ONE), tmp_path / "run")

    assert not (tmp_path / "run" / "operator.jsonl").exists()
    assert all({"cohort", "senders", "seconds"} <= set(record) for record in read_rounds(tmp_path / "run"))
    assert summary["seconds"] > 0
    assert summary["failures"] == 0


@pytest.mark.parametrize("scheme", ["fl-std", "fl-sign", "fl-rnd"])
@pytest.mark.parametrize(
    "aggregation", [{"secure": "ideal"}, {"secure": "real"}, {"secure": "real", "key_life": "session"}], ids=str
)
def test_expected_bytes_are_the_real_ones_when_everybody_takes_part(
    tmp_path: Path, aggregation: dict[str, Any], scheme: str
) -> None:
    clip = {"clip_norm": 0.5} if scheme != "fl-sign" else {}
    privacy = {"noise_multiplier": 2.0, "delta": 1e-2, "accountant": "rdp", **clip}
    experiment = few(scheme, experiment={"rounds": 2}, aggregation=aggregation, privacy=privacy, engine=ONE)

    summary = run(experiment, tmp_path / "run")
    costs = plan(experiment)

    real = read_operator(tmp_path / "run")
    published = read_rounds(tmp_path / "run")
    for way in ("up", "down"):
        assert published[1][f"bytes_{way}"] == real[1][f"bytes_{way}"]
        assert summary[f"bytes_{way}_total"] == sum(record[f"bytes_{way}"] for record in real)
        assert summary[f"bytes_{way}_per_client_round"] == real[1][f"bytes_{way}"] / 9
    assert byte_fields(summary).items() <= {**byte_fields(costs), **_not_planned(summary)}.items()


def _not_planned(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: summary[key] for key in ("paper_cost_up_bytes", "paper_cost_down_bytes")}


def test_the_operators_file_is_rewound_with_the_rounds(tmp_path: Path) -> None:
    experiment = small(**VOTE, engine=ONE)
    run(experiment, tmp_path / "whole")
    run(experiment, tmp_path / "cut")
    (tmp_path / "cut" / "summary.json").unlink()
    with (tmp_path / "cut" / "operator.jsonl").open("a") as file:  # a kill between the two files, in the middle
        file.write('{"round": 7, "cohort": 3}\n{"round": 8, "coh')

    run(experiment, tmp_path / "cut", resume=True)

    assert [record["round"] for record in read_operator(tmp_path / "cut")] == list(range(7))
    (tmp_path / "cut" / "summary.json").unlink()
    (tmp_path / "cut" / "operator.jsonl").unlink()
    with pytest.raises(RunError, match=r"operator.jsonl in .* the checkpoint of round 6, or lacks rounds before it"):
        run(experiment, tmp_path / "cut", resume=True)


def test_a_plan_asks_no_client_and_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        pytest.fail("a client was asked, or a private sum was opened")

    monkeypatch.setattr(PrivacyPlan, "recover", refuse)
    timed = plan(small(**VOTE, engine=ONE), measure=True)
    monkeypatch.setattr(LocalEngine, "send", refuse)
    costs = plan(small(**VOTE, engine=ONE))

    assert timed["seconds_per_round"] > 0
    assert costs["seconds_per_round"] is costs["seconds_total"] is None
    assert byte_fields(timed) == byte_fields(costs)
    assert costs["bytes_vote_up_total"] > costs["bytes_up_per_round"]


def test_a_plan_of_real_sums_is_timed_without_opening_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivacyPlan, "recover", lambda *_, **__: pytest.fail("a private sum was opened"))

    assert plan(few(privacy=PRIVACY, aggregation={"secure": "real"}, engine=ONE), measure=True)["seconds_total"] > 0
    assert plan(few("sign-sgd", engine=ONE), measure=True)["seconds_total"] > 0


def test_given_the_cohorts_size_the_noise_is_far_too_small() -> None:
    """The number that docs/privacy.md gives for publishing cohort sizes: the pair of sampling a fixed size."""
    rate, rounds = 1 / 60, 200

    def delta(noise_multiplier: float) -> float:
        once = privacy_loss_distribution.from_gaussian_mechanism(
            noise_multiplier, sampling_prob=rate, value_discretization_interval=1e-4
        )
        return float(once.self_compose(rounds).get_delta_for_epsilon(1.0))

    assert delta(1.2244) == pytest.approx(1e-5, rel=1e-3)
    assert delta(1.2244 / 2) == pytest.approx(0.0655, abs=5e-4)


# The best round.


def two_classes(path: Path) -> Path:
    """Write records of two classes, one of them rare, whose accuracies disagree about the best round."""
    rng = np.random.default_rng(1)
    y = (rng.random(600) < 0.15).astype(np.int64)
    x = (rng.standard_normal((600, 6)) + 0.5 * y[:, None]).astype(np.float32)
    np.savez(path, x_train=x[:400], y_train=y[:400], x_test=x[400:], y_test=y[400:])
    return path


def test_the_best_round_names_its_metric_and_keeps_its_model(tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "data": {"source": str(two_classes(tmp_path / "own.npz"))},
        "client": {"client_lr": 0.3},
        "engine": ONE,
    }
    summary = run(small(experiment={"rounds": 12, "evaluate_every": 1}, **tables), tmp_path / "run")
    best = summary["best_round"]
    rounds = read_rounds(tmp_path / "run")

    assert summary["selected_by"] == "balanced_accuracy"
    assert best == max(rounds, key=lambda record: record["balanced_accuracy"])["round"]
    assert best != max(rounds, key=lambda record: record["accuracy"])["round"], "the two metrics disagree here"
    assert summary["accuracy_best"] == rounds[best - 1]["accuracy"]
    assert summary["balanced_accuracy_best"] == rounds[best - 1]["balanced_accuracy"]
    assert best < 12
    run(small(experiment={"rounds": best, "evaluate_every": best}, **tables), tmp_path / "shorter")
    kept = (tmp_path / "run" / "model-best.npz").read_bytes()
    assert kept == (tmp_path / "shorter" / "model.npz").read_bytes()
    assert kept != (tmp_path / "run" / "model.npz").read_bytes()


def test_epsilon_at_the_best_round_is_that_of_all_rounds(tmp_path: Path) -> None:
    summary = run(small(experiment={"evaluate_every": 1}, privacy=PRIVACY, engine=ONE), tmp_path / "run")
    rounds = read_rounds(tmp_path / "run")

    assert summary["selected_by"] == "accuracy"
    assert summary["epsilon_best_round"] == summary["epsilon"] == summary["privacy"]["epsilon"] > 0
    assert rounds[-1]["epsilon_spent"] > rounds[0]["epsilon_spent"]


def test_patience_looks_at_the_metric_that_selects() -> None:
    rounds = [
        {"held_out_accuracy": 0.9, "held_out_balanced_accuracy": 0.5},
        {"held_out_accuracy": 0.8, "held_out_balanced_accuracy": 0.7},
        {"round": 3},
        {"held_out_accuracy": 0.7, "held_out_balanced_accuracy": None},
    ]

    assert not no_patience_left(rounds, 1, "held_out_balanced_accuracy")
    assert no_patience_left(rounds, 1, "held_out_accuracy")


class StopIn3:
    """Callback that ends a run after round 3, which is not evaluated."""

    def on_round(self, record: dict[str, Any], _: State) -> None:
        if record["round"] == 3:
            raise Stop


def test_a_best_model_that_is_gone_is_said(tmp_path: Path) -> None:
    run(small(engine=ONE), tmp_path / "run", callbacks=[StopIn3()])
    (tmp_path / "run" / "summary.json").unlink()
    (tmp_path / "run" / "model-best.npz").unlink()

    with pytest.raises(RunError, match=r"model-best.npz is missing, the model of round \d; restore it"):
        run(small(engine=ONE), tmp_path / "run", resume=True)


def test_a_best_model_of_the_checkpoint_itself_is_written_again(tmp_path: Path) -> None:
    best, summary = tmp_path / "run" / "model-best.npz", tmp_path / "run" / "summary.json"
    told = run(small(engine=ONE), tmp_path / "run")
    content = best.read_bytes()
    summary.unlink()
    best.unlink()

    assert told["best_round"] == 6
    assert run(small(engine=ONE), tmp_path / "run", resume=True) == told
    assert best.read_bytes() == content
