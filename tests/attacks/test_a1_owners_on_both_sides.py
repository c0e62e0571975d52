"""A test file, or public file, in which clients own records is the clients', though no record equals one of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.parts import gather
from sottovoce.core.errors import PrivacyError
from sottovoce.runs.loop import run
from tests.runs.small import small

SCHEMA = (
    'others = "ignore"\n[label]\nclasses = ["no", "yes"]\n[columns.age]\nkind = "number"\nminimum = 0\nmaximum = 100\n'
)


def write(path: Path, owners: list[str], seed: int, column: str = "who") -> Path:
    rng = np.random.default_rng(seed)
    rows = [f"{rng.integers(1, 10**9) / 10**7},{owner},{'yes' if rng.random() < 0.5 else 'no'}" for owner in owners]
    path.write_text("\n".join([f"age,{column},sick", *rows]) + "\n")
    return path


def experiment(folder: Path, **tables: Any) -> Any:
    write(folder / "own.csv", [f"p{number % 10}" for number in range(80)], 1)
    (folder / "schema.toml").write_text(SCHEMA)
    keys = {"source": str(folder / "own.csv"), "label": "sick", "id": "who", "schema": str(folder / "schema.toml")}
    data = {**keys, "partition": "by-id", "clients": 10, **tables.pop("data", {})}
    private = {"noise_multiplier": 1.0, "delta": 1e-3, "accountant": "rdp", **tables.pop("privacy", {"clip_norm": 1.0})}
    return small(data=data, privacy=private, **tables)


def test_a_test_file_with_other_records_of_a_client_is_refused(tmp_path: Path) -> None:
    test = write(tmp_path / "test.csv", ["q0", "q1", "q2", "p7", "q3"], 2)
    with pytest.raises(PrivacyError, match="somebody owns train and test records"):
        run(experiment(tmp_path, data={"test": str(test)}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_unsafe_test_allows_it_and_says_so(tmp_path: Path) -> None:
    test = write(tmp_path / "test.csv", ["q0", "q1", "p7"], 2)
    private = {"clip_norm": 1.0, "unsafe_test": True}
    summary = run(experiment(tmp_path, data={"test": str(test)}, privacy=private), tmp_path / "run")
    assert summary["privacy"]["unsafe"] == ["unsafe_test"]
    assert "clients' own" in summary["test_data"]


@pytest.mark.parametrize(("owners", "column"), [(["q0", "q1", "q2"], "who"), (["p0", "p1", "p2"], "other")])
def test_a_test_file_of_others_or_without_owners_is_used(tmp_path: Path, owners: list[str], column: str) -> None:
    test = write(tmp_path / "test.csv", owners, 2, column)
    assert len(gather(experiment(tmp_path, data={"test": str(test)})).dataset.y_test) == 3


def test_a_public_file_with_other_records_of_a_client_is_refused(tmp_path: Path) -> None:
    public = write(tmp_path / "public.csv", ["q0", "q1", "q2", "p7"] * 5, 2)
    tables = {"scheme": {"public": str(public), "public_samples": 5}, "privacy": {"clipping": "public"}}
    tables["experiment"] = {"evaluation": "none"}
    with pytest.raises(PrivacyError, match="is not public: 1 of its owners"):
        run(experiment(tmp_path, **tables), tmp_path / "run")
    write(public, ["q0", "q1", "q2", "q3"] * 5, 2)
    run(experiment(tmp_path, **tables), tmp_path / "run")
