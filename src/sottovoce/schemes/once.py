"""FL-ONCE: one message ever; the server solves for a linear model from the sum of the clients' second moments."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import InputError, WireError
from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Layout, Vector
from sottovoce.schemes.base import Message, Scheme, State, Task
from sottovoce.schemes.keys import described, positive

MOST_FEATURES: Final = 4096  # a message has half the square of it, and the server solves for as many unknowns
MEANS: Final = 0.1  # what the means weigh in a message, beside the second moments
Matrix = NDArray[np.float64]


class Moments(NamedTuple):
    """The moments of a client's records x with targets t: A = mean x x^T, B = mean x t^T, and if wanted their means.

    `means` is (mean x, mean t, 1), and then A and B are taken about the means; without it they are about 0.
    """

    a: Matrix
    b: Matrix
    means: Matrix | None = None


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Once(Scheme):
    """Ridge regression on the model's inputs, from moments that every client sends once.

    Symbols: d = features, C = `outputs`, x a record scaled to norm 1, t = the one-hot label less 1 / C (of two classes
    with one output: +-1/2); A_k, B_k = the means of x x^T and x t^T over the records of client k; s = `noise`.
    A message is A_k's upper triangle, its off-diagonal sqrt(2) times, and B_k: as long as (A_k, B_k) in the Frobenius
    norm. Of the mean message A = sum_j w_j u_j u_j^T and B the server makes

        W = gain sum_j u_j u_j^T B / (sqrt(max(w_j, 0)^2 + tau^2) + ridge mean(w)),   tau^2 = s^2 (d + 1) / 2.

    tau^2 is the mean squared eigenvalue of the noise in A: an eigenvalue counts as the root of its own square plus that
    of the noise, which keeps directions that drowned from being blown up. s is public: z S / (expected cohort).
    With `record_norm` r, x is a record over r, A_k and B_k are taken about the client's own means, which are shorter
    and so let in less noise, and a tenth of (mean x, mean t, 1) is sent too: the bias is mean t - W^T mean x.
    Sufficient statistics perturbation: Vu and Slavkovic 2009; Wang, "Revisiting differentially private linear
    regression", UAI 2018; federated: Alsulaimawi, arXiv 2601.08216. Clipping to one norm and the filter are ours.

    `public_norm`, S: a length that no message falls short of. Clipped to it, all messages are equally long, whatever
    anybody's records, and the scale of S cancels out of the model.
    """

    name: ClassVar[str] = "fl-once"
    paper: ClassVar[str] = "beyond the papers: Wang 2018; Alsulaimawi 2026"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "up and down"
    sends_weights: ClassVar[bool] = False
    once: ClassVar[bool] = True

    record_norm: float | None = field(
        default=None,
        metadata=described(
            "Longest record (L2 norm) that counts in full, a public number; longer ones are scaled down. With it the "
            "model has a bias, and noise costs less, but clients with one record or one class add nothing. Not set: "
            "records count by their direction alone, and the bias is 0.",
            "finite and above 0",
        ),
    )
    ridge: float = field(
        default=0.01,
        metadata=described(
            "What is added to each eigenvalue of the second moments, as a share of their mean; noise adds more by "
            "itself. Raise it if records are few.",
            "at least 0",
        ),
    )
    gain: float = field(
        default=12.0,
        metadata=described(
            "Factor on the solved scores, so that they can stand for logits. It changes the loss, and where a warm "
            "start begins, but no decision.",
            "finite and above 0",
        ),
    )

    outputs: int = field(default=1, metadata={"bound": True})
    noise: float = field(default=0.0, metadata={"bound": True})  # on each value of the mean; the server's copy

    def __post_init__(self) -> None:
        if self.record_norm is not None:
            positive("record_norm", self.record_norm)
        in_range("ridge", self.ridge, low=0, high=math.inf, open_high=True)
        positive("gain", self.gain)

    def fit(self, layout: Layout) -> Self:
        """Return a copy for a model of one linear layer, the only one that can be solved for."""
        shapes = [shape for _, shape in layout.tensors]
        names = [name.rpartition(".")[2] for name, _ in layout.tensors]
        if names != ["kernel", "bias"] or len(shapes[0]) != 2:
            raise InputError(
                f"fl-once solves for a model of one linear layer, got one with the tensors {', '.join(names)}; set "
                '[model] name = "logistic"'
            )
        features, outputs = shapes[0]
        if features > MOST_FEATURES:
            raise InputError(
                f"fl-once sends a value for each pair of features, so they must be at most {MOST_FEATURES}, got "
                f"{features}; let a public front make fewer of them"
            )
        return replace(self, outputs=outputs)

    def bind(self, dim: int, *, seed: int = 0, start: Vector | None = None, importance: Vector | None = None) -> Self:
        """Return a copy for models of `dim` parameters."""
        if dim % self.outputs or dim < 2 * self.outputs:
            raise InputError(f"dim must be (features + 1) * {self.outputs} outputs, got {dim}")
        return super().bind(dim, seed=seed, start=start)

    def with_noise(self, stddev: float) -> Self:
        """Return the server's copy."""
        return replace(self, noise=stddev)

    @property
    def features(self) -> int:
        """Return d, the values of a record."""
        return self.dim // self.outputs - 1

    @property
    def length(self) -> int:
        """Return the values of a message: A's upper triangle, B, and the means if they are sent."""
        d = self.features
        return d * (d + 1) // 2 + d * self.outputs + (0 if self.record_norm is None else d + self.outputs + 1)

    @property
    def public_norm(self) -> float:
        """Return S, which no message falls short of, so that all are clipped to it.

        Directions: |A_k| >= trace(A_k) / sqrt(d) = 1 / sqrt(d). With means, the constant among them is a tenth. A
        client without a record, or without one that is not empty, sends less.
        """
        return 1 / math.sqrt(self.features) if self.record_norm is None else MEANS

    # Nobody needs to be told anything.

    def downlink(self, state: State, seed: int) -> bytes:
        """Return nothing: what a client sums up does not depend on a model."""
        return b""

    def receive(self, payload: bytes, memory: State) -> Task:
        """Return w_0, which nobody reads."""
        if payload:
            raise WireError(f"fl-once expects an empty downlink, got {len(payload)} bytes")
        return Task(np.zeros(self.dim, np.float32) if self.start is None else self.start, 0, memory)

    def statistics(self, features: NDArray[np.float32], labels: NDArray[Any]) -> Vector:
        """Return the moments of a client's records, as they are sent."""
        if not len(labels):
            return np.zeros(self.length, np.float32)
        x, t = self._records(features), self._targets(labels)
        if self.record_norm is None:
            return self.pack(Moments(x.T @ x / len(x), x.T @ t / len(x)))
        means = np.concatenate([x.mean(axis=0), t.mean(axis=0), [1.0]])
        x, t = x - x.mean(axis=0), t - t.mean(axis=0)
        return self.pack(Moments(x.T @ x / len(x), x.T @ t / len(x), means))

    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        """Return the statistics as they are."""
        return update

    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        """Return the model that the mean of the messages is solved for."""
        a, b, means = self.unpack(mean)
        values, vectors = np.linalg.eigh(a)
        tau = self.noise * math.sqrt((self.features + 1) / 2)
        damped = np.hypot(np.maximum(values, 0), tau) + self.ridge * max(0.0, float(values.mean()))
        inverse = np.divide(1, damped, out=np.zeros_like(damped), where=damped > 0)
        kernel = vectors @ (inverse[:, None] * (vectors.T @ b))
        bias = np.zeros(self.outputs)
        if means is not None and self.record_norm is not None:
            x, t, weight = means[: self.features], means[self.features : -1], float(means[-1])
            # Of messages that are all clipped to S, and none longer than 2, at least S / 2 is left, up to noise.
            bias = (t - x @ kernel) / max(weight, self.public_norm / 4)
            kernel = kernel / self.record_norm
        return {"params": (self.gain * np.concatenate([kernel.ravel(), bias])).astype(np.float32)}

    def pack(self, moments: Moments) -> Vector:
        """Return the message of some moments; that of A and B is as long as they are."""
        rows, columns, weights = _triangle(self.features)
        parts = [moments.a[rows, columns] * weights, moments.b.ravel()]
        if moments.means is not None:
            parts.append(MEANS * moments.means)
        return np.concatenate(parts).astype(np.float32)

    def unpack(self, message: Vector) -> Moments:
        """Return the moments of a message."""
        d = self.features
        rows, columns, weights = _triangle(d)
        triangle, b, means = np.split(message.astype(np.float64), [len(rows), len(rows) + d * self.outputs])
        a = np.empty((d, d))
        a[rows, columns] = a[columns, rows] = triangle / weights
        return Moments(a, b.reshape(d, self.outputs), means / MEANS if len(means) else None)

    def _records(self, features: NDArray[np.float32]) -> Matrix:
        """Return records of norm at most 1: their directions, or shares of `record_norm`."""
        x: Matrix = features.reshape(len(features), -1).astype(np.float64)
        if x.shape[1] != self.features:
            raise InputError(f"records of {self.features} features were expected, got {x.shape[1]}")
        norms = np.linalg.norm(x, axis=1, keepdims=True)
        if self.record_norm is None:
            return x / np.where(norms > 0, norms, 1)
        scaled: Matrix = x / np.maximum(norms, self.record_norm)
        return scaled

    def _targets(self, labels: NDArray[Any]) -> Matrix:
        if self.outputs == 1:
            return labels.astype(np.float64)[:, None] - 0.5
        return np.eye(self.outputs)[labels.astype(np.int64)] - 1 / self.outputs

    @property
    def paper_values(self) -> tuple[float, float]:
        """Count the message once, and nothing down."""
        return (self.length, 0)


@lru_cache(maxsize=2)
def _triangle(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Matrix]:
    """Return the places of an upper triangle, and what a message multiplies them by."""
    rows, columns = np.triu_indices(size)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2))
