"""The keys of records: what runs and plans write is described, and the docs say what the code says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sottovoce.models import METRICS
from sottovoce.planning.plan import plan
from sottovoce.runs.keys import RECORDS, keys_markdown, record_keys
from sottovoce.runs.loop import run
from tests.runs.small import small

DOCS = Path(__file__).parents[2] / "docs"
PRIVATE = {"privacy": {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 0.5}}

RUNS: dict[str, dict[str, Any]] = {
    "plain": {"data": {"held_out": 0.1}, "client": {"held_out": 0.2, "personal_steps": 1}},
    "private": PRIVATE | {"client": {"held_out": 0.2}},
    "adaptive": {"privacy": {"noise_multiplier": 1.0, "delta": 1e-3, "clipping": "adaptive", "count_stddev": 2.0}},
    "secure": {"aggregation": {"secure": "real"}},
    "attacked": {"threat": {"attack": "in-backdoor", "fraction": 0.2}},
    "attacked privately": PRIVATE
    | {"threat": {"attack": "gradient-ascent", "fraction": 0.2}, "server": {"guard": "energy"}},
    "devices": {"devices": {"profile": "phone-lte"}},
    "private devices": PRIVATE | {"devices": {"profile": "phone-lte"}},
    "measured by clients": {
        "privacy": PRIVATE["privacy"] | {"evaluation_noise_multiplier": 5.0},
        "experiment": {"evaluation": "federated"},
        "client": {"held_out": 0.2},
    },
    "servers": {"switches": {"servers": 2}},
    "leaving": {"switches": {"leave_within": 10.0}},
    "signs": {"scheme": {"name": "fl-sign"}},
}


def written(folder: Path, name: str) -> set[str]:
    path = folder / name
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {key for line in lines for key in json.loads(line)}


@pytest.mark.parametrize("tables", RUNS.values(), ids=RUNS)
def test_every_key_that_a_run_or_its_plan_writes_is_described(tables: dict[str, Any], tmp_path: Path) -> None:
    experiment = small(**tables)

    summary = run(experiment, tmp_path / "run")
    planned = plan(experiment)

    assert set(summary) <= set(record_keys("summary"))
    assert set(planned) <= set(record_keys("plan"))
    rounds = written(tmp_path / "run", "rounds.jsonl") | written(tmp_path / "run", "operator.jsonl")
    assert rounds <= set(record_keys("rounds"))


def test_every_plan_has_the_same_keys() -> None:
    described = set(record_keys("plan")) - {"epsilon_under_attack", "epsilon_server_under_attack"}  # of a [threat]

    assert set(plan(small())) == described


@pytest.mark.parametrize("name", RECORDS)
def test_every_key_has_a_meaning_of_one_line(name: str) -> None:
    for key, described in record_keys(name).items():
        assert described.meaning and "\n" not in described.meaning, key
        assert not described.meaning.endswith("."), key
        assert "|" not in described.meaning + described.where, key
        assert name != "rounds" or described.where, f"{key}: in which file?"


def test_every_metric_is_described_in_rounds_and_summary() -> None:
    for name, metric in METRICS.items():
        assert {name, f"held_out_{name}"} <= set(record_keys("rounds"))
        assert ({f"{name}_final", f"{name}_best"} <= set(record_keys("summary"))) == metric.summarised


@pytest.mark.parametrize(
    ("page", "name"), [("run-folder.md", "rounds"), ("run-folder.md", "summary"), ("planning.md", "plan")]
)
def test_the_docs_have_the_table_of_the_code(page: str, name: str) -> None:
    command = f"sottovoce explain {name} --markdown"
    _, _, rest = (DOCS / page).read_text(encoding="utf-8").partition(f"<!-- {command} -->\n")

    assert rest.startswith(keys_markdown(name) + "\n"), f"docs/{page} is out of date; paste what this prints: {command}"
