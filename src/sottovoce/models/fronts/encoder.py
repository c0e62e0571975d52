"""A pretrained network as a front: images, texts or rows in, its features out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError, WireError
from sottovoce.core.packages import require
from sottovoce.models.base import Shape
from sottovoce.models.fronts.front import mapped
from sottovoce.models.fronts.pretrained import OPSET, READY, Graph, Pretrained, directions, read_weights
from sottovoce.models.fronts.projection import Projection, unit

_LONGEST: Final = 4096  # bytes of what a set-up says of an encoder
_TOKENS: Final = 256  # of a text, unless the file or the encoder says otherwise
_TEXT: Final = ("tokens", "input_ids", "attention_mask", "token_type_ids")

Floats = NDArray[np.float32]


class EncoderKeys(NamedTuple):
    """What the file says of an encoder: the keys of `[model] encoder`."""

    source: str = "efficientnet-lite0"
    digest: str | None = None
    licence: str | None = None
    size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    tokenizer: str | None = None
    output: str | None = None


class LoadedEncoder(NamedTuple):
    """An encoder in memory, and what everybody must have alike of it."""

    told: dict[str, Any]  # name, digests, licence, transform
    call: Callable[[NDArray[Any]], NDArray[Any]]  # of one stored record, (1, ...)
    width: int
    readout: NDArray[Any] | None  # (classes, width)
    graphs: tuple[Any, ...]  # ONNX models in order, from stored records or tokens; empty: torch runs it


@final
@dataclass(frozen=True, eq=False)
class Encoder:
    """Front that is a pretrained network: one that is ready by name, an ONNX file, or a torch module.

        h = the network's output of one record, its mean over places or tokens
        features = h / |h| / 0.3

    With `dims`, h is first projected: to the directions that its own training classes are told apart by, which follow
    from its weights, where they are known; else to axes that are measured on public records (`projection.py`).

    What is public, and why: the network was trained on data that are not the clients'. Who names an encoder vouches for
    that; docs/encoders.md says what "public" means here. The set-up carries its digests, its licence and how records
    become its inputs, and a node with another encoder refuses. Records are computed one by one: no record is in a call
    with another one.
    """

    keys: EncoderKeys
    input_shape: Shape
    dtype: str
    input_scale: float = 1.0
    dims: int | None = None
    projection: Projection | None = None

    name: ClassVar[str] = "encoder"
    parallel: ClassVar[bool] = True

    @classmethod
    def make(
        cls,
        input_shape: Shape,
        dtype: str,
        *,
        input_scale: float,
        dims: int | None,
        seed: int,
        encoder: EncoderKeys,
    ) -> Self:
        """Return the front for stored records of a shape and type, not yet fitted."""
        ready = READY.get(encoder.source)
        front = cls(encoder, input_shape, dtype, input_scale, dims or (ready.dims if ready else None))
        if front.dims is not None and front.dims > front._network.width:
            raise InputError(
                f"[model] projection.dims must be at most the {front._network.width} features of encoder "
                f"{encoder.source!r}, got {front.dims}"
            )
        return front

    @property
    def _network(self) -> LoadedEncoder:
        return load_encoder(self.keys, self.input_shape, self.dtype, self.input_scale)

    @property
    def described(self) -> dict[str, Any]:
        """Return what everybody has alike of the encoder: name, digests, licence, transform."""
        return self._network.told

    @property
    def graphs(self) -> tuple[Any, ...]:
        """Return its ONNX models in order, from stored records (of texts: from tokens) to h."""
        return self._network.graphs

    @property
    def width(self) -> int:
        """Count the features of a record."""
        return self._network.width if self.dims is None else self.dims

    @property
    def memory(self) -> int:
        """Count the bytes that the features of one record need on the way."""
        return 8 * self._network.width

    @property
    def matrix(self) -> Floats | None:
        """Return the directions that h is projected to, where they follow from the encoder's weights."""
        if self.dims is None or self._network.readout is None:
            return None
        return _directions(self.keys, self.input_shape, self.dtype, self.input_scale, self.dims)

    def outputs(self, x: NDArray[Any]) -> Floats:
        """Return h of stored records, each computed by itself."""
        network = self._network
        found = np.empty((len(x), network.width), np.float32)
        for row in range(len(x)):
            found[row] = network.call(x[row : row + 1].astype(self.dtype, copy=False))
        return np.nan_to_num(found, posinf=0.0, neginf=0.0)

    def features(self, x: NDArray[Any]) -> Floats:
        """Return the features of stored records."""
        found = self.outputs(x)
        if (matrix := self.matrix) is not None:
            # Row by row: a product of many rows may round otherwise than that of one.
            return unit(np.stack([row @ matrix for row in found]) if len(found) else found[:, : self.width])
        return unit(found) if self.dims is None else self._fit.features(found[:, :, None])

    def probe_features(self, x: NDArray[Any]) -> Floats:
        """Return the first outputs: what does not need the numbers of a fit."""
        return unit(self.outputs(x)[:, : self.width])

    @property
    def measured(self) -> bool:
        """Tell whether a projection is measured on public records."""
        return self.dims is not None and self._network.readout is None

    @property
    def _fit(self) -> Projection:
        if self.projection is None:
            raise InputError("front 'encoder' has no projection yet: fit it on public records, or read a set-up")
        return self.projection

    def fitted(self, public: NDArray[Any], scale: float, threads: int = 1) -> Self:
        """Return a copy whose projection was measured on public records, if there is to be one."""
        if not self.measured or self.dims is None:
            return self
        values = public * (scale / self.input_scale)
        values = np.rint(values) if np.issubdtype(np.dtype(self.dtype), np.integer) else values
        found = mapped(self.outputs, values.astype(self.dtype), (self._network.width,), threads)
        return replace(self, projection=Projection.fit(found[:, :, None], self.dims))

    def payload(self) -> bytes:
        """Return what everybody must have alike of the encoder, and the projection if one was measured."""
        told = json.dumps(self.described, sort_keys=True, separators=(",", ":")).encode()
        return len(told).to_bytes(2, "little") + told + (self._fit.payload() if self.measured else b"")

    def told(self, payload: bytes) -> tuple[Self, bytes]:
        """Return a client's copy from a set-up, and its rest; refuse one that was made with another encoder.

        Guarantee: features are of the very network, tokenizer and transform that the server named.
        """
        size = int.from_bytes(payload[:2], "little")
        theirs, rest = payload[2 : 2 + size], payload[2 + size :]
        mine = json.dumps(self.described, sort_keys=True, separators=(",", ":")).encode()
        if theirs != mine:
            raise WireError(f"set-up has another encoder than this node: {_difference(theirs, self.described)}")
        if not self.measured or self.dims is None:
            return self, rest
        known, rest = Projection.read(rest, channels=self._network.width, places=1, dims=self.dims)
        return replace(self, projection=known), rest

    @property
    def most_bytes(self) -> int:
        """Return the bytes of the longest payload that `told` takes."""
        most = 2 + _LONGEST
        return most + (Projection.most_bytes(self._network.width, 1, self.dims or 1) if self.measured else 0)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return its numbers by name, without the encoder's own, and what says which encoder it is."""
        found: dict[str, NDArray[Any]] = {"encoder": np.array(json.dumps(self.described).encode())}
        return found | (self._fit.arrays() if self.measured else {})


def _difference(theirs: bytes, mine: dict[str, Any]) -> str:
    try:
        told = json.loads(theirs)
        keys = [key for key in mine if told.get(key) != mine[key]]
        return ", ".join(f"{key} {str(told.get(key))[:80]!r} and not {str(mine[key])[:80]!r}" for key in keys)[:400]
    except (ValueError, AttributeError):
        return "it cannot be read"


@lru_cache(maxsize=4)
def load_encoder(keys: EncoderKeys, shape: Shape, dtype: str, scale: float) -> LoadedEncoder:
    """Return an encoder, ready for stored records of a shape and type; raise InputError if it cannot read them."""
    require('[model] front = "encoder"', "onnxruntime", "onnx", extra="encoders")
    ready, source = READY.get(keys.source), keys.source
    if ready is not None:
        return _load_ready(ready, keys, shape, dtype, scale)
    if source.endswith(".onnx"):
        return _load_onnx(keys, shape, dtype, scale)
    if source.endswith(".pt2") or ":" in source:
        return _load_torch(keys, shape, dtype, scale)
    from sottovoce.core.validate import nearest

    guess = nearest(source, READY)
    hint = f"did you mean {guess!r}?" if guess else f"ready are {', '.join(READY)}"
    raise InputError(
        f"[model] encoder.source has no {source!r}; {hint} Or name an .onnx file, a .pt2 file or module:function"
    )


@lru_cache(maxsize=4)
def _directions(keys: EncoderKeys, shape: Shape, dtype: str, scale: float, dims: int) -> Floats:
    return directions(np.asarray(load_encoder(keys, shape, dtype, scale).readout), dims)


def _load_ready(ready: Pretrained, keys: EncoderKeys, shape: Shape, dtype: str, scale: float) -> LoadedEncoder:
    """Return an encoder whose weights a package carries; nothing but its weights and its tokenizer is read."""
    path = ready.file(ready.weights)
    found = _checked(path, keys.digest or ready.sha256)
    arrays, graph = read_weights(path), Graph()
    output = ready.graph(arrays, graph)
    size = keys.size or ready.size
    told: dict[str, Any] = {"name": keys.source, "sha256": found, "licence": ready.licence}
    readout = arrays[ready.readout] if ready.readout else None
    if ready.tokenizer:
        body = _model(graph, {"tokens": (7, ["n", "length"])}, output, ready.width)
        tokenizer = ready.file(ready.tokenizer)
        told |= {"tokenizer": _digest(tokenizer), "transform": {"tokens": size, "special": ready.special}}
        return _of_texts(told, tokenizer, ready.special, size, body, shape, dtype, readout)
    mean, std = keys.mean or (ready.mean,), keys.std or (ready.std,)
    body = _model(graph, {"x": (1, ["n", 3, size, size])}, output, ready.width)
    told |= {"transform": _transform(size, mean, std)}
    return _of_images(told, body, _image_graph(shape, dtype, scale, (size, size), 3, mean, std, True), readout)


def _load_onnx(keys: EncoderKeys, shape: Shape, dtype: str, scale: float) -> LoadedEncoder:
    """Return an encoder of the user's own, as an ONNX file whose first input tells what it reads."""
    import onnx

    path = Path(keys.source).expanduser()
    if not path.is_file():
        raise InputError(f"[model] encoder.source: there is no file {path}")
    found = _checked(path, keys.digest)
    try:
        body = onnx.load_model_from_string(path.read_bytes())
        onnx.checker.check_model(body)
    except Exception as error:  # protobuf's and the checker's own kinds
        raise InputError(f"{path} is no ONNX model: {str(error).splitlines()[0]}") from None
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in body.graph.initializer):
        raise InputError(f"{path} keeps numbers in other files, which its digest does not cover; save it as one file")
    _only_output(body, keys.output, path)
    known = {tensor.name for tensor in body.graph.initializer}
    inputs = [value for value in body.graph.input if value.name not in known]
    told: dict[str, Any] = {"name": path.name, "sha256": found, "licence": keys.licence or "not declared"}
    if inputs[0].type.tensor_type.elem_type == onnx.TensorProto.INT64:
        if keys.tokenizer is None:
            raise InputError(f"{path} reads tokens; set [model] encoder.tokenizer to its tokenizer.json")
        tokenizer, size = Path(keys.tokenizer).expanduser(), keys.size or _TOKENS
        told |= {"tokenizer": _digest(tokenizer), "transform": {"tokens": size, "special": True}}
        return _of_texts(told, tokenizer, True, size, body, shape, dtype, None)
    sides = [dim.dim_value for dim in inputs[0].type.tensor_type.shape.dim]
    if len(shape) != 3:
        if len(sides) != 2 or len(shape) != 1:
            raise InputError(f"{path} reads inputs of {len(sides)} axes, and these are records of shape {shape}")
        told |= {"transform": {"rows": shape[0], "scale": scale}}
        return _of_images(told, body, _row_graph(dtype, shape, scale), None)
    if len(sides) != 4:
        raise InputError(f"{path} reads inputs of {len(sides)} axes, and these are images of shape {shape}")
    first = sides[1] in (1, 3) or sides[3] not in (1, 3)
    channels = (sides[1] if first else sides[3]) or 3
    fixed = sides[2] if first else sides[1]
    size = fixed or keys.size or shape[0]
    if keys.size not in (None, size):
        raise InputError(f"[model] encoder.size is {keys.size}, but {path} reads images of {size} pixels; remove it")
    mean, std = keys.mean or (0.0,), keys.std or (1.0,)
    told |= {"transform": _transform(size, mean, std)}
    return _of_images(told, body, _image_graph(shape, dtype, scale, (size, size), channels, mean, std, first), None)


def _load_torch(keys: EncoderKeys, shape: Shape, dtype: str, scale: float) -> LoadedEncoder:
    """Return an encoder that torch runs: a .pt2 file of torch.export, or a module that a function or a name gives."""
    require("an encoder that is a torch module", "torch")
    from sottovoce.models.torch_encoder import TorchEncoder

    module = TorchEncoder.load(keys.source)
    if keys.digest not in (None, module.digest):
        raise InputError(_other_digest(keys.source, module.digest, str(keys.digest)))
    told: dict[str, Any] = {
        "name": Path(keys.source).name,
        "sha256": module.digest,
        "licence": keys.licence or "not declared",
    }
    mean, std = keys.mean or (0.0,), keys.std or (1.0,)
    if len(shape) == 3:
        size = keys.size or shape[0]
        front = _image_graph(shape, dtype, scale, (size, size), module.channels or 3, mean, std, True)
        told |= {"transform": _transform(size, mean, std)}
    else:
        front = _row_graph(dtype, shape, scale)
        told |= {"transform": {"rows": list(shape), "scale": scale}}
    prepare = _session(front)

    def call(x: NDArray[Any]) -> NDArray[Any]:
        return _pooled(module(prepare.run(None, {"records": x})[0]))

    return LoadedEncoder(told, call, _width(call, shape, dtype, keys.source), None, ())


def _of_images(told: dict[str, Any], body: Any, front: Any, readout: NDArray[Any] | None) -> LoadedEncoder:
    """Return an encoder of one array a record: first the graph that prepares it, then the network."""
    known = {tensor.name for tensor in body.graph.initializer}
    (name,) = [value.name for value in body.graph.input if value.name not in known][:1]
    prepare, network = _session(front), _session(body)

    def call(x: NDArray[Any]) -> NDArray[Any]:
        return _pooled(network.run(None, {name: prepare.run(None, {"records": x})[0]})[0])

    value = front.graph.input[0].type.tensor_type
    shape = tuple(dim.dim_value for dim in value.shape.dim)[1:]
    from onnx.helper import tensor_dtype_to_np_dtype

    width = _width(call, shape, str(tensor_dtype_to_np_dtype(value.elem_type)), told["name"])
    return LoadedEncoder(told, call, width, readout, (front, body))


def _of_texts(
    told: dict[str, Any],
    tokenizer: Path,
    special: bool,
    most: int,
    body: Any,
    shape: Shape,
    dtype: str,
    readout: NDArray[Any] | None,
) -> LoadedEncoder:
    """Return an encoder of texts, which are stored as rows of bytes in UTF-8."""
    require("an encoder of texts", "tokenizers")
    from tokenizers import Tokenizer

    if len(shape) != 1 or dtype != "uint8":
        raise InputError(
            f"encoder {told['name']!r} reads texts, and these are records of shape {shape} and type {dtype}; name "
            "the column of a table in [data] text, or give an npz file whose x holds strings"
        )
    tokens = Tokenizer.from_str(tokenizer.read_text("utf-8"))
    tokens.no_padding()
    tokens.enable_truncation(most)
    network = _session(body)
    known = {tensor.name for tensor in body.graph.initializer}
    names = [value.name for value in body.graph.input if value.name not in known]
    if unknown := [name for name in names if name not in _TEXT]:
        raise InputError(f"encoder {told['name']!r} has an input {unknown[0]!r}; known are {', '.join(_TEXT)}")

    def called(ids: NDArray[np.int64]) -> NDArray[Any]:
        fill = {"attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        return _pooled(network.run(None, {name: fill.get(name, ids) for name in names})[0])

    width = int(called(np.ones((1, 1), np.int64)).shape[1])

    def call(x: NDArray[Any]) -> NDArray[Any]:
        text = x[0].tobytes().rstrip(b"\0").decode("utf-8", "replace")
        ids = np.array([tokens.encode(text, add_special_tokens=special).ids], np.int64)
        return called(ids) if ids.size else np.zeros((1, width), np.float32)

    return LoadedEncoder(told, call, width, readout, (body,))


def _pooled(output: NDArray[Any]) -> NDArray[Any]:
    """Return one row of an output of one record: its mean over places (n, channels, ...) or tokens (n, tokens, width).

    Of three axes the last is the width, as text models have it; of four the second, as image models have it.
    """
    if output.ndim == 3:
        return np.asarray(output.mean(1))
    return np.asarray(output.mean((2, 3)) if output.ndim == 4 else output.reshape(1, -1))


def _width(call: Callable[[NDArray[Any]], NDArray[Any]], shape: Shape, dtype: str, name: str) -> int:
    """Return how many features a made-up record has."""
    try:
        return int(call(np.zeros((1, *shape), dtype)).shape[1])
    except InputError:
        raise
    except Exception as error:  # whatever a network raises
        told = (str(error).strip().splitlines() or [""])[0][:200]
        raise InputError(f"encoder {name!r} cannot read records of shape {shape}: {told}") from None


def _session(model: Any) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # several records are computed at once instead
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _model(graph: Graph, inputs: dict[str, tuple[int, list[Any]]], output: str, width: int) -> Any:
    """Return the ONNX model of a graph."""
    from onnx import helper

    values = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    outputs = [helper.make_tensor_value_info(output, 1, ["n", width])]
    made = helper.make_graph(graph.nodes, "encoder", values, outputs, graph.numbers)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def _image_graph(
    shape: Shape,
    dtype: str,
    scale: float,
    size: tuple[int, int],
    channels: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    first: bool,
) -> Any:
    """Return the graph from stored images to what an encoder reads: scaled, made wider, standardised."""
    from onnx import helper

    if len(shape) != 3:
        raise InputError(f"this encoder reads images, and these are records of shape {shape}")
    graph = Graph()
    x = graph.add("Mul", graph.add("Cast", "records", to=1), graph.number(scale))
    x = graph.add("Transpose", x, perm=[0, 3, 1, 2])
    if shape[2] != channels:
        x = graph.add("ReduceMean", x, graph.number([1], np.int64), keepdims=1)
        x = graph.add("Concat", *[x] * channels, axis=1)
    if shape[:2] != size:
        sizes = graph.number(size, np.int64)
        x = graph.add(
            "Resize",
            x,
            "",
            "",
            sizes,
            mode="linear",
            coordinate_transformation_mode="half_pixel",
            axes=[2, 3],
            antialias=1,
        )
    for kind, values in (("Sub", mean), ("Div", std)):
        x = graph.add(kind, x, graph.number(np.reshape(values, (1, -1, 1, 1))))
    x = x if first else graph.add("Transpose", x, perm=[0, 2, 3, 1])
    return _prepare(graph, int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype))), shape, x)


def _row_graph(dtype: str, shape: Shape, scale: float) -> Any:
    from onnx import helper

    graph = Graph()
    x = graph.add("Mul", graph.add("Cast", "records", to=1), graph.number(scale))
    return _prepare(graph, int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype))), shape, x)


def _prepare(graph: Graph, kind: int, shape: Shape, output: str) -> Any:
    from onnx import helper

    value = helper.make_tensor_value_info("records", kind, ["n", *shape])
    made = helper.make_graph(
        graph.nodes,
        "prepare",
        [value],
        [helper.make_tensor_value_info(output, 1, ["n", *[None] * len(shape)])],
        graph.numbers,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def _only_output(body: Any, name: str | None, path: Path) -> None:
    """Leave one output of a model: the one that is named, or the first."""
    names = [value.name for value in body.graph.output]
    if name is not None and name not in names:
        raise InputError(f"[model] encoder.output: {path} has no {name!r}; it has {', '.join(names)}")
    kept = body.graph.output[names.index(name) if name else 0]
    others = [value for value in body.graph.output if value.name != kept.name]
    for value in others:
        body.graph.output.remove(value)


def _transform(size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> dict[str, Any]:
    return {"pixels": size, "mean": [round(value, 9) for value in mean], "std": [round(value, 9) for value in std]}


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def _checked(path: Path, asked: str | None) -> str:
    found = _digest(path)
    if asked not in (None, found):
        raise InputError(_other_digest(path.name, found, str(asked)))
    return found


def _other_digest(name: str, found: str, asked: str) -> str:
    return f"encoder {name!r} has SHA-256 {found}, but {asked} is asked for; install that one, or correct the digest"
