"""A small ONNX encoder, made where a test needs one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
from numpy.random import default_rng

WIDTH = 6


def image_encoder(path: Path, *, seed: int = 1, size: int | None = None, opset: int = 18) -> str:
    """Write a convolution with ReLU as an ONNX file; return its SHA-256."""
    from onnx import TensorProto, helper, numpy_helper, save

    kernel = default_rng(seed).normal(size=(WIDTH, 3, 3, 3)).astype(np.float32)
    side = size or "side"
    graph = helper.make_graph(
        [helper.make_node("Conv", ["image", "kernel"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, side, side])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", WIDTH, None, None])],
        [numpy_helper.from_array(kernel, "kernel")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), str(path))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def text_encoder(folder: Path) -> None:
    """Write `text.onnx`, which looks tokens up, and `tokenizer.json`, whose tokens are words."""
    from onnx import TensorProto, helper, numpy_helper, save

    table = default_rng(2).normal(size=(5, WIDTH)).astype(np.float32)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"])
        for name in ("input_ids", "attention_mask")
    ]
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last"], ["wide"]),
            helper.make_node("Mul", ["rows", "wide"], ["z"]),
        ],
        "small",
        inputs,
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", "length", WIDTH])],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([2], np.int64), "last")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    save(model, str(folder / "text.onnx"))
    words = {"[UNK]": 0, "good": 1, "bad": 2, "film": 3, "a": 4}
    told = {"version": "1.0", "pre_tokenizer": {"type": "Whitespace"}, "added_tokens": []}
    told |= {"normalizer": None, "post_processor": None, "decoder": None, "truncation": None, "padding": None}
    told["model"] = {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"}
    (folder / "tokenizer.json").write_text(json.dumps(told))
