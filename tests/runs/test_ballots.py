"""Runs whose clients cast ballots."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.elsewhere import gather_without_records
from sottovoce.config.experiment import load
from sottovoce.core.errors import ConfigError, InputError, PrivacyError
from sottovoce.planning.plan import plan
from sottovoce.runs.loop import run
from tests.runs.played import ONE, Tables, killed, ledger, model
from tests.runs.small import small

PRIVATE = {"noise_multiplier": 0.5, "clip_norm": 1.0, "delta": 1e-3}
SIGNS = {"noise_multiplier": 0.5, "delta": 1e-3}
IDEAL = {"secure": "ideal-ballot"}


def test_plan_tells_one_vote_and_one_message() -> None:
    told = plan(small(privacy=PRIVATE, aggregation=IDEAL))

    assert told["bytes_up_per_client_round"] == 82 + 144
    assert told["votes"] == told["most_per_coordinate"] == 1
    assert (told["ballot"], told["secure"]) == ("rotated", "ideal-ballot")
    assert told["privacy"]["epsilon_both_aggregators"] is None
    assert told["epsilon_server"] > told["epsilon"] == told["epsilon_member"]


def test_both_accounts_are_charged_for_every_round(tmp_path: Path) -> None:
    summary = run(small(privacy=PRIVATE, aggregation=IDEAL, engine=ONE), tmp_path / "run")

    kinds = [
        [json.loads(line)["kind"] for line in (tmp_path / "run" / name).read_text().splitlines()]
        for name in ("ledger.jsonl", "helper-ledger.jsonl")
    ]
    assert [row.count("charge") for row in kinds] == [6, 6]
    assert kinds[1][1:3] == ["ballots", "charge"]
    assert summary["ballot"] == "rotated" and summary["bytes_up_per_client_round"] == 226
    assert summary["votes"] == 1


def test_little_noise_lets_a_model_learn_by_votes(tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "experiment": {"rounds": 20, "evaluate_every": 20},
        "data": {"clients": 100},
        "cohort": {"sample_rate": 1.0},
        "client": {"local_steps": 4, "client_lr": 0.5},
        "privacy": {"noise_multiplier": 1.0, "clip_norm": 1.0, "delta": 1e-3},
    }

    summary = run(small(**tables, aggregation=IDEAL, engine=ONE), tmp_path / "run")

    assert summary["accuracy_final"] > 0.8


def test_a_resumed_run_ends_with_the_same_model_and_the_same_account(tmp_path: Path) -> None:
    experiment = small(privacy=PRIVATE, aggregation=IDEAL, engine=ONE)
    run(experiment, tmp_path / "whole")

    class Stop:
        def on_round(self, record: dict[str, Any], state: object) -> None:
            if record["round"] == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "cut", callbacks=[Stop()])
    run(experiment, tmp_path / "cut", resume=True)

    np.testing.assert_array_equal(model(tmp_path / "whole"), model(tmp_path / "cut"))


@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_a_run_is_not_resumed_with_an_account_of_the_helper_that_does_not_know_its_rounds(
    how: str, tmp_path: Path
) -> None:
    """The helper would count every client anew, and the cap of participations would be void."""
    experiment = small(privacy=PRIVATE, aggregation=IDEAL, engine=ONE)

    class Stop:
        def on_round(self, record: dict[str, Any], state: object) -> None:
            if record["round"] == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path, callbacks=[Stop()])
    account = tmp_path / "helper-ledger.jsonl"
    kept = account.read_text()
    if how == "lost":
        account.unlink()
    else:
        account.write_text(kept.replace('"clients": [', '"clients": [99, ', 1))

    with pytest.raises(PrivacyError, match=r"helper-ledger\.jsonl (has charged rounds up to 0|line 2 is damaged)"):
        run(experiment, tmp_path, resume=True)
    account.write_text(kept)
    assert run(experiment, tmp_path, resume=True)["rounds"] == 6


def test_a_run_that_starts_its_own_helper_ends_with_the_model_of_the_ideal_count(tmp_path: Path) -> None:
    two = {"rounds": 2, "evaluate_every": 2}
    told = [
        run(small(experiment=two, privacy=PRIVATE, aggregation={"secure": secure}, engine=ONE), tmp_path / secure)
        for secure in ("ideal-ballot", "ballot")
    ]

    np.testing.assert_array_equal(model(tmp_path / "ideal-ballot"), model(tmp_path / "ballot"))
    assert told[0]["bytes_up_total"] == told[1]["bytes_up_total"]
    assert told[1]["secure_overhead_up_bytes_per_client_round"] == 144


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({}, "add \\[privacy\\]"),
        ({"privacy": {**PRIVATE, "mechanism": "gaussian"}}, "mechanism"),
        ({"privacy": {**PRIVATE, "bits": 12}}, "bits"),
        ({"privacy": {"noise_multiplier": 0.5, "delta": 1e-3, "clipping": "adaptive"}}, "adaptive"),
        ({"privacy": PRIVATE, "scheme": {"name": "fl-once"}, "cohort": {"sample_rate": 1}}, "fl-once"),
        ({"privacy": SIGNS, "scheme": {"name": "fl-sign"}, "aggregation": {**IDEAL, "ballot": "rotated"}}, "signs"),
        ({"privacy": PRIVATE, "threat": {"attack": "gradient-ascent", "fraction": 0.1, "boost": 5}}, "one bit"),
        ({"privacy": PRIVATE, "aggregation": {"secure": "ideal", "ballot": "sign"}}, "ballot is for"),
    ],
)
def test_what_ballots_cannot_do_is_refused_in_one_sentence(tables: dict[str, Any], words: str) -> None:
    with pytest.raises((ConfigError, PrivacyError), match=words):
        small(**{"aggregation": IDEAL, **tables})


@pytest.mark.parametrize("form", ["sign", "rotated"])
def test_attackers_of_a_ballot_have_one_vote_each(form: str, tmp_path: Path) -> None:
    threat = {"attack": "gradient-ascent", "fraction": 0.2}
    experiment = {"rounds": 2, "evaluate_every": 2}
    summary = run(
        small(experiment=experiment, privacy=PRIVATE, aggregation={**IDEAL, "ballot": form}, threat=threat, engine=ONE),
        tmp_path / "run",
    )

    assert summary["attack_boost"] == 1.0


def test_nobody_counts_ideally_between_machines() -> None:
    with pytest.raises(InputError, match="is not played between machines"):
        gather_without_records(small(privacy=PRIVATE, aggregation={"secure": "ideal-ballot"}))


def test_the_headline_is_one_message_of_646_bytes_at_epsilon_1_against_each_aggregator() -> None:
    told = plan(load(Path(__file__).parents[2] / "experiments" / "fashion-ballots-dp.toml"))

    assert told["bytes_up_per_client_round"] == 646 and told["votes"] == 1
    assert 0.99 < told["epsilon_server"] <= 1 and told["epsilon"] == pytest.approx(0.684, abs=1e-3)


@pytest.mark.slow
@pytest.mark.skipif("SOTTOVOCE_SLOW" not in os.environ, reason="takes half a minute; set SOTTOVOCE_SLOW to run it")
def test_a_leader_killed_when_it_is_charged_resumes_to_the_same_model(tmp_path: Path) -> None:
    tables: Tables = {
        "experiment": {"rounds": 3},
        "privacy": PRIVATE,
        "aggregation": {"secure": "ballot"},
        "engine": ONE,
    }
    run(small(**tables), tmp_path / "whole")

    killed(tables, tmp_path / "cut", 2)
    assert ("charge", 2) in ledger(tmp_path / "cut")
    run(small(**tables), tmp_path / "cut", resume=True)

    np.testing.assert_array_equal(model(tmp_path / "whole"), model(tmp_path / "cut"))
    sessions = [json.loads(line).get("session") for line in (tmp_path / "cut" / "helper-ledger.jsonl").open()]
    assert len({session for session in sessions if session}) == 2
