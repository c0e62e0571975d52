"""The sums of a survey: what one unit weighs, what sites add up to, and what is read off noisy sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.errors import InputError
from sottovoce.data.coded import CodedColumn
from sottovoce.federation.stages.answers import SurveyAnswers
from sottovoce.federation.stages.survey import STATISTICS, Survey, make_survey
from sottovoce.federation.stages.tally import SurveyTally
from sottovoce.models import Shard
from sottovoce.models.units import CentreGrid

COLUMNS = (
    CodedColumn("age", 0, 100),
    CodedColumn("bmi", 10, 60),
    CodedColumn("sex", categories=("f", "m")),
    CodedColumn("ward", categories=("a", "b", "c")),
    CodedColumn("weight", 0, 10, complete=True),
)
GRID = CentreGrid(1.0, 37.3, 14)

Array = np.ndarray[Any, Any]


def survey(by: tuple[str, ...] = ("ward",), what: tuple[Any, ...] = STATISTICS, bins: int = 7) -> Survey:
    return make_survey(COLUMNS, [], by, what, bins)


def codes(count: int, seed: int = 1) -> Array:
    rng = np.random.default_rng(seed)
    table = np.empty((count, 5), np.float32)
    table[:, 0] = np.clip(rng.normal(0.2, 0.4, count), -1, 1)
    table[:, 1] = np.clip(0.5 * table[:, 0] + rng.normal(0, 0.3, count), -1, 1)
    table[rng.random(count) < 0.1, 1] = np.nan
    table[:, 2] = rng.choice(4, count, p=[0.5, 0.4, 0.02, 0.08])
    table[:, 3] = rng.choice(5, count)
    table[:, 4] = rng.uniform(-1, 1, count)
    return table


def total(asked: Survey, table: Array, whose: Array | None = None) -> Array:
    return SurveyTally(survey=asked).total(Shard(table, np.zeros(len(table), np.int64), persons=whose), GRID)


row = st.tuples(
    st.floats(-1, 1, width=32) | st.just(math.nan),
    st.floats(-1, 1, width=32) | st.just(math.nan),
    st.integers(0, 3).map(float),
    st.integers(0, 4).map(float),
    st.floats(-1, 1, width=32),
)


@settings(max_examples=60)
@given(row=row, by=st.sampled_from([(), ("ward",), ("ward", "sex")]), bins=st.integers(2, 50))
def test_one_record_is_never_longer_than_the_clip_norm(row: tuple[float, ...], by: tuple[str, ...], bins: int) -> None:
    added = total(survey(by, bins=bins), np.array([row], np.float32))

    assert int((added.astype(object) ** 2).sum()) <= GRID.limit


@settings(max_examples=40)
@given(rows=st.lists(row, min_size=1, max_size=6), by=st.sampled_from([(), ("ward",)]))
def test_one_person_with_any_rows_is_never_longer_than_the_clip_norm(
    rows: list[tuple[float, ...]], by: tuple[str, ...]
) -> None:
    added = total(survey(by), np.array(rows, np.float32), np.zeros(len(rows), np.int64))

    assert int((added.astype(object) ** 2).sum()) <= GRID.limit


@pytest.mark.parametrize("what", [("mean",), ("mean", "stddev"), ("correlation",)])
def test_on_a_coarse_grid_rounding_does_not_lengthen_a_record(what: tuple[Any, ...]) -> None:
    asked, edge = survey(by=(), what=what), np.array([[1, 1, 0, 0, 1]], np.float32)

    for radius in np.linspace(2, 4, 40).tolist():
        grid = CentreGrid(1.0, radius, 4)
        added = SurveyTally(survey=asked).total(Shard(edge, np.zeros(1, np.int64)), grid)
        assert int((added**2).sum()) <= grid.limit


def test_a_record_uses_nearly_all_of_its_clip_norm() -> None:
    """Anything less would be noise for nothing."""
    worst = np.array([[1, 1, 0, 0, 1]], np.float32)

    added = total(survey(what=("count", "histogram", "categories")), worst)

    assert math.sqrt(float((added.astype(float) ** 2).sum())) > 0.9999 * GRID.steps


def test_five_sites_add_up_to_one_that_holds_all_records_bit_for_bit() -> None:
    table, asked = codes(500), survey()

    apart = sum(total(asked, part) for part in np.array_split(table, 5))

    assert np.array_equal(apart, total(asked, table))


def test_a_site_adds_its_records_one_by_one() -> None:
    """The slow twin: each record by itself."""
    table, asked = codes(60), survey()

    assert np.array_equal(sum(total(asked, table[at : at + 1]) for at in range(60)), total(asked, table))


def test_an_empty_site_adds_nothing() -> None:
    assert not total(survey(), codes(0)).any()
    assert not total(survey(), codes(0), np.zeros(0, np.int64)).any()


def test_persons_count_once_however_many_rows_they_have() -> None:
    table = np.repeat(codes(40), 3, axis=0)

    added = total(survey(), table, np.repeat(np.arange(40), 3))

    assert np.abs(added - total(survey(), codes(40))).max() <= 40, "but for a step of rounding each"


def answered(asked: Survey, table: Array, noise: float = 0.0, seed: int = 0, **options: Any) -> SurveyAnswers:
    tally = SurveyTally(survey=asked)
    sums = total(asked, table) / GRID.steps
    sums = sums + noise * np.random.default_rng(seed).standard_normal(sums.shape)
    return SurveyAnswers.read(tally, sums, max(noise, 1e-12), GRID, len(table), **options)


def test_without_noise_the_answers_are_those_of_numpy() -> None:
    table = codes(4000)
    told = answered(survey(by=()), table).told()[0]
    age, bmi = table[:, 0].astype(float), table[:, 1].astype(float)
    there = ~np.isnan(bmi)

    columns = told["columns"]
    assert told["count"]["value"] == 4000
    assert columns["bmi"]["missing"]["value"] == pytest.approx((~there).sum(), abs=0.01)
    assert columns["age"]["mean"]["value"] == pytest.approx(50 + 50 * age.mean(), abs=1e-2)
    assert columns["bmi"]["mean"]["value"] == pytest.approx(35 + 25 * bmi[there].mean(), abs=1e-2)
    assert columns["bmi"]["stddev"]["value"] == pytest.approx(25 * bmi[there].std(), abs=1e-2)
    assert columns["weight"]["missing"]["value"] == 0
    bins = [each["value"] for each in columns["age"]["histogram"]["bins"]]
    assert np.allclose(bins, np.histogram(age, 7, (-1, 1))[0], atol=0.01)
    fine = answered(survey(by=(), bins=200), table).told()[0]["columns"]["age"]["quantiles"]["0.5"]["value"]
    assert fine == pytest.approx(50 + 50 * np.median(age), abs=0.5)
    words = {each["category"]: each["value"] for each in columns["sex"]["categories"]}
    assert words["f"] == pytest.approx((table[:, 2] == 0).sum(), abs=0.01)
    assert columns["sex"]["missing"]["value"] == pytest.approx((table[:, 2] == 3).sum(), abs=0.01)
    whole = np.stack([age, bmi, table[:, 4]])[:, there]
    found = {tuple(each["columns"]): each["value"] for each in told["correlations"]}
    assert found["age", "bmi"] == pytest.approx(np.corrcoef(whole)[0, 1], abs=2e-3)


def test_groups_are_told_apart() -> None:
    table = codes(3000)
    told = answered(survey(), table).told()

    assert [each["group"]["ward"] for each in told] == ["a", "b", "c", "(other)", "(missing)"]
    for number, each in enumerate(told):
        mine = table[table[:, 3] == number]
        assert each["count"]["value"] == pytest.approx(len(mine), abs=0.01)
        assert each["columns"]["age"]["mean"]["value"] == pytest.approx(50 + 50 * mine[:, 0].mean(), abs=0.05)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """200 draws of the noise; the false alarm rate of each bound, at a true 90 %, is below 1e-3."""
    table, asked = codes(3000), make_survey(COLUMNS, ["age", "bmi"], [], STATISTICS, 7)
    truth = answered(asked, table).told()[0]
    inside = {"mean": 0, "stddev": 0, "quantile": 0, "missing": 0, "correlation": 0, "bin": 0}
    for seed in range(200):
        told = answered(asked, table, noise=4.0, seed=seed, confidence=0.9, quantiles=(0.5,)).told()[0]
        pairs = {
            **{name: (told["columns"]["bmi"][name], truth["columns"]["bmi"][name]) for name in ("mean", "stddev")},
            "missing": (told["columns"]["bmi"]["missing"], truth["columns"]["bmi"]["missing"]),
            "quantile": (told["columns"]["age"]["quantiles"]["0.5"], truth["columns"]["age"]["quantiles"]["0.5"]),
            "correlation": (told["correlations"][0], truth["correlations"][0]),
            "bin": tuple(each["columns"]["age"]["histogram"]["bins"][3] for each in (told, truth)),
        }
        for name, (one, true) in pairs.items():
            inside[name] += one["low"] <= true["value"] <= one["high"]

    assert all(167 <= count <= 197 for count in inside.values()), inside


def test_rare_categories_are_not_shown() -> None:
    told = answered(survey(by=()), codes(3000), noise=4.0).told()[0]["columns"]["sex"]

    assert {each["category"] for each in told["categories"]} >= {"f", "m"}
    assert all(each["value"] > told["threshold"] for each in told["categories"])


def test_too_few_records_have_no_mean_and_no_correlation() -> None:
    told = answered(survey(by=("ward",)), codes(30), noise=5.0).told()[0]

    assert told["columns"]["age"]["mean"] is None
    assert told["columns"]["age"]["quantiles"] is None
    assert told["correlations"][0]["value"] is None


def test_fewer_questions_have_less_noise() -> None:
    alone = answered(survey(by=(), what=("mean",)), codes(100), noise=1.0)
    all_of_them = answered(survey(by=()), codes(100), noise=1.0)

    assert sum(each["budget_share"] for each in all_of_them.queries()) == pytest.approx(1)
    assert alone.queries()[0]["noise_stddev"] < all_of_them.queries()[0]["noise_stddev"]


def test_numbers_make_no_groups() -> None:
    with pytest.raises(InputError, match="holds numbers"):
        survey(by=("age",))


def test_a_survey_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="none of correlation"):
        make_survey(COLUMNS[:1], [], [], ("correlation",), 5)


def test_too_many_cells_are_refused() -> None:
    with pytest.raises(InputError, match="group by fewer columns"):
        survey(by=("ward", "sex"), bins=10_000_000)
