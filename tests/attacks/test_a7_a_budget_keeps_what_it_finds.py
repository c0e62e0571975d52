"""A budget file that cannot be read stays as it is, has one mark under all its names, and takes no nonsense as spent.

A path that named another file, such as the clients' records, or a budget with a damaged first line, was removed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sottovoce.core.errors import ConfigError, PrivacyError
from sottovoce.privacy.budget import Budget, BudgetTerms
from sottovoce.runs.loop import run
from sottovoce.runs.population import population_facts
from tests.runs.small import small

PRIVACY: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-3, "accountant": "rdp", "clip_norm": 1.0}


def private(folder: Path, **privacy: Any) -> Any:
    return small(privacy={**PRIVACY, "budget": str(folder / "b.ledger"), **privacy})


def test_a_file_that_is_no_budget_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "b.ledger"
    file.write_text("age,sick\n40,yes\n41,no\n")
    with pytest.raises(PrivacyError, match="line 1 is damaged"):
        run(private(tmp_path), tmp_path / "run")
    assert file.read_text() == "age,sick\n40,yes\n41,no\n"
    assert not (tmp_path / "run").exists()


def test_a_file_without_a_whole_line_that_is_no_budget_stays_too(tmp_path: Path) -> None:
    file = tmp_path / "b.ledger"
    file.write_text("a note without an end of line")
    with pytest.raises(PrivacyError, match="is no budget"):
        Budget(file, BudgetTerms(population="people"))
    assert file.read_text() == "a note without an end of line"


def test_a_budget_with_a_damaged_first_line_stays_for_its_repair(tmp_path: Path) -> None:
    run(private(tmp_path), tmp_path / "run")
    file = tmp_path / "b.ledger"
    whole = file.read_bytes()
    file.write_bytes(b"x" + whole[1:])
    with pytest.raises(PrivacyError, match="line 1 is damaged"):
        run(private(tmp_path), tmp_path / "again")
    assert file.read_bytes() == b"x" + whole[1:]


def test_a_budget_that_was_only_looked_at_leaves_no_file(tmp_path: Path) -> None:
    Budget(tmp_path / "b.ledger", BudgetTerms(population="people")).close()
    assert not list(tmp_path.iterdir())


def test_a_link_to_a_budget_is_that_budget(tmp_path: Path) -> None:
    run(private(tmp_path), tmp_path / "run")
    (tmp_path / "link.ledger").symlink_to("b.ledger")
    summary = run(private(tmp_path, budget=str(tmp_path / "link.ledger")), tmp_path / "again")
    assert summary["population"]["runs"] == 2
    assert not (tmp_path / "link.ledger.mark").exists()


@pytest.mark.parametrize(
    "entry",
    [
        {"noise_multiplier": 1e-200},
        {"noise_multiplier": 1e-5},
        {"noise_multiplier": 1.0, "delta": 1},
        {"epsilon": 1.0, "delta": 1},
        {"epsilon": "1e-400"},
        {"epsilon": 1.0, "delta": "1e-400"},
        {"epsilon": 1.0, "delta": "1e-99999999"},
        {"noise_multiplier": 1.0, "delta": "1/1" + "0" * 400},
    ],
)
def test_what_was_spent_must_be_a_number_that_can_be_added(tmp_path: Path, entry: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"\[privacy\] spent, entry 1: .* must be"):
        private(tmp_path, spent=[entry])


def test_the_least_noise_that_may_be_declared_is_added(tmp_path: Path) -> None:
    experiment = small(privacy={**PRIVACY, "spent": [{"noise_multiplier": 0.01, "rounds": 100}]})
    summary = run(experiment, tmp_path / "run")
    assert summary["epsilon_population"] > 1e5
    assert population_facts(experiment, None) == {}


def test_more_colluders_than_any_cohort_has_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="colluders must be in"):
        small(aggregation={"colluders": 10**9}, privacy=PRIVACY)
