"""The data of the published tables: every row is a valid experiment, and what is printed fits what else is printed."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from sottovoce.core.errors import InputError
from sottovoce.privacy import curve
from sottovoce.studies import published
from sottovoce.studies.published.setup import read_setup, resolve, setup_of
from sottovoce.studies.published.table import SCALES, Published, Row, merge, names, read_table

FASHION, MEDICAL, CIFAR, IMDB = 1_663_370, 1_496_601, 1_369_738, 402_701
PROMISED = [
    *(f"4.{number}" for number in range(1, 6)),
    *(f"5.{number}" for number in range(1, 7)),
    *(f"6.{number}" for number in range(1, 13)),
    *(f"8.{number}" for number in range(11, 14)),
    *("fig-5.1", "fig-6.1", "fig-6.2", "mnist-cs-dp", "one-percent", "sigma-5", "two-percent"),
]


def test_every_table_figure_and_extra_result_is_there() -> None:
    assert names() == PROMISED


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", PROMISED)
def test_every_row_is_a_valid_experiment(name: str, scale: published.table.ScaleName) -> None:
    table = read_table(name)

    for row in table.rows:
        experiment = resolve(table, row, scale)
        assert (experiment.privacy is not None) == ("-DP" in row.name), row.name


def test_a_cell_is_named_by_what_decides_its_result() -> None:
    table = read_table("5.5")
    name = resolve(table, table.rows[0], "full").experiment.name

    assert name == resolve(table, table.rows[0], "full", workers=1).experiment.name
    assert name != resolve(table, table.rows[0], "full", seed=2).experiment.name
    assert name != resolve(table, table.rows[0], "small").experiment.name
    assert name != resolve(table, table.rows[1], "full").experiment.name


def test_a_key_at_its_default_is_not_part_of_the_name() -> None:
    table = read_table("5.5")
    row = next(row for row in table.rows if row.name == "FL-CS-DP 5 %")

    def name(**more: dict[str, Any]) -> str:
        return resolve(table, row.model_copy(update={"set": merge(row.set, more)}), "full").experiment.name

    assert name(server={"lr": 1.0}, client={"prox": 0.0}, scheme={"public_samples": 10}) == name()
    assert name(client={"prox": 0.1}) != name()
    assert name(scheme={"l1": 2e-5}) != name()


def test_no_set_up_and_no_part_is_left_unused() -> None:
    used, parts = set(), set()
    for table in map(read_table, PROMISED):
        for row in table.rows:
            for scale in SCALES:
                chosen = getattr(row.setup or table.setup, scale)
                used.add(chosen)
                parts |= {(chosen, part) for part in row.uses}

    folder = Path(published.__file__).parent / "setups"
    bases = {
        line.split('"')[1] for path in folder.iterdir() for line in path.read_text().splitlines() if "base =" in line
    }
    assert {path.stem for path in folder.iterdir()} == used | bases
    assert all(part in read_setup(setup).parts for setup, part in parts)


def test_tables_share_their_cells() -> None:
    def cells(*names: str) -> set[str]:
        tables = [read_table(name) for name in names]
        return {resolve(table, row, "full").experiment.name for table in tables for row in table.rows}

    assert {name.rpartition("-")[0] for name in cells("5.5") - cells("8.11")} == {"fl-sign-dp"}
    assert {name.rpartition("-")[0] for name in cells("4.5") - cells("8.12", "8.13")} == {"fl-sign"}
    assert {name.rpartition("-")[0] for name in cells("5.2") & cells("5.5")} == {"fl-sign-dp"}
    assert cells("fig-6.1") < cells("6.5")
    assert cells("fig-6.2") < cells("6.6")
    assert cells("fig-5.1") < cells("4.4", "4.5")


def printed_cost(table: Published, row: Row, down: bool) -> float | None:
    """Return ratio * n * bits * round * C in the unit of the table, for a printed round."""
    round_ = row.printed.get("round")
    if not isinstance(round_, int | float):
        return None
    experiment = resolve(table, row, "full")
    scheme = experiment.scheme.name
    source = experiment.data.source
    dim = {"premier-synthetic": MEDICAL, "cifar10": CIFAR, "imdb": IMDB}.get(source, FASHION)
    rate = experiment.cohort.sample_rate
    ratio = float(experiment.scheme.keys.get("ratio", 1.0))
    bits = 32.0
    if scheme in ("fl-sign", "sign-sgd") and not (down and scheme == "fl-sign"):
        bits = 1 if experiment.privacy is None else 22
    if scheme == "sign-sgd":
        rate = Fraction(1)
    if down and scheme in ("fl-basic", "fl-bas-2", "fl-cs"):
        ratio = 1.0
    size = ratio * dim * bits / 8 * round_ * float(rate)
    return size / {"kB": 1e3, "MB": 1e6, "Mbit": 1e6 / 8}[str(table.unit)]


@pytest.mark.parametrize("name", [name for name in PROMISED if name[0] in "458" and name not in ("5.1", "5.2")])
def test_printed_costs_follow_from_the_printed_rounds(name: str) -> None:
    """A cell that was copied wrongly breaks the papers' own formula; they cut off some digits instead of rounding."""
    table = read_table(name)
    checked = 0

    for row in table.rows:
        for column in ("cost_up", "cost_down"):
            cell = row.printed.get(column)
            expected = printed_cost(table, row, column == "cost_down")
            if isinstance(cell, int | float) and expected is not None:
                assert cell == pytest.approx(expected, rel=2e-3, abs=0.011), (row.name, column)
                checked += 1
    assert checked >= 8


def test_printed_epsilons_are_the_moments_accountants_at_the_printed_rounds() -> None:
    fashion = curve(sample_rate=1 / 60, rounds=200, delta=1e-5, noise_multiplier=1.54, accountant="moments")
    medical = curve(sample_rate=100 / 5010, rounds=100, delta=1e-5, noise_multiplier=1.49, accountant="moments")
    checked = 0

    for table in map(read_table, ("5.3", "5.4", "5.5", "5.6", "8.11", "8.12", "8.13")):
        for row in table.rows:
            epsilon, round_ = row.printed.get("epsilon"), row.printed.get("round")
            if isinstance(epsilon, int | float) and isinstance(round_, int | float):
                values = medical if "balanced_accuracy" in table.columns else fashion
                # They round up or down, and print 1 from 0.995 on.
                assert epsilon == pytest.approx(values[int(round_) - 1], abs=0.011), (table.name, row.name)
                checked += 1
    assert checked > 60


def test_the_noise_of_epsilon_2_and_4_is_the_papers_accountants() -> None:
    parts = read_setup("fashion").parts
    for part, epsilon in (("dp", 1), ("dp-2", 2), ("dp-4", 4)):
        noise = parts[part]["privacy"]["noise_multiplier"]
        values = curve(sample_rate=1 / 60, rounds=200, delta=1e-5, noise_multiplier=noise, accountant="moments")
        assert values[-1] == pytest.approx(epsilon, rel=2e-3)
    noise = read_setup("medical-cs-small").parts["dp"]["privacy"]["noise_multiplier"]
    values = curve(sample_rate=1 / 10, rounds=100, delta=1e-5, noise_multiplier=noise, accountant="moments")
    assert values[-1] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "row", "column", "cell"),
    [
        ("4.1", "FL-SIGN CIFAR", "accuracy", 0.83),
        ("4.2", "Sign-SGD", "cost_up", 332.67),
        ("4.3", "FL-CS 20 %", "round", 74),
        ("4.5", "FL-SIGN", "auroc", 0.79),
        ("5.1", "FL-SIGN-DP epsilon 2", "cost_up", 21),
        ("5.2", "FL-STD-DP epsilon 4", "accuracy", 0.78),
        ("5.3", "FL-CS-DP 10 %", "epsilon", 0.84),
        ("5.4", "FL-STD-DP", "balanced_accuracy", 0.70),
        ("5.5", "FL-TOP-DP 0.5 %", "accuracy", 0.81),
        ("5.6", "FL-TOP-DP 5 %", "round", 23),
        ("6.1", "FL-SIGN, 40 % malicious", "accuracy", 0.94),
        ("6.2", "FL-STD, 10 % malicious", "accuracy", "-"),
        ("6.5", "FL-CS 5 %, 40 % malicious", "class_accuracy", 0.74),
        ("6.8", "FL-TOP 20 %, 20 % malicious", "attack_success", 0.79),
        ("6.11", "FL-SIGN-DP epsilon 1, 40 % malicious", "attack_success", 1),
        ("6.12", "FL-SIGN, 20 % malicious", "attack_success", 0.12),
        ("8.11", "FL-BAS-4-DP 5 %", "accuracy", "?"),
        ("8.11", "FL-BAS-3-DP 0.1 %", "accuracy", "-"),
        ("8.12", "FL-TOP 0.01 %", "balanced_accuracy", 0.64),
        ("8.13", "FL-TOP-BIS-DP 10 %", "auroc", 0.73),
        ("mnist-cs-dp", "FL-CS-DP 5 %", "accuracy", 0.93),
    ],
)
def test_cells_are_those_of_the_documents(name: str, row: str, column: str, cell: float | str) -> None:
    found = next(one for one in read_table(name).rows if one.name == row)
    assert found.printed[column] == cell


def test_the_stand_in_and_the_small_scale_say_what_they_are() -> None:
    for name in ("4.3", "5.6"):
        table = read_table(name)
        for scale in SCALES:
            assert any("closed" in reason for reason in setup_of(table, table.rows[0], scale).differs)
    for table in map(read_table, PROMISED):
        for row in table.rows:
            setup = setup_of(table, row, "small")
            assert any("small scale" in reason for reason in setup.differs), setup.title
    assert setup_of(read_table("4.1"), read_table("4.1").rows[0], "full").train_records == 50000


@pytest.mark.parametrize("name", ["Tab. 5.5", "table 5.5", "5.5", " TAB 5.5 "])
def test_a_table_is_found_by_what_people_write(name: str) -> None:
    assert read_table(name).name == "5.5"


def test_a_figure_is_found_by_what_people_write() -> None:
    assert read_table("Figure 6.1").name == read_table("fig 6.1").name == "fig-6.1"


@pytest.mark.parametrize(("name", "nearest"), [("5.7", "5."), ("fig-6.3", "fig-6."), ("mnist-cs", "mnist-cs-dp")])
def test_an_unknown_table_names_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(InputError, match=rf"there is no published table '{name}'; did you mean '{nearest}"):
        read_table(name)


def test_rows_are_chosen_by_whole_words() -> None:
    table = read_table("8.11")

    assert {row.name for row in table.chosen(["fl-top"])} == {f"FL-TOP {r} %" for r in ("0.1", "0.5", "1", "5", "10")}
    assert [row.name for row in read_table("5.5").chosen(["FL-STD-DP", "fl-top-dp 5 %"])] == [
        "FL-TOP-DP 5 %",
        "FL-STD-DP",
    ]
    assert len(read_table("6.1").chosen(["FL-SIGN, 10 % malicious"])) == 1, "the whole name of a row"
    assert len(read_table("6.1").chosen(["FL-STD, 20 % malicious, 60 % malicious"])) == 10
