"""Statistics between machines: through the same conversation as a training round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.elsewhere import gather_without_records
from sottovoce.assembly.parts import gather
from sottovoce.assembly.statistics import own_codes
from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.errors import InputError, SottovoceError
from sottovoce.deployment.node.build import facts_of
from tests.deployment.wired import alone_and_together, roster_of

FILES = Path(__file__).parents[1] / "files"


def asked(**tables: dict[str, Any]) -> Experiment:
    return parse(
        {
            "experiment": {"name": "asked", "seed": 5},
            "data": {
                "source": [f"hospital_{number}.csv" for number in range(1, 6)],
                "folder": str(FILES),
                "schema": "hospitals.toml",
                "clients": 5,
                **tables.get("data", {}),
            },
            "statistics": {"columns": ["age", "bmi"], "by": ["ward"], **tables.get("statistics", {})},
            "privacy": {
                "unit": "record",
                "units": [120] * 5,
                "epsilon_server": 4.0,
                "delta": 1e-4,
                **tables.get("privacy", {}),
            },
            "aggregation": {"secure": "real"},
        }
    )


def test_sites_behind_a_broker_tell_what_a_simulation_tells(tmp_path: Path) -> None:
    alone, together = alone_and_together(asked(), tmp_path)

    assert np.array_equal(alone, together)
    told = [json.loads(path.read_text())["statistics"] for path in sorted(tmp_path.glob("*/summary.json"))]
    assert len(told) == 2
    assert told[0]["groups"] == told[1]["groups"] and told[0]["groups"][0]["count"]["value"] > 0


def test_a_node_codes_its_file_as_the_simulation_codes_all_of_them() -> None:
    parts = gather(asked())

    for site in range(5):
        own = own_codes(asked(), str(FILES / f"hospital_{site + 1}.csv"))
        mine = parts.dataset.x_train[parts.partition.records(site)]
        assert np.array_equal(mine, own.x, equal_nan=True)


def test_of_a_person_with_many_rows_nodes_and_simulation_count_the_same_ones(tmp_path: Path) -> None:
    persons = asked(
        data={"person": "patient"},
        privacy={"unit": "person", "units": [99, 100, 100, 96, 96], "min_units": 50, "max_rows": 1},
    )
    alone, together = alone_and_together(persons, tmp_path)

    assert np.array_equal(alone, together)


def test_nodes_with_another_schema_are_no_part_of_the_run(tmp_path: Path) -> None:
    """The file is the same, what it points to is not: others would add up other cells."""
    (tmp_path / "hospitals.toml").write_text(
        (FILES / "hospitals.toml").read_text().replace("maximum = 100\n", "maximum = 99\n")
    )

    facts = [
        facts_of(gather_without_records(experiment), roster_of(5))
        for experiment in (asked(), asked(data={"folder": str(tmp_path)}))
    ]

    assert facts[0].probe != facts[1].probe


def test_a_node_without_a_column_is_told_its_name(tmp_path: Path) -> None:
    text = (FILES / "hospital_1.csv").read_text()
    (tmp_path / "bad.csv").write_text(text.replace("bmi", "body", 1))

    with pytest.raises(SottovoceError, match="no column 'bmi'"):
        own_codes(asked(), str(tmp_path / "bad.csv"))


@pytest.mark.parametrize("units", [None, 600, [120] * 4])
def test_how_many_units_each_site_holds_is_agreed_on_in_the_file(units: Any) -> None:
    with pytest.raises(InputError, match="units must list how many units each site holds"):
        gather_without_records(asked(privacy={"units": units}))


def test_a_schema_is_learnt_between_machines_too(tmp_path: Path) -> None:
    learning = parse(
        {
            **asked().tables(),
            "data": {"source": asked().data.source, "folder": str(FILES), "clients": 5},
            "statistics": {"columns": ["age"], "learn": True},
            "privacy": {"unit": "record", "units": [120] * 5, "epsilon": 8.0, "delta": 1e-4},
        }
    )

    alone, together = alone_and_together(learning, tmp_path)

    assert np.array_equal(alone, together)
    told = json.loads(next(iter(tmp_path.glob("*/summary.json"))).read_text())["statistics"]["learnt"]["age"]
    assert (told["kind"], told["maximum"]) == ("number", 128.0)
