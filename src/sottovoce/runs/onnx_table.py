"""Put the preprocessing of a table before an exported ONNX graph: one input a column, so that cells go in.

Numbers are inputs of type double, NaN where a cell is missing; words are strings. Every input has the shape (records,).
The nodes compute what `Preprocessing.apply` does, in double precision as it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, assert_never

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.data import Preprocessing
from sottovoce.data.blind import KNOTS
from sottovoce.data.numerals import parse_number
from sottovoce.data.preprocessing import BucketColumn, CategoryColumn, NumberColumn, OctaveColumn, TableColumn

_OWN: Final = "sottovoce/"  # before every name inside the graph, so that a column may have any other
_ML: Final = "ai.onnx.ml"
_OUT: Final = "; use --features (features=True), whose graph reads features instead of columns"


def check_columns_fit(table: Preprocessing) -> None:
    """Raise unless a graph can compute the features of every column."""
    for column in table.columns:
        if isinstance(column, BucketColumn):
            raise InputError(
                f"column {column.name!r} is hashed into buckets by SHA-256, which ONNX does not have{_OUT}"
            )
        if column.missing == "refuse":
            raise InputError(
                f'column {column.name!r} has missing = "refuse", and an ONNX graph refuses no record{_OUT}'
            )
        if column.name.startswith(_OWN):
            raise InputError(f"column {column.name!r} begins as the names inside the graph do, {_OWN!r}{_OUT}")


def add_columns(path: Path, table: Preprocessing) -> None:
    """Write an ONNX file again, with an input for each column of a table in place of the features."""
    import onnx
    from onnx import compose, helper

    check_columns_fit(table)
    model = compose.add_prefix(onnx.load(str(path)), _OWN, rename_outputs=False)
    graph = model.graph
    answers = [output.name for output in graph.output]
    for column in table.columns:
        if column.name in answers:
            raise InputError(f"column {column.name!r} has the name of an output of the graph{_OUT}")
    nodes = _Nodes(frozenset(table.missing_values))
    blocks = [nodes.features(column) for column in table.columns]
    nodes.add("Concat", blocks, output=graph.input[0].name, axis=1)
    made = [*nodes.made, *graph.node]
    del graph.node[:], graph.input[:]
    graph.node.extend(made)
    graph.initializer.extend(nodes.constants)
    graph.input.extend(
        helper.make_tensor_value_info(
            column.name,
            onnx.TensorProto.STRING if isinstance(column, CategoryColumn) else onnx.TensorProto.DOUBLE,
            ["records"],
        )
        for column in table.columns
    )
    if all(opset.domain != _ML for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid(_ML, 3))
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


@dataclass
class _Nodes:
    """The nodes of the preprocessing, and the constants that they read."""

    empty: frozenset[str]
    made: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def add(self, kind: str, inputs: Sequence[str], *, output: str = "", domain: str = "", **keys: Any) -> str:
        """Add a node and return the name of its output."""
        from onnx import helper

        name = output or f"{_OWN}table/{len(self.made)}"
        self.made.append(helper.make_node(kind, list(inputs), [name], domain=domain, **keys))
        return name

    def constant(self, value: NDArray[Any] | float) -> str:
        """Add a constant, a float64 unless it is an array of another type."""
        from onnx import numpy_helper

        name = f"{_OWN}constant/{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def features(self, column: TableColumn) -> str:
        """Add what makes the features of a column of its cells: float32 (records, features)."""
        if isinstance(column, CategoryColumn):
            return self._words(column)
        if isinstance(column, NumberColumn):
            absent = self._absent(column.name)
            values = self._number(column, absent)
        elif isinstance(column, OctaveColumn):
            absent = self._absent(column.name)
            values = self._octaves(column, absent)
        elif isinstance(column, BucketColumn):
            raise InputError(f"column {column.name!r} is hashed, which ONNX cannot do{_OUT}")
        else:
            assert_never(column)
        if column.missing != "category":
            return self._floats(values)
        told = self._floats(self.add("Unsqueeze", [absent, self._places(1)]))
        return self.add("Concat", [self._floats(values), told], axis=1)

    def _absent(self, name: str) -> str:
        """Tell of each cell whether it is missing: NaN, or a number that stands for it, such as -999."""
        absent = self.add("IsNaN", [name])
        codes = {value for cell in self.empty if (value := parse_number(cell)) is not None}
        for code in sorted(codes):
            absent = self.add("Or", [absent, self.add("Equal", [name, self.constant(code)])])
        return absent

    def _number(self, column: NumberColumn, absent: str) -> str:
        values = column.name
        if column.low is not None and column.high is not None:
            values = self.add("Clip", [values, self.constant(column.low), self.constant(column.high)])
        scaled = self.add("Sub", [values, self.constant(column.center)])
        scaled = self.add("Div", [scaled, self.constant(column.scale)])
        fill = 0.0 if column.fill is None else (column.fill - column.center) / column.scale
        return self.add("Unsqueeze", [self.add("Where", [absent, self.constant(fill), scaled]), self._places(1)])

    def _octaves(self, column: OctaveColumn, absent: str) -> str:
        """Add the hat of each knot: the lower of the slopes from either side, and nothing below zero."""
        inside = self.add("Clip", [column.name, self.constant(KNOTS[0]), self.constant(KNOTS[-1])])
        inside = self.add("Where", [absent, self.constant(0.0), inside])
        inside = self.add("Unsqueeze", [inside, self._places(1)])
        widths = np.diff(KNOTS)
        left = np.append(KNOTS[0] - widths[0], KNOTS[:-1])  # beyond the ends no value lies
        right = np.append(KNOTS[1:], KNOTS[-1] + widths[-1])
        rise = self.add("Div", [self.add("Sub", [inside, self.constant(left)]), self.constant(KNOTS - left)])
        fall = self.add("Div", [self.add("Sub", [self.constant(right), inside]), self.constant(right - KNOTS)])
        hat = self.add("Max", [self.add("Min", [rise, fall]), self.constant(0.0)])
        gone = self.add("Unsqueeze", [absent, self._places(1)])
        return self.add("Where", [gone, self.constant(0.0), hat])

    def _words(self, column: CategoryColumn) -> str:
        """Add one feature a category; of a missing cell its own or none, whatever the categories say."""
        last = len(column.categories) if column.missing == "category" else -1
        codes = {word: place for place, word in enumerate(column.categories)} | dict.fromkeys(sorted(self.empty), last)
        keys: dict[str, Any] = {"keys_strings": list(codes), "values_int64s": list(codes.values()), "default_int64": -1}
        found = self.add("LabelEncoder", [column.name], domain=_ML, **keys)
        found = self.add("Unsqueeze", [found, self._places(1)])
        return self._floats(self.add("Equal", [found, self.constant(np.arange(len(column.features), dtype=np.int64))]))

    def _floats(self, name: str) -> str:
        return self.add("Cast", [name], to=1)  # float32

    def _places(self, *places: int) -> str:
        return self.constant(np.array(places, np.int64))
