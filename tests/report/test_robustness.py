from __future__ import annotations

import json
from itertools import product
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.report import facts, read_run
from sottovoce.report.robustness import SeedGroup, cells, in_words, picked, telling, worth_a_matrix

from .conftest import Maker

RANDOM = {"attack": "random", "fraction": 0.1, "of": "cohort"}
BACKDOOR = {"attack": "in-backdoor", "fraction": 0.1, "source": 5, "target": 7, "boost": 7}


class Lab:
    """Runs made one after the other, each with a folder and a best accuracy of its own."""

    def __init__(self, make: Maker) -> None:
        self._make = make
        self.runs: list[Any] = []

    def add(self, accuracy: float = 0.9, *, metric: str = "accuracy", **keys: Any) -> None:
        summary = {f"{metric}_best": accuracy, **keys.pop("summary", {})}
        self.runs.append(read_run(self._make(f"run{len(self.runs)}", summary=summary, **keys)))

    def cells(self) -> list[SeedGroup]:
        return cells(self.runs, facts(self.runs))


@pytest.fixture
def lab(make_run: Maker) -> Lab:
    return Lab(make_run)


def test_a_grid_is_rows_of_schemes_and_columns_of_attacks_with_growing_fractions(lab: Lab) -> None:
    for scheme, attack, fraction in product(("fl-top", "fl-std"), ("random", "ascent"), (0.4, 0.1)):
        lab.add(scheme=scheme, threat={"attack": attack, "fraction": fraction})
    lab.add(scheme="fl-std")
    lab.add(scheme="fl-top", private=True)

    found = lab.cells()

    columns = [("random", "10 %"), ("random", "40 %"), ("ascent", "10 %"), ("ascent", "40 %")]
    assert [(cell.row, cell.column) for cell in found] == [
        *(("fl-top", column) for column in columns),
        ("fl-top, private", ("no attack", "")),
        *(("fl-std", column) for column in [("no attack", ""), *columns]),
    ]
    assert [cell.place for cell in found] == [*((0, at) for at in (1, 2, 3, 4)), (1, 0), *((2, at) for at in range(5))]
    assert worth_a_matrix(found)


def test_runs_that_differ_in_their_seeds_are_one_cell_with_their_average(lab: Lab) -> None:
    for seed, accuracy in ((1, 0.9), (2, 0.8), (3, 0.4)):
        lab.add(accuracy, seed=seed, name=f"seed{seed}", threat=BACKDOOR, success=seed / 10, by_class=[0.5] * 10)

    (cell,) = lab.cells()

    assert cell.mean("accuracy") == pytest.approx(0.7)
    assert cell.mean("attack_success") == pytest.approx(0.2)
    assert cell.told() | {"accuracy": 0.7, "attack_success": 0.2} == {
        "row": "fl-std",
        "column": "in-backdoor 10 %",
        "scheme": "fl-std",
        "private": False,
        "setting": {},
        "attack": "in-backdoor",
        "attack_fraction": 0.1,
        "threat": {"source": 5, "target": 7, "boost": 7},
        "runs": ["seed1", "seed2", "seed3"],
        "seeds": [1, 2, 3],
        "diverged": 0,
        "unfinished": 0,
        "rejected_rounds": None,
        "accuracy": 0.7,
        "accuracy_lowest": 0.4,
        "accuracy_highest": 0.9,
        "attack_success": 0.2,
        "attack_success_lowest": 0.1,
        "attack_success_highest": 0.3,
        "class_accuracy": 0.5,
        "class_accuracy_lowest": 0.5,
        "class_accuracy_highest": 0.5,
    }


def test_a_run_that_diverged_is_counted_and_is_in_no_average(lab: Lab) -> None:
    lab.add(0.1, seed=1, threat=RANDOM, diverged=True)
    lab.add(0.9, seed=2, threat=RANDOM)
    lab.add(0.1, threat=RANDOM | {"fraction": 0.4}, diverged=True)

    partly, wholly = lab.cells()

    assert (partly.diverged, len(partly.runs), partly.mean("accuracy")) == (1, 2, 0.9)
    assert (wholly.diverged, wholly.mean("accuracy")) == (1, None)


@pytest.mark.parametrize(
    ("first", "second", "rows"),
    [
        ({"server": {"defence": "median"}}, {"server": {"defence": "krum"}}, ["defence median", "defence krum"]),
        ({"server": {"guard": True}}, {}, ["guard", "no guard"]),
        ({"server": {"guard": "energy"}}, {"server": {"guard": "none"}}, ["guard energy", "no guard"]),
        ({"client": {"momentum": 0.9}}, {"client": {"momentum": 0.5}}, ["momentum 0.9", "momentum 0.5"]),
        ({"network": {"name": "cnn"}}, {"network": {"name": "lstm"}}, ["network cnn", "network lstm"]),
    ],
)
def test_a_setting_in_which_runs_of_a_scheme_differ_makes_rows(
    lab: Lab, first: dict[str, Any], second: dict[str, Any], rows: list[str]
) -> None:
    # The fixture's config has a [client] table already.
    first, second = ({f"{table}2": keys for table, keys in tables.items()} for tables in (first, second))
    lab.add(0.9, threat=RANDOM, tables=first)
    lab.add(0.8, threat=RANDOM, tables=second)

    found = lab.cells()

    assert [cell.row for cell in found] == [f"fl-std, {row}".replace("network", "network2") for row in rows]
    assert [cell.mean("accuracy") for cell in found] == [0.9, 0.8]


def test_what_is_off_is_the_same_whether_an_older_run_says_so_or_not(lab: Lab) -> None:
    lab.add(seed=1, threat=RANDOM, tables={"server": {"guard": "none", "late": False}})
    lab.add(seed=2, threat=RANDOM)

    assert [cell.row for cell in lab.cells()] == ["fl-std"]


def test_a_defence_is_named_even_where_the_scheme_tells_the_runs_apart(lab: Lab) -> None:
    lab.add(scheme="fl-std", threat=RANDOM, tables={"server": {"defence": "median", "rate": 2}})
    lab.add(scheme="fl-sign", threat=RANDOM, tables={"server": {"rate": 1}})

    assert [cell.row for cell in lab.cells()] == ["fl-std, defence median", "fl-sign, no defence"]


@pytest.mark.parametrize("table", ["engine", "sweep"])
def test_seeds_names_and_engines_make_no_rows(lab: Lab, table: str) -> None:
    lab.add(threat=RANDOM, name="a", seed=1, tables={table: {"workers": 1}, "partition": {"seed": 1}})
    lab.add(threat=RANDOM, name="b", seed=2, tables={table: {"workers": 2}, "partition": {"seed": 2}})

    assert [cell.row for cell in lab.cells()] == ["fl-std"]


def test_what_an_attacker_does_otherwise_in_the_same_place_makes_columns(lab: Lab) -> None:
    for boost in (1, 7):
        lab.add(threat=BACKDOOR | {"boost": boost})
    lab.add(threat=RANDOM)

    assert [cell.column for cell in lab.cells()] == [
        ("in-backdoor", "10 %, boost 1"),
        ("in-backdoor", "10 %, boost 7"),
        ("random", "10 %"),
    ]


def test_boosts_that_go_with_the_fraction_or_the_scheme_make_none(lab: Lab) -> None:
    for (fraction, boost), scheme in product(((0.1, 7), (0.4, 1)), ("fl-std", "fl-sign")):
        lab.add(scheme=scheme, threat=BACKDOOR | {"fraction": fraction, "boost": boost if scheme == "fl-std" else 1})

    assert {cell.column for cell in lab.cells()} == {("in-backdoor", "10 %"), ("in-backdoor", "40 %")}


def test_the_cell_has_the_metric_that_chose_the_best_round(lab: Lab) -> None:
    metrics = ("accuracy", "balanced_accuracy")
    lab.add(0.61, metric="balanced_accuracy", metrics=metrics, threat=RANDOM, summary={"accuracy_best": 0.9})

    (cell,) = lab.cells()

    assert (cell.mean("balanced_accuracy"), cell.mean("accuracy")) == (0.61, 0.9)


def test_runs_that_nobody_attacks_have_no_matrix(lab: Lab) -> None:
    lab.add(scheme="fl-std", threat={"attack": "none", "fraction": 0.1})
    lab.add(scheme="fl-top")

    assert lab.cells() == []


def test_one_column_is_not_worth_a_matrix(lab: Lab) -> None:
    lab.add(scheme="fl-std", threat=RANDOM)
    lab.add(scheme="fl-top", threat=RANDOM)

    assert len(lab.cells()) == 2 and not worth_a_matrix(lab.cells())


def test_rejected_rounds_are_averaged_over_the_runs_that_have_a_guard(lab: Lab) -> None:
    lab.add(seed=1, threat=RANDOM, rejected=(1, 2, 3))
    lab.add(seed=2, threat=RANDOM, rejected=(1,))
    lab.add(seed=3, threat=RANDOM)

    (cell,) = lab.cells()

    assert cell.rejected == 2


def test_odd_values_are_left_out_and_cells_are_plain(lab: Lab) -> None:
    odd = {"attack_success_best": "high", "class_accuracy_best": True, "rejected_rounds": "many"}
    lab.add(threat=BACKDOOR, summary=odd | {"attack_fraction": "some"})

    (cell,) = lab.cells()

    assert (cell.mean("attack_success"), cell.mean("class_accuracy"), cell.rejected) == (None, None, None)
    assert cell.column == ("in-backdoor", "")
    json.dumps(cell.told())


KEYS = st.sampled_from(["a.x", "a.y", "b.x", "c"])


@given(found=st.lists(st.dictionaries(KEYS, st.integers(0, 1)), min_size=1, max_size=6))
def test_the_telling_keys_tell_apart_whatever_all_keys_do_and_none_is_idle(found: list[dict[str, Any]]) -> None:
    chosen = telling(found)

    def parts(keys: list[str]) -> int:
        return len({picked(setting, keys) for setting in found})

    everything = sorted({key for setting in found for key in setting})
    assert parts(chosen) == parts(everything)
    assert [parts(chosen[: count + 1]) > parts(chosen[:count]) for count in range(len(chosen))] == [True] * len(chosen)


def test_keys_of_one_name_are_told_with_their_tables() -> None:
    assert in_words({"a.rate": 1, "b.rate": 2}, ["a.rate", "b.rate"]) == ["a.rate 1", "b.rate 2"]


@settings(max_examples=25)
@given(data=st.data())
def test_every_run_is_in_one_cell_and_averages_are_those_of_a_plain_loop(data: st.DataObject, make_run_at: Any) -> None:
    chosen = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(["fl-std", "fl-top"]),
                st.sampled_from([None, 0.1, 0.2]),
                st.integers(0, 100).map(lambda percent: percent / 100),
            ),
            min_size=1,
            max_size=6,
        )
    )
    lab = Lab(make_run_at())
    for seed, (scheme, fraction, accuracy) in enumerate(chosen):
        threat = None if fraction is None else {"attack": "random", "fraction": fraction}
        lab.add(accuracy, scheme=scheme, seed=seed, threat=threat)

    found = {(cell.row, cell.told()["attack_fraction"]): cell.mean("accuracy") for cell in lab.cells()}

    expected: dict[Any, list[float]] = {}
    for scheme, fraction, accuracy in chosen:
        expected.setdefault((scheme, fraction), []).append(accuracy)
    if all(fraction is None for _, fraction, _ in chosen):
        expected = {}
    assert found == pytest.approx({place: fmean(values) for place, values in expected.items()})
