"""Find the whitening of features from one message of every client, in a round before round 1.

It is a round like any other, with the number 0 and a scheme of its own: the "update" of a client are the mean and the
second moments of its features. So it is clipped, noised, summed and charged by the code of every private round. What
is computed from the noisy sum costs nothing more, and travels in the set-up of the training.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import RunError, WireError
from sottovoce.core.vectors import Vector
from sottovoce.federation.engine import Reply, Request
from sottovoce.federation.round import RoundResult, Server, server_round
from sottovoce.models.fronts.projection import LENGTH
from sottovoce.models.whitening import Whitening, triangle_of
from sottovoce.schemes import Message, Scheme, State, Task

WHITEN: Final = 0  # the round of the message
MEANS: Final = 0.3  # what the mean weighs in a message, beside the second moments
OWN_MEANS: Final = 0.2  # the same of ballots, beside moments about a client's own mean ...
REST: Final = 0.3  # ... what the rest weighs ...
MARK: Final = 0.1  # ... and a number that is the same in all messages
SATURATION: Final = 0.2  # of ballots: the length of a message from which on votes saturate
_LEAST: Final = 0.05  # of the mark, of the total: what the server divides by at least
_NOISE: Final = 1.5  # of the noise's eigenvalues: what is added to each eigenvalue at least
_RIDGE: Final = 0.3  # the same, of the mean eigenvalue


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Whiten(Scheme):
    """The scheme of the whitening: every client sends the mean and the second moments of its features once.

    Symbols: d = `width`, d_0 = `dims`, u a record's features scaled to norm 1; m_k, A_k, r_k = the means over the
    records of client k of u, of u u^T over the first d_0 features, and of the squares of the others; s = `noise`. A
    message is 0.3 m_k, A_k's upper triangle, its off-diagonal sqrt(2) times, and r_k if d_0 < d. Of the mean message,
    divided by trace(A) + r, the server makes

        C = A - m m^T = Q diag(w) Q^T,   lambda = max(1.5 tau, 0.3 (1 - |m|^2) / d),   tau^2 = s^2 (d_0 + 1) / 2
        M = Q diag((max(w, 0) + lambda)^(-1/2)) Q^T,   tail = (max(0, r - |m_rest|^2) / (d - d_0) + lambda)^(-1/2)

    With `scatter`, for ballots, A_k and r_k are about m_k, the client's own mean, which makes messages short: what they
    have in common is left out. r_k counts 0.3 times and m_k 0.2 times, and 0.1 is appended. Votes saturate, which
    makes all of the mean message smaller by one factor, and the server reads it off the number that it knows. Then C is
    A over its trace, and m is m. Of a client with one record A_k is 0.

    `public_norm`, S = 1 / sqrt(d_0 + 1): a length that no message falls short of, as trace(A_k) + r_k = 1. Clipped to
    it, all messages are equally long, whatever anybody's records, and the scale of S cancels out with the trace.

    Guarantee: a message depends on the records of one client (or unit) alone; labels are not in it.
    """

    name: ClassVar[str] = "whiten"
    paper: ClassVar[str] = "ours"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "nothing"
    sends_weights: ClassVar[bool] = False
    once: ClassVar[bool] = True
    weighted: ClassVar[bool] = False

    width: int
    dims: int
    scatter: bool = False
    noise: float = 0.0  # on each value of the mean; the server's copy

    @property
    def length(self) -> int:
        """Return the values of a message."""
        return self.width + self.dims * (self.dims + 1) // 2 + (self.dims < self.width) + self.scatter

    @property
    def public_norm(self) -> float:
        """Return S, which no message of a client with a record that is not empty falls short of.

        Ballots are as long as they are; for them it is where votes saturate.
        """
        if self.scatter:
            return SATURATION
        return 1 / math.sqrt(self.dims + 1)

    def with_noise(self, stddev: float) -> Self:
        """Return the server's copy."""
        return replace(self, noise=stddev)

    def downlink(self, state: State, seed: int) -> bytes:
        """Return nothing: what a client sums up does not depend on a model."""
        return b""

    def receive(self, payload: bytes, memory: State) -> Task:
        """Return w_0, which nobody reads."""
        if payload:
            raise WireError(f"the whitening expects an empty downlink, got {len(payload)} bytes")
        return Task(np.zeros(self.dim, np.float32) if self.start is None else self.start, 0, memory)

    def statistics(self, features: NDArray[np.float32], labels: NDArray[Any]) -> Vector:
        """Return the moments of a client's records, as they are sent."""
        if not len(labels):
            return np.zeros(self.length, np.float32)
        u = features.reshape(len(features), -1).astype(np.float64) / LENGTH
        mean = u.mean(axis=0)
        if self.scatter:
            u = u - mean
        rows, columns, weights = triangle_of(self.dims)
        first, rest = u[:, : self.dims], u[:, self.dims :]
        moments = np.take(first.T @ first, rows * self.dims + columns) * (weights / len(u))
        parts = [(OWN_MEANS if self.scatter else MEANS) * mean, moments]
        if self.dims < self.width:
            parts.append(np.array([(REST if self.scatter else 1) * np.mean((rest**2).sum(axis=1))]))
        if self.scatter:
            parts.append(np.array([MARK]))
        return np.concatenate(parts).astype(np.float32)

    def encode(self, update: Vector, seed: int, rng: np.random.Generator) -> Message:
        """Return the moments as they are."""
        return update

    def decode(self, mean: Vector, state: State, seed: int, rng: np.random.Generator) -> State:
        """Return the numbers of the whitening; the model stays w_0."""
        return {"params": state["params"], "whitening": self._numbers(mean.astype(np.float64))}

    def _numbers(self, message: NDArray[np.float64]) -> Vector:
        d, first = self.width, self.dims
        rows, columns, weights = triangle_of(first)
        centre, triangle, rest = np.split(message, [d, d + len(rows)])
        moments = np.empty((first, first))
        moments[rows, columns] = moments[columns, rows] = triangle / weights
        if self.scatter:
            return self._from_scatter(centre, moments, rest)
        energy = float(rest[0]) if len(rest) else 0.0
        # Of messages that are clipped to S, and none longer than 1.1, at least this much is left, up to noise.
        total = max(float(np.trace(moments)) + energy, self.public_norm / 2)
        centre, moments, energy, noise = centre / MEANS / total, moments / total, energy / total, self.noise / total
        left = max(0.05, 1 - float(centre @ centre))
        about_mean = moments - np.outer(centre[:first], centre[:first])
        others = max(0.0, energy - float(centre[first:] @ centre[first:])) / max(1, d - first)
        return self._whitened(centre, about_mean, others, noise, left)

    def _from_scatter(
        self, centre: NDArray[np.float64], moments: NDArray[np.float64], rest: NDArray[np.float64]
    ) -> Vector:
        """Return the numbers from moments about the clients' own means, of votes that saturate."""
        centre = centre / OWN_MEANS / max(float(rest[-1]) / MARK, _LEAST)
        energy = float(rest[0]) / REST if len(rest) > 1 else 0.0
        total = max(float(np.trace(moments)) + max(energy, 0.0), _LEAST)
        others = max(0.0, energy) / total / max(1, self.width - self.dims)
        return self._whitened(centre, moments / total, others, self.noise / total, 1.0)

    def _whitened(
        self,
        centre: NDArray[np.float64],
        moments: NDArray[np.float64],
        others: float,
        noise: float,
        left: float,
    ) -> Vector:
        """Return mean, M and tail from the second moments about the mean; `left` is their trace without noise."""
        rows, columns, _ = triangle_of(self.dims)
        values, vectors = np.linalg.eigh(moments)
        ridge = max(_NOISE * noise * math.sqrt((self.dims + 1) / 2), _RIDGE * left / self.width)
        matrix = (vectors * (np.maximum(values, 0) + ridge) ** -0.5) @ vectors.T
        tail = (others + ridge) ** -0.5
        scale = math.sqrt(ridge)  # numbers of about 1; what is whitened is scaled to one length anyway
        numbers = [centre * LENGTH, (matrix * scale)[rows, columns], [tail * scale]]
        return np.concatenate(numbers).astype(np.float32)


def find_whitening(server: Server, start: Vector) -> Generator[Request, Reply, RoundResult]:
    """Play the server's side; `server` has a `Whiten`, and the plan that it is charged for.

    The state that it ends with has the numbers of the `whitening`.
    """
    result = yield from server_round(server, server.init(start), WHITEN)
    if "whitening" not in result.state or result.total.values is None:
        raise RunError(
            "the whitening failed: too few clients stayed to the end; let fewer drop out, or lower [aggregation] "
            "threshold"
        )
    return result


def whiten_scheme(whitening: Whitening, *, ballots: bool) -> Whiten:
    """Return the scheme that finds the numbers of a whitening."""
    return Whiten(width=whitening.width, dims=whitening.dims, scatter=ballots)
