"""The `[model]` table: the network, the public front before it, and the projection of the front."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field

from sottovoce.config.table import Rate, Table
from sottovoce.core.target import Kind
from sottovoce.models.task import LABELS


class ProjectionTable(Table):
    """The keys of `[model] projection`: how many features a front gives, and the public records they are fitted on."""

    source: str | None = Field(
        None,
        description='Public records that the projection is measured on: "leaves", which are synthetic images of any '
        "shape, or a data set. Not set: leaves, or nothing where a front has nothing to measure.",
    )
    dims: int | None = Field(
        None,
        ge=1,
        description="Features of a record. Not set: 400 (scattering, fourier; fewer on images of 12 x 12 or less), 256 "
        "(gabor, efficientnet-lite0), 2000 (hashed), or all that a function of your own gives.",
    )
    samples: int = Field(4000, ge=2, description="Public records that are used, at most.")
    seed: int = Field(
        1,
        ge=0,
        lt=2**63,
        description="Start of what a front draws: leaves, which records of a data set, directions, hashes. Not a "
        "secret, and not that of the experiment.",
    )
    bandwidth: float | None = Field(
        None,
        gt=0,
        description="Of fourier: the distance over which records are alike. Not set: the root of the number of "
        "columns.",
    )
    ngrams: int = Field(
        1, ge=1, le=8, description="Of hashed: the longest run of tokens that is counted. More need more dims."
    )


class EncoderTable(Table):
    """The keys of `[model] encoder`: which pretrained network, and how records become its inputs."""

    source: str = Field(
        "efficientnet-lite0",
        description='A network that is ready by name: "efficientnet-lite0" (images), "minilm-l6" or "wordllama" '
        '(texts); or a file .onnx or .pt2, or "module:name" of a torch module. Each node has its own copy.',
    )
    digest: str | None = Field(
        None,
        pattern="^[0-9a-f]{64}$",
        description="SHA-256 of its weights: the file's, or of a torch module that of names and values. Another one is "
        "refused. Not set: that of the network that is ready by name, or of the server's file.",
    )
    licence: str | None = Field(
        None, max_length=200, description="Licence of your own file, for set-up and summary. Not set: not declared."
    )
    size: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="Pixels of a side that images are resized to, or the most tokens of a text. Not set: 128 for "
        "efficientnet-lite0, 256 for minilm-l6, 512 for wordllama, as the file says, or the records' own.",
    )
    mean: list[float] | None = Field(
        None,
        min_length=1,
        max_length=3,
        description="Subtracted from pixels in [0, 1], one for all or one a channel. "
        "Not set: what the encoder was trained with; 0 of your own.",
    )
    std: list[Annotated[float, Field(gt=0)]] | None = Field(
        None,
        min_length=1,
        max_length=3,
        description="What pixels are divided by after that. Not set: as with mean; 1 of your own.",
    )
    tokenizer: str | None = Field(
        None, description="Of an .onnx file that reads tokens: its tokenizer.json. Not set: it reads none."
    )
    output: str | None = Field(None, description="Of an .onnx file: the output to take. Not set: the first.")


def squared_defaults(tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the defaults of a file that learns numbers, where they differ: steps on a squared loss can diverge."""
    model, client = (table if isinstance(table := tables.get(name), Mapping) else {} for name in ("model", "client"))
    squared = model.get("task") == "regression" and model.get("loss", "auto") not in ("absolute", "huber")
    return {"client": {"client_lr": "auto"}} if squared and client.get("optimizer", "sgd") == "sgd" else {}


class ModelTable(Table):
    """The `[model]` table: which network is trained, and which public front reads the records before it."""

    name: str = Field(
        "mlp",
        description='Network: "logistic" or "linear" (no hidden layer), "mlp" (one hidden layer), "cnn" (images, 1.7 '
        'million parameters on 28 x 28), "all-cnn-c" (CIFAR-10), "imdb-lstm" (texts), "lfw-cnn" (faces) or '
        '"hospital-mlp" (patients).',
    )
    hidden: int = Field(
        128,
        ge=1,
        description='For name = "mlp": units of the hidden layer. The other networks have the widths of the papers.',
    )
    width: Rate = Field(
        Fraction(1),
        gt=0,
        le=4,
        description='For "cnn", "all-cnn-c", "lfw-cnn" and "hospital-mlp": factor of all widths but the outputs. '
        '"1/4" of "cnn" has 8 and 16 filters and 128 units.',
    )
    front: str = Field(
        "none",
        description="Public, frozen function that turns records into the features that the network reads "
        '(docs/fronts.md): "scattering" (images), "fourier" (tables), "hashed" (token ids), "encoder" (a pretrained '
        'network: images, texts), "module:function" (your own); '
        '"gabor" fills the first layers of name = "cnn" instead. "none": the network reads the records.',
    )
    whiten: bool = Field(
        False,
        description="Whiten the features (of the front, or the records themselves) by their mean and second moments, "
        "which every client tells in one message before round 1 (docs/whitening.md). In a private run it is paid from "
        "the budget ([privacy] whiten_share). It pays from about 3,000 clients or units.",
    )
    whiten_dims: int = Field(
        400,
        ge=1,
        le=2048,
        description="For whiten: the first features, whose second moments are told: one value for each pair. All "
        "others are scaled by one number.",
    )
    task: Literal["classification", "regression", "multilabel", "ordinal"] = Field(
        "classification",
        description='What is learnt (docs/tasks.md): "classification" (one class of several), "regression" (a number), '
        '"multilabel" (several yes-or-no answers, one column each), "ordinal" (classes in an order).',
    )
    loss: str = Field(
        "auto",
        description='For task = "regression": "squared", "absolute" or "huber". "module:function": a loss of your own, '
        'a torch function of outputs and targets that returns one number. "auto": the usual one of the task.',
    )
    class_weights: list[Annotated[float, Field(gt=0)]] | None = Field(
        None,
        min_length=2,
        description="What a record of each class counts in the loss, in the order of the classes; public. Not set: all "
        "count the same.",
    )
    metrics: list[str] = Field(
        [],
        description='Metrics of your own beside the usual ones, each "module:function": a function of answers '
        "(probabilities, or values of a regression) and labels that returns a number (docs/tasks.md). They are "
        "measured where the server has test records.",
    )
    projection: ProjectionTable = Field(
        ProjectionTable(),
        description="What the front is fitted on, and how many features it gives, such as {dims = 400}; its keys are "
        "below.",
    )

    encoder: EncoderTable = Field(
        EncoderTable(),
        description='For front = "encoder" (docs/encoders.md): which pretrained network, such as {source = '
        '"efficientnet-lite0", size = 128}; its keys are below.',
    )

    @property
    def label_kind(self) -> Kind:
        """Return what a label is for this task."""
        return LABELS[self.task]
