"""Data sets as arrays, in one form for all packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.core.provenance import Owned, Provenance, Public
from sottovoce.core.target import CLASSES, Target
from sottovoce.core.validate import in_range
from sottovoce.data.compact import chosen_rows, stretched
from sottovoce.data.overlap import Values, overlap

# What is known of a property of a record.
HAS_NOT: Final = 0
HAS: Final = 1
UNKNOWN: Final = 2

NO_TEST: Final = "none"  # test_data of a data set without test records


class Property(NamedTuple):
    """Something that each record has (1), has not (0), or of which it is not known (2); no model is trained on it."""

    train: NDArray[np.uint8]
    test: NDArray[np.uint8]


class Grouping(NamedTuple):
    """The group of each test record: a value of a declared column, or the site that it comes from."""

    column: str
    names: tuple[str, ...]
    places: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Train and test records of one task.

    `x_*` are uint8 images (records, height, width, channels), uint16 tokens (records, length) or float32 features
    (records, features), which of a long table are held compact (`compact.CompactFeatures`); `y_*` are class numbers
    from 0, or what `target` says. A network sees `x * input_scale`. `ids` names the natural owner of each train record
    where there is one, and `persons` the person that it is about, for a privacy of persons. `class_names` are the
    classes in the user's words, and `preprocessing` says how a table became features (plain JSON, see
    `preprocessing.Preprocessing`). `properties` are facts about the records beside the task, by name, for whoever
    studies what a model gives away about them. `test_from` says whose the test records are; None: they were given
    beside the train records (`tested_on`). `counts_from` says whose the number of train records is. `ranged` are the
    features that were scaled from a public range to [0, 1]. `fitted` names what was taken from the train records and is
    published with the model, and how to declare it instead.
    """

    name: str
    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    classes: int
    input_scale: float = 1.0
    ids: NDArray[np.int64] | None = None
    persons: NDArray[np.int64] | None = None
    owners: frozenset[str] = frozenset()  # of train records, by name; empty: not known
    class_names: tuple[str, ...] | None = None
    preprocessing: dict[str, Any] | None = None
    test_data: str | None = None  # how the test records were chosen, in words; None: they came with the data
    test_from: Provenance | None = None
    counts_from: Provenance = field(default_factory=Owned)
    target: Target = CLASSES  # what a label is: a class number, unless it says otherwise
    properties: Mapping[str, Property] = field(default_factory=dict)
    fitted: Mapping[str, str] = field(default_factory=dict)
    placeholder: bool = False  # zeros in the place of train records that are not here
    ranged: tuple[int, ...] = ()
    subgroups: Grouping | None = None  # of the test records, by [data] subgroup
    sites: Grouping | None = None  # of the test records, by their owner

    def __post_init__(self) -> None:
        if self.x_train.shape[1:] != self.x_test.shape[1:]:
            raise DataError(
                f"{self.name}: a train record has shape {self.x_train.shape[1:]}, a test record {self.x_test.shape[1:]}"
            )
        for part, x, y in (("train", self.x_train, self.y_train), ("test", self.x_test, self.y_test)):
            _check_part(f"{self.name}: {part}", x, y, self.classes, self.target)
        if self.ids is not None and self.ids.shape != self.y_train.shape[:1]:
            raise DataError(f"{self.name}: {len(self.ids)} ids for {len(self.y_train)} train records")
        if self.persons is not None and self.persons.shape != self.y_train.shape:
            raise DataError(f"{self.name}: {len(self.persons)} persons for {len(self.y_train)} train records")
        if self.class_names is not None and len(self.class_names) != self.classes:
            raise DataError(f"{self.name}: {len(self.class_names)} class names for {self.classes} classes")
        for name, known in self.properties.items():
            if known.train.shape != self.y_train.shape or known.test.shape != self.y_test.shape:
                raise DataError(f"{self.name}: property {name!r} is not told of each record")

    @property
    def fitted_on(self) -> str | None:
        """Say what the preprocessing was fitted on: "training records" or "schema"; None if there was none."""
        return None if self.preprocessing is None else str(self.preprocessing["fitted_on"])

    def centred(self) -> Dataset:
        """Return the same with numbers of a public range scaled to [-1, 1] instead of [0, 1]."""
        from sottovoce.data.preprocessing import Preprocessing

        if not self.ranged:
            return self
        parts = [stretched(part, self.ranged) for part in (self.x_train, self.x_test)]
        made = None if self.preprocessing is None else Preprocessing.of(self.preprocessing).centred().describe()
        return replace(self, x_train=parts[0], x_test=parts[1], preprocessing=made, ranged=())

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one record."""
        return tuple(self.x_train.shape[1:])

    @property
    def records(self) -> int:
        """Count the train records."""
        return len(self.y_train)

    def overlap(self, public: Dataset) -> int:
        """Count the train records of public data that are train records of this one, beyond what chance explains.

        Records that are not here are nobody's.

        >>> from sottovoce.data import load
        >>> load("digits").overlap(load("digits"))
        1438
        """
        if self.placeholder:
            return 0
        return overlap(Values(public.x_train, public.input_scale), Values(self.x_train, self.input_scale))

    def tested_on(self) -> Provenance:
        """Say whose the test records are; records that were given beside the train records are compared with them.

        Guarantee: test records of which more equal a train record than chance explains (`overlap`) are the clients'.
        """
        if self.test_from is not None:
            return self.test_from
        if overlap(Values(self.x_test, self.input_scale), Values(self.x_train, self.input_scale)):
            return Owned("clients: a test record equals one of theirs")
        return Public("given beside the clients' records")

    def untested(self) -> Dataset:
        """Return the data set with one zero a class in place of test records: there are none to measure on."""
        return replace(
            self,
            x_test=np.broadcast_to(np.zeros((), self.x_train.dtype), (self.classes, *self.shape)),
            y_test=self.target.blank(self.classes, self.classes).astype(self.y_train.dtype),
            test_data=NO_TEST,
            test_from=Owned(),
            properties={},
            subgroups=None,
            sites=None,
        )

    def describe_inputs(self) -> dict[str, Any]:
        """Say in plain JSON what a model of this data reads, enough to give it new records."""
        return {
            "version": 1,
            "data": self.name,
            "input_shape": list(self.shape),
            "input_type": str(self.x_train.dtype),
            "input_scale": self.input_scale,
            "classes": self.classes,
            "class_names": None if self.class_names is None else list(self.class_names),
            "table": self.preprocessing,
            **({} if self.target.kind == "class" else {"target": self.target.describe()}),
        }

    def split(self, amount: float, rng: Generator) -> tuple[Dataset, Dataset]:
        """Set train records aside: a fraction below 1 of them, or a count (an integer); return (rest, set aside).

        Both keep the test records and the order of the train records. Where persons are known, whole persons are set
        aside, as many as make up that share of them.
        """
        if isinstance(amount, int | np.integer):
            count = int(amount)
        else:
            in_range("the fraction to set aside", amount, low=0, high=1, open_low=True, open_high=True)
            count = max(1, round(amount * self.records))
        in_range("the number of records to set aside", count, low=1, high=self.records - 1)
        if self.persons is not None:
            return self._split_persons(count, rng)
        chosen = np.zeros(self.records, np.bool_)
        chosen[rng.choice(self.records, count, replace=False, shuffle=False)] = True
        return self._only(~chosen), self._only(chosen)

    def _split_persons(self, count: int, rng: Generator) -> tuple[Dataset, Dataset]:
        people, numbers = np.unique(np.asarray(self.persons), return_inverse=True)
        wanted = min(len(people) - 1, max(1, round(count * len(people) / self.records)))
        if wanted < 1:
            raise DataError(f"{self.name}: all records are of one person, so nobody can be set aside")
        chosen = np.zeros(len(people), np.bool_)
        chosen[rng.choice(len(people), wanted, replace=False, shuffle=False)] = True
        return self._only(~chosen[numbers]), self._only(chosen[numbers])

    def _only(self, chosen: NDArray[np.bool_]) -> Dataset:
        return replace(
            self,
            x_train=chosen_rows(self.x_train, chosen),
            y_train=self.y_train[chosen],
            ids=None if self.ids is None else self.ids[chosen],
            persons=None if self.persons is None else self.persons[chosen],
            properties={name: known._replace(train=known.train[chosen]) for name, known in self.properties.items()},
        )


def _check_part(where: str, x: NDArray[Any], y: NDArray[Any], classes: int, target: Target) -> None:
    if y.ndim < 1 or (y.ndim > 1 and target.kind != "answers") or len(x) != len(y):
        raise DataError(f"{where} has {len(x)} records and labels of shape {y.shape}; each record needs one label")
    if len(y) == 0:
        raise DataError(f"{where} has no records")
    target.check(where, y, classes)
