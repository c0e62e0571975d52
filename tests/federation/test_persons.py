"""Sites that play one virtual client for all rows of a person."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.typing import NDArray

import sottovoce as sv
from sottovoce.assembly.parts import gather
from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.errors import DataError, InputError, PrivacyError, SottovoceError
from sottovoce.data.persons import rows_kept, with_rows_kept
from sottovoce.data.table import table_dataset
from sottovoce.federation.units import sum_of_units, units_of
from sottovoce.models import LocalTraining, Shard, make_trainer
from sottovoce.models.zoo import network
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.noise.path import unit_centres
from sottovoce.runs.loop import run as play
from sottovoce.schemes import make
from sottovoce.schemes.base import Task

SCHEMA = """
missing_values = ["", "?"]
[label]
classes = ["no", "yes"]
[columns.age]
kind = "number"
minimum = 0
maximum = 100
[columns.dose]
kind = "number"
minimum = 0
maximum = 10
"""


def write_sites(folder: Path, sites: int = 3, persons: int = 40, *, more: str = "") -> Path:
    """Write a CSV file for each site; a person has one to four rows there."""
    rng = default_rng(7)
    for site in range(sites):
        lines = ["patient,age,dose,died"]
        for person in range(persons):
            for _ in range(1 + person % 4):
                age = int(rng.integers(20, 90))
                lines.append(f"p{site}-{person},{age},{rng.integers(0, 10)},{'yes' if age > 55 else 'no'}")
        (folder / f"site_{site}.csv").write_text("\n".join(lines) + "\n" + more)
    (folder / "schema.toml").write_text(SCHEMA)
    return folder


def experiment(folder: Path, **changes: Any) -> Experiment:
    tables: dict[str, dict[str, Any]] = {
        "experiment": {"rounds": 2},
        "data": {
            "source": str(folder / "site_*.csv"),
            "label": "died",
            "person": "patient",
            "schema": str(folder / "schema.toml"),
        },
        "model": {"name": "logistic"},
        "client": {"local_steps": 1, "client_lr": 0.1},
        "privacy": {"unit": "person", "epsilon_server": 8.0, "clip_norm": 0.5, "delta": 1e-5, "min_units": 10},
        "engine": {"workers": 1},
    }
    for place, value in changes.items():
        table, _, key = place.partition("__")
        tables.setdefault(table, {})[key] = value
    return parse(tables)


def plan(length: int, **changes: Any) -> PrivacyPlan:
    keys = {
        "clients": 5,
        "sample_rate": 1,
        "rounds": 4,
        "delta": 1e-5,
        "length": length,
        "clip_norm": 0.3,
        "threshold": 0.75,
        "unit": "person",
        "units": 60,
        "noise_multiplier": 8.0,
    }
    return PrivacyPlan.solve(**{**keys, **changes})


def records(count: int = 120, persons: int = 40) -> Shard:
    rng = default_rng(5)
    whose = rng.permutation(np.concatenate([np.arange(persons), rng.integers(0, persons, count - persons)]))
    return Shard(rng.normal(size=(count, 12)).astype(np.float32), rng.integers(0, 3, count), persons=whose)


def total(name: str, shard: Shard, steps: int = 1) -> NDArray[np.int64]:
    model = network("logistic", (12,), 3)
    start = model.initialise(default_rng(1))
    scheme = make(name).fit(model.layout).bind(model.dim, seed=3, start=start, importance=np.abs(start))
    solved = plan(scheme.length, form=scheme.form, **({"clip_norm": 0.0} if scheme.form == "signs" else {}))
    trainer = make_trainer(model, LocalTraining(local_steps=steps, batch_size=None, client_lr=0.2), "auto", "cpu")
    return sum_of_units(
        solved, scheme, trainer, Task(start, 3, {}), shard, coins=default_rng(0), choices=default_rng(20)
    )


def only(shard: Shard, chosen: NDArray[np.bool_]) -> Shard:
    assert shard.persons is not None
    return Shard(shard.x[chosen], shard.y[chosen], persons=shard.persons[chosen])


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", ["fl-std", "fl-rnd", "fl-sign"])
def test_sites_add_up_bit_for_bit_to_one_site_with_all_persons(name: str, steps: int) -> None:
    whole = records()
    assert whole.persons is not None
    sites = [only(whole, whole.persons % 5 == site) for site in range(5)]

    parts = np.sum([total(name, site, steps) for site in sites], axis=0)

    assert np.array_equal(parts, total(name, whole, steps))
    assert parts.any()


@pytest.mark.parametrize("steps", [1, 3])
def test_the_sum_has_the_bits_of_a_twin_that_trains_one_person_after_another(steps: int) -> None:
    """The twin knows no groups, no chunks and no kernel of units: a person is a client with its rows."""
    whole, model = records(), network("logistic", (12,), 3)
    start, solved = model.initialise(default_rng(1)), plan(model.dim)
    clip_norm, radius, precision = solved.unit_grid
    twin = np.zeros(model.dim, np.int64)
    for person in range(40):
        rows = [row for row in range(len(whole.y)) if whole.persons is not None and whole.persons[row] == person]
        weights = start.astype(np.float32)
        for _ in range(steps):
            one = LocalTraining(local_steps=1, batch_size=None, client_lr=0.2)
            step = InOrder(np.random.PCG64(0))
            (update,) = make_trainer(model, one, "auto", "cpu").updates(
                weights, [Shard(whole.x[rows], whole.y[rows])], [step]
            )
            weights = weights + update
        twin += unit_centres((weights - start)[None], clip_norm=clip_norm, radius=radius, precision=precision)[0]

    difference = np.abs(total("fl-std", whole, steps) - twin)

    assert difference.max() <= (0 if steps == 1 else 3)  # w + u - w rounds in float32
    assert np.abs(twin).max() > 100


class InOrder(np.random.Generator):
    """A generator that leaves rows in their order."""

    def permutation(self, x: Any, axis: int = 0) -> Any:
        return np.arange(x)


def test_one_person_with_many_rows_moves_the_sum_by_at_most_the_clip_norm() -> None:
    whole = records()
    assert whole.persons is not None
    solved = plan(network("logistic", (12,), 3).dim)
    grid = solved.grid
    assert grid is not None
    for absent in (0, 17, 39):
        moved = total("fl-std", whole) - total("fl-std", only(whole, whole.persons != absent))
        assert 0 < np.linalg.norm(moved.astype(float)) <= grid.radius * 2**grid.precision * (1 + 1e-12)


def test_a_plan_of_persons_refuses_records_that_nobody_put_together() -> None:
    whole = records()

    with pytest.raises(PrivacyError, match="protects each person"):
        total("fl-std", Shard(whole.x, whole.y))


def test_of_a_person_the_first_rows_are_kept_whoever_else_is_there() -> None:
    persons = default_rng(3).integers(0, 30, 400)
    kept = rows_kept(persons, 5)

    for person in range(30):
        own = np.flatnonzero(persons == person)
        assert kept[np.isin(kept, own)].tolist() == own[:5].tolist()
        alone = own[rows_kept(persons[own], 5)]
        assert alone.tolist() == own[:5].tolist()
    assert rows_kept(np.zeros(0, np.int64), 3).size == 0


def test_units_have_their_rows_in_order() -> None:
    shard = records()
    assert shard.persons is not None
    units = units_of(shard)

    for start, stop in zip(units.starts[:-1], units.starts[1:], strict=True):
        rows = units.rows[start:stop]
        assert (np.diff(rows) > 0).all()
        assert rows.tolist() == np.flatnonzero(shard.persons == shard.persons[rows[0]]).tolist()
    some = units.some(np.array([3, 0]))
    assert some.sizes.tolist() == [units.sizes[3], units.sizes[0]]
    assert some.rows.tolist() == [*units.rows[units.starts[3] : units.starts[4]], *units.rows[: units.sizes[0]]]


def test_a_run_on_files_protects_persons_and_the_column_is_no_feature(tmp_path: Path) -> None:
    folder = write_sites(tmp_path)
    summary = play(experiment(folder), tmp_path / "run")
    parts = gather(experiment(folder))

    assert summary["unit"] == "person"
    assert summary["units"] == 120
    assert "all rows of one person" in summary["privacy"]["adjacency"]
    assert parts.dataset.shape == (2,)
    assert parts.units_of_sites == [40, 40, 40]
    assert parts.dataset.preprocessing is not None
    assert parts.dataset.preprocessing["features"] == ["age", "dose"]


def test_workers_and_secure_sums_change_no_bit(tmp_path: Path) -> None:
    folder = write_sites(tmp_path)
    models = []
    for name, changes in (
        ("one", {}),
        ("two", {"engine__workers": 2}),
        ("real", {"aggregation__secure": "real"}),
    ):
        play(experiment(folder, **changes), tmp_path / name)
        models.append((tmp_path / name / "model.npz").read_bytes())

    assert models[0] == models[1] == models[2]


def test_rows_beyond_max_rows_do_not_matter(tmp_path: Path) -> None:
    folder = write_sites(tmp_path, sites=2)
    few = gather(experiment(folder, privacy__max_rows=2))

    assert few.units == 80
    assert few.partition.total == 2 * sum(min(2, 1 + person % 4) for person in range(40))


def test_one_table_is_dealt_out_by_whole_persons(tmp_path: Path) -> None:
    write_sites(tmp_path, sites=1, persons=200)
    parts = gather(experiment(tmp_path, data__source=str(tmp_path / "site_0.csv"), data__clients=4))
    persons = parts.dataset.persons
    assert persons is not None

    homes = [set(persons[parts.partition.records(site)].tolist()) for site in range(4)]

    assert parts.units == sum(map(len, homes)) == len(set.union(*homes)) == 200


def test_test_records_are_cut_by_whole_persons() -> None:
    rng = default_rng(0)
    frame = {"who": [f"p{n // 3}" for n in range(300)], "x": rng.normal(size=300), "y": rng.integers(0, 2, 300)}
    made = table_dataset(frame, label="y", person="who")
    rest, aside = made.split(0.25, default_rng(1))

    assert made.persons is not None
    assert len(made.y_test) % 3 == 0
    assert rest.persons is not None
    assert aside.persons is not None
    assert not set(rest.persons.tolist()) & set(aside.persons.tolist())
    assert len(set(aside.persons.tolist())) == round(len(set(made.persons.tolist())) * 0.25)


def test_python_takes_frames_and_persons(tmp_path: Path) -> None:
    rng = default_rng(0)

    def frame(site: int) -> dict[str, Any]:
        age = rng.integers(20, 90, 90)
        return {"who": [f"{site} {n // 3}" for n in range(90)], "age": age, "dose": rng.integers(0, 9, 90),
                "died": np.where(age > 55, "yes", "no")}  # fmt: skip

    (tmp_path / "schema.toml").write_text(SCHEMA)
    result = sv.simulate(
        [frame(site) for site in range(3)],
        model="logistic",
        label="died",
        person="who",
        schema=tmp_path / "schema.toml",
        rounds=2,
        workers=1,
        privacy=sv.Privacy(unit="person", epsilon_server=8.0, clip_norm=0.5, min_units=10),
    )

    assert result.summary["unit"] == "person"
    assert (result.summary["units"], result.summary["measurements"]["units"]) == (72, 18)  # a fifth is measured on


@pytest.mark.parametrize(
    ("changes", "line", "sentence"),
    [
        ({"data__person": "patients"}, "", "did you mean 'patient'"),
        ({}, ",40,3,no\n", "line 102: person 'patient' is missing"),
        ({}, "p9,40,3,maybe\n", "must be one of the classes"),
        ({"data__person": "row"}, None, "different in every row"),
        ({"privacy__min_units": 41}, "", "site 0 holds 40 persons"),
        ({"privacy__delta": 0.01}, "", "1 / units"),
    ],
)
def test_bad_input_is_told_in_one_sentence_and_nothing_is_written(
    changes: dict[str, Any], line: str | None, sentence: str, tmp_path: Path
) -> None:
    folder = write_sites(tmp_path, more=line or "")
    if line is None:
        for path in folder.glob("site_*.csv"):
            first, *rest = path.read_text().splitlines()
            path.write_text("\n".join([f"row,{first}", *(f"{path.stem}-{n},{row}" for n, row in enumerate(rest))]))
        (folder / "schema.toml").write_text(SCHEMA + '[columns.patient]\nkind = "ignore"\n')

    with pytest.raises(SottovoceError, match=sentence) as error:
        play(experiment(folder, **changes), tmp_path / "run")

    assert isinstance(error.value, DataError | InputError | PrivacyError)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_partition_keeps_the_first_rows_of_each_site() -> None:
    from sottovoce.data import Shards

    owners = Shards(np.array([5, 1, 3, 0, 4, 2]), np.array([0, 3, 6]))
    persons = np.array([9, 8, 9, 8, 9, 7])

    kept = with_rows_kept(owners, persons, 1)

    assert kept.records(0).tolist() == [1, 5]
    assert kept.records(1).tolist() == [0]


def test_a_file_that_changed_between_rounds_is_refused_on_resume(tmp_path: Path) -> None:
    """Also if only a person's name changed, which is no feature: the units are others."""
    folder = write_sites(tmp_path)
    asked = experiment(folder, experiment__rounds=3, experiment__checkpoint_every=1)

    def stop(record: dict[str, Any], _: Any) -> None:
        if record["round"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(asked, tmp_path / "run", callbacks=[Interrupt(stop)])
    file = folder / "site_1.csv"
    file.write_text(file.read_text().replace("p1-3,", "p1-2,"))

    with pytest.raises(PrivacyError, match="other records"):
        play(asked, tmp_path / "run", resume=True)


class Interrupt:
    """A callback that plays Ctrl-C."""

    def __init__(self, act: Any) -> None:
        self.on_round = act


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda text: text.replace("dose", "dosis", 1), "lacks 'dose'"),
        (lambda text: text.replace(",yes", ",maybe"), "must be one of the classes"),
        (lambda text: text.replace("patient,", "person,", 1), "lacks 'patient'"),
        (lambda text: re.sub(r",(\d),", r",\g<1>000.5,", text), "column 'dose'.*is it in another unit"),
        (lambda text: "\n".join(line + "x" if n == 3 else line for n, line in enumerate(text.splitlines())), "line 4"),
    ],
)
def test_sites_that_differ_are_named_before_round_one(edit: Any, sentence: str, tmp_path: Path) -> None:
    folder = write_sites(tmp_path)
    file = folder / "site_2.csv"
    file.write_text(edit(file.read_text()))

    with pytest.raises(SottovoceError, match=sentence) as error:
        play(experiment(folder), tmp_path / "run")

    assert "site_2.csv" in str(error.value)
    assert not (tmp_path / "run").exists()
