from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Streams
from sottovoce.data import UNKNOWN, Dataset, partition
from sottovoce.data.catalogue import SOURCES

pytestmark = pytest.mark.data

Real = Callable[[str], Dataset]


@pytest.mark.parametrize(
    "source", [source for source in SOURCES.values() if source.forms], ids=lambda source: source.name
)
def test_the_packed_set_is_what_the_catalogue_says(source, real: Real) -> None:  # type: ignore[no-untyped-def]
    found = real(source.name)

    records = {(found.records, len(found.y_test))}
    assert records <= {source.records, *(form.records for form in source.forms if form.records)}
    assert found.shape == source.shape
    assert found.classes == source.classes
    assert set(np.unique(found.y_train)) == set(range(source.classes))
    kind = {1: np.uint16 if source.name == "imdb" else np.float32, 3: np.uint8}[len(source.shape)]
    assert found.x_train.dtype == found.x_test.dtype == kind
    assert found.input_scale == (1 / 255 if kind == np.uint8 else 1)
    assert bool(found.fitted) == (source.name == "imdb"), "only its vocabulary is taken from the records"
    assert found.fitted_on in (None, "schema")


def test_fashion_mnist_has_six_thousand_of_each_class(real: Real) -> None:
    assert np.bincount(real("fashion-mnist").y_train).tolist() == [6000] * 10


def test_a_review_starts_with_1_after_its_padding(real: Real) -> None:
    rows = real("imdb").x_train
    padded = rows[rows[:, 0] == 0]

    first = np.argmax(padded > 0, axis=1)

    assert set(padded[np.arange(len(padded)), first]) == {1}
    assert rows.max() == 4999


def test_no_person_of_lfw_is_in_two_clients(real: Real) -> None:
    faces = real("lfw")
    assert faces.ids is not None

    dealt = partition("by-id", faces.y_train, 100, Streams(1), ids=faces.ids)

    assert sum(len(np.unique(faces.ids[dealt.records(k)])) for k in range(100)) == len(np.unique(faces.ids))


def test_faces_have_races_and_none_of_fairface_is_unknown(real: Real) -> None:
    races = real("fairface").properties

    assert list(races) == [
        *("White", "Black", "Latino_Hispanic", "East Asian", "Southeast Asian", "Indian", "Middle Eastern"),
    ]
    assert (sum(known.train for known in races.values()) == 1).all()
    assert (int(races["Black"].train.sum()), int(races["Black"].test.sum())) == (2859, 726)


def test_an_attribute_of_lfw_that_is_not_set_is_not_a_no(real: Real) -> None:
    races = real("lfw").properties

    assert list(races) == ["Asian", "Black", "Indian", "White"]
    assert np.bincount(races["Black"].train).tolist() == [6074, 306, 4475]
    unknown = [np.flatnonzero(known.train == UNKNOWN).tolist() for known in races.values()]
    assert all(places == unknown[0] for places in unknown)


def test_first_encounters_of_adults_for_three_days_or_more_remain(real: Real) -> None:
    stays = real("diabetes130")

    # 71,518 patients; at their first encounter 13,926 are elective or newborn, 225 more pregnant, 600 more below 20,
    # and 17,776 more stayed one or two days.
    assert stays.records + len(stays.y_test) == 38_991
    assert (int(stays.y_train.sum()), int(stays.y_test.sum())) == (522, 108)
    assert 0 <= stays.x_train.min() <= stays.x_train.max() <= 1


def test_at_most_522_virtual_hospitals_each_have_a_death(real: Real) -> None:
    stays = real("diabetes130")

    dealt = partition("hospitals", stays.y_train, 522, Streams(1))

    assert {int(stays.y_train[dealt.records(k)].sum()) for k in range(522)} == {1}
    assert (dealt.sizes.smallest, dealt.sizes.largest) == (59, 60)
    with pytest.raises(InputError, match="at most the 522 records of class 1"):
        partition("hospitals", stays.y_train, 523, Streams(1))
