"""The schema of SUPPORT2, which stands for a user's own medical table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sottovoce.assembly.parts import gather
from sottovoce.config.experiment import load as load_file
from sottovoce.core.errors import InputError
from sottovoce.data import TableKeys, load

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SCHEMA = str(EXPERIMENTS / "schemas" / "support2.toml")
COLUMNS = {
    **{"age": "62.8", "sex": "male", "hospdead": "0", "slos": "5", "dzclass": "Cancer", "num.co": "0", "scoma": "0"},
    **{"diabetes": "0", "dementia": "0", "ca": "metastatic", "meanbp": "97", "wblc": "", "hrt": "69", "resp": "22"},
    **{"temp": "36", "pafi": "388", "alb": "1.8", "bili": "0.2", "crea": "1.2", "sod": "141", "ph": "7.46"},
}


def table(path: Path, *, without: str = "", rows: int = 60) -> Path:
    """Write patients like those of SUPPORT2, a tenth of whom die."""
    kept = [name for name in COLUMNS if name != without]
    lines = [",".join(kept)]
    for row in range(rows):
        told = {**COLUMNS, "age": str(40 + row / 3), "hospdead": str(int(row % 10 == 0))}
        lines.append(",".join(told[name] for name in kept))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_users_table_becomes_features_without_looking_at_the_patients(tmp_path: Path) -> None:
    data = load(str(table(tmp_path / "own.csv")), table=TableKeys(label="hospdead", schema=SCHEMA))

    assert data.fitted_on == "schema"
    assert data.classes == 2
    assert np.isfinite(data.x_train).all()
    assert data.x_train.min() >= 0 and data.x_train.max() <= 1
    assert data.shape == (16 + 2 + 4 + 3,), "16 numbers, and three columns of categories; slos tells the outcome"


def test_a_column_that_the_table_lacks_is_named(tmp_path: Path) -> None:
    path = table(tmp_path / "own.csv", without="meanbp")

    with pytest.raises(InputError, match="meanbp"):
        load(str(path), table=TableKeys(label="hospdead", schema=SCHEMA))


def test_the_medical_file_runs_on_it_and_may_be_private(tmp_path: Path) -> None:
    changes = [
        f"data.source={table(tmp_path / 'own.csv', rows=400)}",
        "data.label=hospdead",
        f"data.schema={SCHEMA}",
        "data.clients=10",
        "scheme.name=fl-std",
        "privacy.epsilon=8",
        "privacy.clip_norm=0.5",
        "privacy.delta=0.01",
    ]
    parts = gather(load_file(EXPERIMENTS / "medical.toml", changes))

    assert parts.partition.clients == 10
    assert all(parts.dataset.y_train[parts.partition.records(client)].any() for client in range(10))
