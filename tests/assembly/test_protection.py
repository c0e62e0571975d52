"""Protection: what the tables ask of the privacy plan, solved once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runs.small import small

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import privacy_request, protect
from sottovoce.config.tables import PrivacyTable
from sottovoce.core.errors import InputError
from sottovoce.privacy import PrivacyPlan
from sottovoce.runs.loop import run

NOISE: dict[str, Any] = {"noise_multiplier": 1.0, "delta": 1e-3, "accountant": "rdp"}
ONE = {"workers": 1}
CLIPPED = {**NOISE, "clip_norm": 0.5}


@pytest.mark.parametrize(
    ("tables", "plans"),
    [
        ({"privacy": CLIPPED}, 1),
        ({"privacy": {**NOISE, "clipping": "private", "unsafe_clip_norm": True}}, 1),
        ({"privacy": {**CLIPPED, "vote_noise_multiplier": 3.0}, "scheme": {"name": "fl-top"}}, 2),
        ({}, 0),
    ],
    ids=["given norm", "measured norm", "with a vote", "not private"],
)
def test_each_plan_is_solved_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any], plans: int
) -> None:
    solved: list[Any] = []
    solve = PrivacyPlan.solve.__func__  # type: ignore[attr-defined]

    def counted(cls: Any, **keys: Any) -> Any:
        solved.append(keys)
        return solve(cls, **keys)

    monkeypatch.setattr(PrivacyPlan, "solve", classmethod(counted))

    run(small(experiment={"rounds": 1}, engine=ONE, **tables), tmp_path / "run")

    assert len(solved) == plans


def test_every_key_of_the_table_reaches_the_request() -> None:
    unusual = {
        "epsilon": 3.0,
        "noise_multiplier": 2.0,
        "delta": 1e-3,
        "accountant": "rdp",
        "clipping": "adaptive",
        "clip_norm": 0.7,
        "clip_quantile": 0.4,
        "clip_lr": 0.3,
        "count_stddev": 2.0,
        "max_participations": 3,
        "bits": 20,
        "unsafe_delta": True,
        "unsafe_clip_norm": True,
        "unsafe_public": True,
    }
    parts = gather(small(privacy=unusual, experiment={"rounds": 5}))
    table = parts.experiment.privacy
    assert table is not None

    request = privacy_request(parts, table, clip_norm=0.7)

    elsewhere = {f"{what}_noise_multiplier" for what in ("vote", "warm", "evaluation")}  # have requests of their own
    elsewhere |= {"budget", "budget_delta", "budget_epsilon", "budget_epsilon_server", "population"}  # of all runs
    elsewhere |= {"whiten_share"}  # of the stage before the rounds, which has a request of its own
    elsewhere |= {"min_units", "max_rows"}  # kept where the records are
    elsewhere |= {"spent"}  # releases of others, in units of their own: `experiment.population`
    for key in PrivacyTable.model_fields.keys() - elsewhere:
        assert getattr(request, key) == getattr(table, key), key
    assert (request.clients, request.sample_rate, request.rounds, request.length) == (20, 0.5, 5, 650)


def test_a_missing_clip_norm_is_said_before_anything_is_computed() -> None:
    with pytest.raises(InputError, match=r"\[privacy\] clip_norm is missing; set it, or clipping"):
        protect(gather(small(privacy=NOISE)))


def test_who_watches_sees_the_bytes_of_each_client_and_no_file_does(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    run(small(privacy=CLIPPED, engine=ONE), tmp_path / "run", observe=seen.append)

    for record in seen:
        assert len(record["sizes"]) == record["cohort"]
        assert sum(sizes.up for sizes in record["sizes"].values()) == record["bytes_up"]
        assert sum(sizes.down for sizes in record["sizes"].values()) == record["bytes_down"]
    for name in ("rounds.jsonl", "operator.jsonl"):
        assert "sizes" not in (tmp_path / "run" / name).read_text()
