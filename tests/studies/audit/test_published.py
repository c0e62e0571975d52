"""What a run publishes is equal in worlds that differ in secrets alone; there is no chance in these tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.cli import main
from sottovoce.config.experiment import Experiment
from sottovoce.runs.folder import read_operator
from sottovoce.studies.audit.published import played_worlds, published
from sottovoce.threats.audit.finding import AuditFinding
from tests.studies.audit import breaks
from tests.studies.audit.small import federation, quickly

DRAWN, THERE, RECORDS = "who was drawn", "whether a client is there", "what the records are"
MEASURED = {
    "experiment": {"evaluation": "federated"},
    "client": {"held_out": 0.2},
    "privacy": {"evaluation_noise_multiplier": 3.0},
}


def found(experiment: Experiment) -> list[AuditFinding]:
    plan = protect(gather(experiment)).plan
    assert plan is not None
    return published(experiment, plan, quickly(), 5)


def worlds_of(checks: list[AuditFinding]) -> list[str]:
    return [each.name.removeprefix("published, ") for each in checks if each.name.startswith("published, ")]


def accused(experiment: Experiment) -> set[str]:
    return set(worlds_of([each for each in found(experiment) if each.p_value == 0]))


@pytest.mark.parametrize(
    ("scheme", "tables"),
    [
        ("fl-std", {}),
        ("fl-std", MEASURED),
        ("fl-top", {"privacy": {"vote_noise_multiplier": 2.0}}),
        ("fl-std", {"privacy": {"clipping": "adaptive", "count_stddev": 1.0}}),
        ("fl-sign", {"aggregation": {"secure": "ideal-ballot"}}),
    ],
    ids=["rounds", "measurements", "vote", "adaptive", "ballots"],
)
def test_three_worlds_publish_the_same(scheme: str, tables: dict[str, dict[str, object]]) -> None:
    checks = found(federation(scheme, **tables))

    assert worlds_of(checks) == [DRAWN, THERE, RECORDS]
    assert {"short run, rounds charged", "short run, secrets of cohorts"} <= {each.name for each in checks}
    assert [each.sentence for each in checks if each.p_value == 0] == []


def test_an_audit_spends_nothing_of_the_budget_of_a_population(tmp_path: Path) -> None:
    file = tmp_path / "population.ledger"
    keys = {"budget": str(file), "budget_epsilon": 20.0, "budget_delta": 0.05}

    assert [each.sentence for each in found(federation(privacy=keys)) if each.p_value == 0] == []
    assert not file.exists()


def test_where_everybody_is_asked_nobody_is_drawn() -> None:
    assert worlds_of(found(federation(cohort={"sample_rate": 1}))) == [THERE, RECORDS]


@pytest.mark.parametrize(
    ("broken", "worlds"),
    [
        (breaks.model_divided_by_the_realised_cohort, {DRAWN}),
        (breaks.model_divided_by_those_who_answered, {DRAWN, THERE}),
        (breaks.cohort_size_in_the_records, {DRAWN}),
        (breaks.cohort_sizes_in_the_summary, {DRAWN}),
        (breaks.failures_counted_in_the_records, {THERE}),
        (breaks.callbacks_hear_who_was_drawn, {DRAWN}),
        (breaks.downlink_tells_the_cohort, {DRAWN}),
        (breaks.records_measured_without_noise, {RECORDS}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_number_beyond_the_sums_is_found(
    broken: Callable[[pytest.MonkeyPatch], None], worlds: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)

    assert accused(federation()) == worlds


def test_the_report_of_every_world_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = federation()
    plan = protect(gather(experiment)).plan
    assert plan is not None
    played_worlds(experiment, plan, quickly(), 5, tmp_path)
    reports, cohorts = [], []
    for folder in sorted(tmp_path.iterdir()):
        assert main(["report", str(folder), "--json"]) == 0
        reports.append(json.loads(capsys.readouterr().out.replace(str(folder), "RUN").replace(folder.name, "RUN")))
        cohorts.append([(record["cohort"], record["senders"]) for record in read_operator(folder)])

    assert len(reports) == 4
    assert all(report == reports[0] for report in reports)
    assert len({str(each) for each in cohorts}) == 3, "who was drawn, and who came, did differ"
