"""Stand in for a data set where only its shape matters: nothing is read, and no memory is taken for the records.

The catalogue knows how many records an image or text set has, their shape and their classes. The columns of a table are
known from its file, or from a schema that leaves nothing to the records (`outline_table`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError, InputError
from sottovoce.core.provenance import Public
from sottovoce.core.target import CLASSES, Target
from sottovoce.data.dataset import Dataset
from sottovoce.data.partition import Sizes
from sottovoce.data.preprocessing import declared
from sottovoce.data.schema import read_schema
from sottovoce.data.sources import describe
from sottovoce.data.table import TableKeys
from sottovoce.data.table_files import Source

_TOKENS: Final = "imdb"
_SCALES: Final = {"digits": 1 / 16, _TOKENS: 1.0}  # of stored values; other images have 8 bits


def outline(name: Source, folder: Path | str | None = None) -> Dataset | None:
    """Return a data set of zeros in the shape of a known one, with as many records of each class; None: no outline.

    >>> outline("fashion-mnist").x_train.shape, outline("adult")
    ((60000, 28, 28, 1), None)
    """
    known = next((source for source in describe(folder) if source.name == name), None)
    if known is None or not isinstance(name, str) or (len(known.shape) != 3 and name != _TOKENS):
        return None
    kind = np.uint16 if name == _TOKENS else np.uint8

    def zeros(records: int) -> NDArray[Any]:
        return np.broadcast_to(np.zeros((), kind), (records, *known.shape))

    def labels(records: int) -> NDArray[np.int64]:
        return np.arange(records) % known.classes

    return Dataset(
        name,
        zeros(known.train),
        labels(known.train),
        zeros(known.test),
        labels(known.test),
        classes=known.classes,
        input_scale=_SCALES.get(name, 1 / 255),
        test_from=Public(f"the test records of {name}"),
        counts_from=Public(name),
        placeholder=True,
    )


@final
@dataclass(frozen=True)
class Elsewhere:
    """Partition of records that are not here: the number of clients, and the mean of their records if it is public."""

    clients: int
    mean_size: float = 1.0

    @property
    def total(self) -> int:
        """Return about how many records there are, by the public mean."""
        return round(self.clients * self.mean_size)

    @property
    def sizes(self) -> Sizes:
        """Return the public mean three times: nobody knows more."""
        return Sizes(round(self.mean_size), self.mean_size, round(self.mean_size))

    def size(self, client: int) -> int:
        """Return the public mean."""
        return round(self.mean_size)

    def records(self, client: int) -> NDArray[np.int64]:
        """Refuse: nobody but the client has them."""
        raise InputError(f"the records of client {client} are on its own machine alone")


def outline_table(keys: TableKeys, source: Source, folder: Path | str | None = None) -> Dataset:
    """Return a data set of one zero a class in the shape that a schema fixes, for a table that only sites hold."""
    name = source if isinstance(source, str) else ", ".join(source)
    if keys.label is None:
        raise DataError(f"{name} is a table: name the column with the label in [data] label")
    if keys.schema is None:
        raise DataError(
            f"{name} is a table of which only sites have files: give [data] schema a file with the range of each "
            "number, the categories of each word and the classes, or set [data] shape and classes"
        )
    schema = read_schema(Path(folder or "") / Path(keys.schema).expanduser())
    made = declared(schema, name, keys.label_columns, keys.special, keys.kind)
    zeroed = records_elsewhere((len(made.features),), len(made.classes), 1.0, made.target)
    described = replace(made, id=keys.person or keys.id).describe()
    return replace(zeroed, name=name, class_names=made.classes, preprocessing=described, ranged=made.ranged)


def records_elsewhere(shape: Sequence[int], classes: int, scale: float, target: Target = CLASSES) -> Dataset:
    """Return a data set of one zero a class, in the shape of records that are not here.

    >>> records_elsewhere((28, 28, 1), 10, 1 / 255).shape
    (28, 28, 1)
    """

    def zeros() -> NDArray[Any]:
        return np.broadcast_to(np.zeros((), np.float32), (classes, *shape))

    labels = target.blank(classes, classes)
    nothing = Public("zeros, which stand for records")
    zeroed = Dataset(
        "nodes", zeros(), labels, zeros(), labels, classes, input_scale=scale, target=target, placeholder=True
    )
    return replace(zeroed, test_from=nothing, counts_from=nothing)
