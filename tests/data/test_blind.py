"""Features that need no knowledge of any record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.errors import DataError
from sottovoce.data import Preprocessing, as_table, read_schema, table_dataset
from sottovoce.data.blind import KNOTS, buckets_of, hashed, octaves
from sottovoce.data.preprocessing import fit_columns


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20))
def test_octaves_interpolate_every_number_within_their_ends(values: list[float]) -> None:
    features = octaves(np.array(values))

    assert np.allclose(features.sum(1), 1, atol=1e-6)
    assert (features >= 0).all()
    assert np.allclose(features @ KNOTS, np.clip(values, KNOTS[0], KNOTS[-1]), rtol=1e-5, atol=1e-6)


def test_the_features_of_a_record_depend_on_no_other() -> None:
    together = octaves(np.array([0.3, 70.0, np.nan, -4.0]))
    words = hashed(["a", "b", ""], 16, frozenset({""}))

    assert np.array_equal(together[1], octaves(np.array([70.0]))[0])
    assert not together[2].any()
    assert np.array_equal(words[1], hashed(["b"], 16, frozenset())[0])
    assert not words[2].any()


@given(st.text(min_size=1), st.integers(2, 300))
def test_a_word_has_two_buckets_and_norm_one(word: str, buckets: int) -> None:
    row = hashed([word], buckets, frozenset())[0]

    assert set(np.flatnonzero(row)) == set(buckets_of(word, buckets))
    assert np.linalg.norm(row) == pytest.approx(1)


def test_a_schema_with_neither_range_nor_list_is_fitted_on_nothing_and_goes_to_json_and_back() -> None:
    table = as_table({"dose": ["1.5", "", "300"], "ward": ["a", "b", ""], "died": ["0", "1", "0"]})
    schema = read_schema(
        {
            "columns": {
                "dose": {"kind": "number", "scale": "octaves", "missing": "category"},
                "ward": {"kind": "category", "buckets": 8},
            }
        }
    )

    made = fit_columns(table, schema, np.ones(3, np.bool_), ("died",))

    assert made.fitted_on == "schema"
    again = Preprocessing.of(made.describe())
    assert again == made
    assert np.array_equal(again.apply(table), made.apply(table))
    assert made.apply(table).shape == (3, len(KNOTS) + 1 + 8)
    assert made.apply(table)[1, len(KNOTS)] == 1, "the missing dose has its own feature"


def test_words_are_told_apart() -> None:
    words = ["no", "yes", "heart", "intensive care", "medicine", "surgery", *map(str, range(10))]

    assert len({buckets_of(word, 128) for word in words}) == len(words)


def test_what_is_marked_as_guessed_counts_as_taken_from_the_records() -> None:
    columns = {"dose": list("123456789"), "died": ["no", "yes", "no"] * 3}
    ranged = {"kind": "number", "minimum": 0, "maximum": 9}

    for guessed in (
        {"columns": {"dose": {**ranged, "guessed": True}}, "label": {"classes": ["no", "yes"]}},
        {"columns": {"dose": ranged}, "label": {"classes": ["no", "yes"], "guessed": True}},
    ):
        assert table_dataset(columns, label="died", schema=guessed).fitted_on == "training records"
    declared = {"columns": {"dose": ranged}, "label": {"classes": ["no", "yes"]}}
    assert table_dataset(columns, label="died", schema=declared).fitted_on == "schema"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"kind": "number", "scale": "log"}, 'scale must be "octaves"'),
        ({"kind": "number", "scale": "octaves", "minimum": 0, "maximum": 1}, "needs no minimum"),
        ({"kind": "number", "scale": "octaves", "missing": "mean"}, "missing must be zero, category or refuse"),
        ({"kind": "category", "buckets": 1}, "from 2 to 65536, got 1"),
        ({"kind": "category", "buckets": 8, "categories": ["a"]}, "needs no buckets"),
        ({"kind": "number", "buckets": 8}, "has no key 'buckets'"),
    ],
)
def test_a_wrong_schema_is_one_sentence(said: dict[str, object], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        read_schema({"columns": {"x": said}})


def test_a_front_knows_how_many_features_such_columns_have(tmp_path: Path) -> None:
    from sottovoce.assembly.model import _ranges

    described = fit_columns(
        as_table({"dose": ["1", "2"], "ward": ["a", "b"], "died": ["0", "1"]}),
        read_schema(
            {"columns": {"dose": {"kind": "number", "scale": "octaves"}, "ward": {"kind": "category", "buckets": 8}}}
        ),
        np.ones(2, np.bool_),
        ("died",),
    ).describe()

    centre, spread = _ranges(described)

    assert len(centre) == len(spread) == len(described["features"])
