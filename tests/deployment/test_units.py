"""Records of sites as units between machines."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from sottovoce.assembly.elsewhere import gather_without_records, node_records
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.cli.app import app
from sottovoce.config.experiment import Experiment, parse, to_toml
from sottovoce.core.errors import DataError, InputError, SottovoceError
from sottovoce.deployment.node.build import facts_of, make_member
from sottovoce.deployment.node.node import Member
from sottovoce.deployment.node.records import check_unchanged, read_own_records
from sottovoce.deployment.trial.trial import deal, deployable
from sottovoce.federation.engines.mqtt.greeting import Hello
from sottovoce.federation.units import count_units
from sottovoce.models import Shard
from sottovoce.privacy.ledger import hash_of
from sottovoce.runs.loop import run
from tests.deployment.wired import alone_and_together, identity_of, parts_of, roster_of
from tests.runs.played import model

FILES = Path(__file__).parents[1] / "files"


def hospitals(secure: str = "real", **tables: dict[str, Any]) -> Experiment:
    """Return a run of five hospitals, 120 records each."""
    return parse(
        {
            "experiment": {"name": "hospitals", "rounds": 3, "seed": 5, **tables.get("experiment", {})},
            "data": {
                "source": "hospital_*.csv",
                "folder": str(FILES),
                "label": "died",
                "schema": "hospitals.toml",
                "clients": 5,
                **tables.get("data", {}),
            },
            "model": {"name": "logistic", **tables.get("model", {})},
            "client": {"local_steps": 1, "batch_size": "all", "client_lr": 1.0},
            "cohort": {"sample_rate": 1.0},
            "scheme": tables.get("scheme", {}),
            "privacy": {
                "unit": "record",
                "units": [120] * 5,
                "epsilon_server": 4.0,
                "delta": 1e-4,
                "clip_norm": 0.5,
                **tables.get("privacy", {}),
            },
            "aggregation": {"secure": secure, **tables.get("aggregation", {})},
        }
    )


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"scheme": {"name": "fl-sign"}, "privacy": {"clip_norm": None}},
        {"privacy": {"unit_rate": 0.01}},  # some sites draw nobody in some round, and answer
        {"aggregation": {"colluders": 4}},
        {"model": {"class_weights": [0.1, 1.0]}},
    ],
    ids=["all", "signs", "coins", "local-noise", "weights"],
)
def test_sites_behind_a_broker_train_the_model_of_a_simulation(tmp_path: Path, tables: dict[str, Any]) -> None:
    given = hospitals(**tables)

    alone, together = alone_and_together(given, tmp_path)
    run(hospitals("ideal", **tables), tmp_path / "ideal")

    assert np.array_equal(alone, together)
    assert np.array_equal(alone, model(tmp_path / "ideal"))


def visits(folder: Path, rows: int = 3) -> None:
    """Write five hospitals' files with a few rows for each patient, and the schema beside them."""
    head, *lines = (FILES / "hospital_1.csv").read_text().splitlines()
    for number in range(1, 6):
        mixed = sorted(lines, key=lambda line: hash_of({"line": line, "site": number}))
        visited = [f"p{place % (len(lines) // rows):03d},{line.partition(',')[2]}" for place, line in enumerate(mixed)]
        (folder / f"hospital_{number}.csv").write_text("\n".join([head, *visited]) + "\n")
    (folder / "hospitals.toml").write_text((FILES / "hospitals.toml").read_text())


def test_persons_behind_a_broker_train_the_model_of_a_simulation(tmp_path: Path) -> None:
    visits(tmp_path)
    given = hospitals(
        data={"folder": str(tmp_path), "person": "patient"},
        privacy={"unit": "person", "units": [40] * 5, "min_units": 40, "max_rows": 2, "delta": 1e-4},
    )
    parts = gather(given)

    for site in range(5):
        rows = parts.partition.records(site)
        own = node_records(parts, site, read(site, given, tmp_path / f"hospital_{site + 1}.csv")).train
        assert np.array_equal(parts.dataset.x_train[rows], own.x)
        assert own.persons is not None and count_units(own) == 40 and len(own.y) == 80
    alone, together = alone_and_together(given, tmp_path)
    assert np.array_equal(alone, together)


@pytest.mark.parametrize("unit", ["record", "person"])
def test_numbers_are_learnt_behind_a_broker_as_in_a_simulation(tmp_path: Path, unit: str) -> None:
    visits(tmp_path)
    schema = (FILES / "hospitals.toml").read_text().replace('classes = ["no", "yes"]', "minimum = 10\nmaximum = 60")
    (tmp_path / "hospitals.toml").write_text(schema[: schema.index("[columns.bmi]")])
    person = {"person": "patient"} if unit == "person" else {}
    given = hospitals(
        data={"folder": str(tmp_path), "label": "bmi", **person},
        model={"name": "linear", "task": "regression"},
        privacy={"unit": unit, "units": [40 if person else 120] * 5, "min_units": 40, "delta": 1e-4},
    )

    alone, together = alone_and_together(given, tmp_path)

    assert np.array_equal(alone, together)


def read(number: int, given: Experiment, source: Path | None = None) -> Shard:
    """Return the records of a site from its own file."""
    path = source or FILES / f"hospital_{number + 1}.csv"
    return read_own_records(str(path), None, given.data, gather_without_records(given).dataset)


def member(number: int, given: Experiment, shard: Shard) -> Member:
    return make_member(given, identity_of(number), roster_of(5), shard, simulated=True, apart=False)[0]


def test_a_site_reads_its_file_as_the_simulation_reads_all_of_them() -> None:
    given = hospitals()
    parts = gather(given)

    for site in range(5):
        rows, own = parts.partition.records(site), read(site, given)
        assert np.array_equal(parts.dataset.x_train[rows], own.x)
        assert np.array_equal(parts.dataset.y_train[rows], own.y)


def test_the_schema_fixes_the_shape_where_no_file_is(tmp_path: Path) -> None:
    (tmp_path / "hospitals.toml").write_text((FILES / "hospitals.toml").read_text())
    here, there = hospitals(), hospitals(data={"folder": str(tmp_path)})

    parts = gather_without_records(there)

    assert parts.dataset.preprocessing == gather_without_records(here).dataset.preprocessing
    assert parts.dataset.shape == gather(here).dataset.shape
    assert parts.dataset.class_names == ("no", "yes")
    assert there.data.partition == here.data.partition == "by-id"  # or server and nodes would play different files


def test_columns_may_stand_in_any_order(tmp_path: Path) -> None:
    given, path = hospitals(), tmp_path / "mine.csv"
    lines = [line.split(",")[::-1] for line in (FILES / "hospital_1.csv").read_text().splitlines()]
    path.write_text("".join(",".join(line) + "\n" for line in lines))

    assert np.array_equal(read(0, given, path).x, read(0, given).x)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("bmi,died", "weight,died", "has no column 'bmi'"),
        ("p0002,55,m,Lyon,medicine,1.05,151000,22.0,no", "p0002,55,m,Lyon,medicine,1.05,151000,22.0,maybe", "'maybe'"),
        ("p0002,55,", "p0002,old,", "must hold finite numbers, got 'old'"),
        ("p0002,55,m,Lyon,medicine,1.05,151000,22.0,no", "p0002,55,m,Lyon,medicine,1.05,151000,22.0,", "is missing"),
    ],
)
def test_a_file_that_does_not_fit_the_schema_is_named_at_its_site(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    text = (FILES / "hospital_1.csv").read_text()
    assert old in text
    (tmp_path / "mine.csv").write_text(text.replace(old, new, 1))

    with pytest.raises(DataError, match=re.escape(reason)) as refused:
        read(0, hospitals(), tmp_path / "mine.csv")

    assert "mine.csv" in str(refused.value) and "\n" not in str(refused.value)


def test_a_column_that_the_schema_does_not_know_is_refused_unless_others_are_ignored(tmp_path: Path) -> None:
    schema = (FILES / "hospitals.toml").read_text().replace('others = "ignore"', "")
    (tmp_path / "hospitals.toml").write_text(schema)

    with pytest.raises(DataError, match="column 'patient' is not in the schema"):
        read(0, hospitals(data={"folder": str(tmp_path)}))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("minimum = 18\nmaximum = 100", "", "[columns.age] of the schema"),
        ('categories = ["f", "m"]', "", "[columns.sex] of the schema"),
        ('classes = ["no", "yes"]', "", "[label] classes"),
    ],
)
def test_a_schema_that_leaves_something_to_the_records_fixes_no_shape(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    schema = (FILES / "hospitals.toml").read_text()
    assert old in schema
    (tmp_path / "hospitals.toml").write_text(schema.replace(old, new))

    with pytest.raises(DataError, match=re.escape(reason)):
        gather_without_records(hospitals(data={"folder": str(tmp_path)}))


def test_the_units_of_each_site_are_agreed_on_and_checked_by_the_site() -> None:
    given = hospitals(privacy={"units": [120, 120, 120, 120, 121]})

    member(0, given, read(0, given))
    with pytest.raises(InputError, match="units says that site 4 holds 121 records, but it holds 120"):
        member(4, given, read(4, given))
    with pytest.raises(InputError, match="site 4 holds 121 records, but it holds 120"):
        gather(given)
    with pytest.raises(InputError, match="needs \\[privacy\\] units between machines"):
        gather_without_records(hospitals(privacy={"units": 600}))
    with pytest.raises(InputError, match="lists 4 sites, but there are 5"):
        gather_without_records(hospitals(privacy={"units": [120] * 4}))
    with pytest.raises(SottovoceError, match="min_units is 100, but units says that site 1 holds 99"):
        hospitals(privacy={"units": [120, 99, 120, 120, 120]})


def test_the_server_divides_by_the_units_of_all_sites() -> None:
    parts = parts_of(hospitals(privacy={"units": [120, 130, 140, 150, 160], "unit_rate": 0.5}))
    plan = protect(parts).plan

    assert plan is not None and plan.expected_cohort == 350


def test_a_server_without_test_records_says_what_to_set() -> None:
    given = hospitals(experiment={"evaluation": "server"})

    with pytest.raises(InputError, match="the server has no records"):
        gather_without_records(given, server=True)
    assert hospitals().evaluation == "none"


def test_a_server_measures_on_a_table_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text((FILES / "hospital_1.csv").read_text())
    given = hospitals(data={"test": str(tmp_path / "own.csv")})

    assert len(gather_without_records(given, server=True).dataset.y_test) == 120
    assert len(gather_without_records(given).dataset.y_test) == 2  # a node does not read it


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("maximum = 100\n", "maximum = 120\n", "'age' is read differently"),
        ('"surgery"', '"theatre"', "'ward' is read differently"),
        ('classes = ["no", "yes"]', 'classes = ["yes", "no"]', "'died' is read differently"),
        ("[columns.bmi]", "[columns.body_mass]", "'bmi' is only here, 'body_mass' is only there"),
    ],
)
def test_a_site_with_another_schema_is_named_with_the_column(tmp_path: Path, old: str, new: str, told: str) -> None:
    schema = (FILES / "hospitals.toml").read_text()
    assert old in schema
    (tmp_path / "hospitals.toml").write_text(schema.replace(old, new))
    here, there = (
        facts_of(parts_of(hospitals(data={"folder": folder})), roster_of(5)) for folder in (str(FILES), str(tmp_path))
    )

    difference = here.difference(replace(there, config=here.config))

    assert difference == f"another schema: {told}; compare the files"
    assert Hello(here, "00" * 8, 1).pack() == Hello.unpack(Hello(here, "00" * 8, 1).pack()).pack()


@pytest.mark.parametrize(
    ("pattern", "put", "reason"),
    [
        (r",(\d+\.\d),(no|yes)$", r",9\1,\2", "column 'bmi': 120 of 120 cells are outside the range 10 to 60"),
        (r",(m|f),", r",sex \1,", "column 'sex': 120 of 120 cells are in no category of the schema"),
    ],
)
def test_a_column_in_another_unit_is_named_at_its_site(tmp_path: Path, pattern: str, put: str, reason: str) -> None:
    text = re.sub(pattern, put, (FILES / "hospital_1.csv").read_text(), flags=re.MULTILINE)
    (tmp_path / "mine.csv").write_text(text)

    with pytest.raises(DataError, match=re.escape(reason)):
        read(0, hospitals(), tmp_path / "mine.csv")


def test_a_site_counts_its_units_before_they_are_agreed_on(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    tables = hospitals().tables()
    del tables["privacy"]["units"]
    file.write_text(to_toml(tables))

    told = CliRunner().invoke(app, ["data", "check", str(file), "--data", str(FILES / "hospital_1.csv"), "--json"])

    assert told.exit_code == 0
    assert json.loads(told.stdout) | {"data": ""} == {
        "data": "",
        "rows": 120,
        "unit": "record",
        "units": 120,
        "features": [10],
        "classes": ["no", "yes"],
    }


def test_what_is_cut_off_in_a_file_is_said_beside_the_answer(tmp_path: Path) -> None:
    file, mine = tmp_path / "experiment.toml", tmp_path / "mine.csv"
    tables = hospitals().tables()
    del tables["privacy"]["units"]
    file.write_text(to_toml(tables))
    mine.write_text((FILES / "hospital_1.csv").read_text().replace("p0002,55,", "p0002,101,", 1))

    answer = CliRunner().invoke(app, ["data", "check", str(file), "--data", str(mine), "--json"])

    assert json.loads(answer.stdout)["units"] == 120
    assert "column 'age': 1 of 120 cells outside its range, cut off there\n" in answer.stderr


def test_a_trial_of_tables_has_the_units_and_the_columns_written_down(tmp_path: Path) -> None:
    visits(tmp_path)
    given = hospitals(
        data={"folder": str(tmp_path), "person": "patient"},
        privacy={"unit": "person", "units": None, "min_units": 40, "max_rows": 2},
    )
    dealt = gather(given)

    made = deployable(given, dealt)
    deal(dealt, tmp_path)

    assert made.privacy is not None and made.privacy.units == [40] * 5 and made.data.shape is None
    parts = gather_without_records(made)
    own = read_own_records(str(tmp_path / "node3.npz"), None, made.data, parts.dataset)
    assert count_units(node_records(parts, 3, own).train) == 40
    assert np.array_equal(own.x, dealt.dataset.x_train[dealt.partition.records(3)])


def test_a_file_that_changed_within_an_experiment_is_refused(tmp_path: Path) -> None:
    path, state = tmp_path / "mine.csv", tmp_path / "state"
    path.write_text("age,died\n30,no\n")
    for _ in range(2):
        check_unchanged(state, tmp_path, str(path))
    path.write_text("age,died\n31,no\n")

    with pytest.raises(InputError, match=r"mine.csv is not what it was when this node began the experiment"):
        check_unchanged(state, tmp_path, str(path))
    check_unchanged(tmp_path / "another", tmp_path, str(path))
    assert (tmp_path / "records.secret").stat().st_mode & 0o077 == 0
    assert hashlib.sha256(path.read_bytes()).hexdigest() not in (tmp_path / "another" / "records").read_text()
