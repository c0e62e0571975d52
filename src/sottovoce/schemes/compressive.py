"""FL-CS: send a few measurements of a sparse update, reconstruct their mean on the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Final, Literal, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core import native
from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range
from sottovoce.core.vectors import Vector
from sottovoce.schemes import dct
from sottovoce.schemes.base import Message, Scheme, State
from sottovoce.schemes.coordinates import shuffled
from sottovoce.schemes.keys import DEFAULT_RATIO, RATIO, described, kept_of, positive, ratio_of_one

_PAPER_CHUNKS: Final = 200
_SMALL_CHUNK: Final = 4096  # the default makes no chunk smaller than this: 5 % of it are 205 measurements


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Compressive(Scheme):
    """The first cosine coefficients of each chunk of the shuffled update; the server keeps momentum and error.

    Symbols: m = `length`, r = `ratio`, P = `chunks`, lambda = `l1`, eta_G = `server_lr`, rho = `momentum`; in the
    state, u = `momentum` and e = `error`; Theta = the first m / P rows of the DCT-II, C = `encode`, D = `reconstruct`.
    Thesis, Alg. 4; Kerkouche, Ács, Castelluccia and Genevès, "Compression Boosts Differentially Private Federated
    Learning", EuroS&P 2021.

    `chunks` is the papers' 200 unless a chunk would have fewer than 4096 coordinates; then as many as can have 4096.
    """

    name: ClassVar[str] = "fl-cs"
    paper: ClassVar[str] = "thesis, Alg. 4"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "up"
    weighted: ClassVar[bool] = False  # thesis, Alg. 4, line 8: divided by |K|

    ratio: float = field(default=DEFAULT_RATIO, metadata=RATIO)
    server_lr: float = field(
        default=0.35,
        metadata=described("Factor on the server's step (eta_G). Lower it if the loss grows.", "finite and above 0"),
    )
    momentum: float = field(
        default=0.9,
        metadata=described("Weight of the earlier rounds in the server's step (rho); 0 is none.", "in [0, 1)"),
    )
    chunks: int | None = field(
        default=None,
        metadata=described(
            "Pieces into which an update is cut before it is measured (P); fewer pieces reconstruct better and take "
            "longer. Not set: the papers' 200, or fewer for a model of under 800,000 parameters.",
            "at least 1",
        ),
    )
    l1: float = field(
        default=1e-5,
        metadata=described(
            "Weight of sparsity in the reconstruction (lambda). A larger one keeps fewer, larger values.",
            "finite and above 0",
        ),
    )

    def __post_init__(self) -> None:
        ratio_of_one(self.ratio)
        positive("server_lr", self.server_lr)
        in_range("momentum", self.momentum, low=0, high=1, open_high=True)
        positive("l1", self.l1)
        if self.chunks is not None:
            in_range("chunks", self.chunks, low=1)
        if self.dim:
            self._check_chunks()

    def _check_chunks(self) -> None:
        if self.parts > self.dim:
            raise InputError(f"chunks must be at most the {self.dim} parameters, got {self.parts}")
        kept_of(self.ratio, self.size, f"coordinates of each of {self.parts} chunks")

    @property
    def parts(self) -> int:
        """Return P, the number of chunks."""
        return self.chunks or max(1, min(_PAPER_CHUNKS, self.dim // _SMALL_CHUNK))

    @property
    def size(self) -> int:
        """Return the coordinates of the largest chunk."""
        return -(-self.dim // self.parts)

    @property
    def padded(self) -> int:
        """Return the length of a chunk's transform."""
        return dct.fast_length(self.size)

    @property
    def kept(self) -> int:
        """Return m / P, the measurements of one chunk."""
        return max(1, min(self.padded, round(self.ratio * self.dim / self.parts)))

    @property
    def length(self) -> int:
        """Return m, the measurements of all chunks."""
        return self.parts * self.kept

    def init(self, params: Vector) -> State:
        """Return w_0 with u = e = 0 and no solution to start from."""
        return {
            "params": params.copy(),
            "momentum": np.zeros(self.length, np.float32),
            "error": np.zeros(self.length, np.float32),
            "warm": np.zeros((self.parts, self.padded), np.float32),
        }

    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        """Return C(w_k - w): shuffle, split, transform, cut."""
        # Whole, not block by block: transforms in between would drive the update out of the cache.
        chunks = np.empty((self.parts, self.padded), np.float32)
        _gather(update, _order(self.dim, self.parts, self.shared_seed), chunks)
        return dct.forward(chunks)[:, : self.kept].reshape(-1)

    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        """Return Alg. 4, lines 9 to 13, with y = `mean`."""
        u = np.float32(self.momentum) * state["momentum"] + mean
        e = np.float32(self.server_lr) * u + state["error"]
        from sottovoce.schemes.reconstruct import reconstruct  # the server's alone; it loads scipy

        s = reconstruct(e.reshape(self.parts, self.kept), self.padded, self.l1, state["warm"])
        update = self._unshuffle(s)
        # C of what the model really moves by: the solver may put weight on padding. Padding is dropped, so its weight
        # must stay in the error.
        e = e - self.encode(update, seed, rng)
        return {"params": state["params"] + update, "momentum": u, "error": e, "warm": s}

    def transpose(self, message: Vector, seed: int) -> Vector:
        """Return the measurements transformed back, zeros for the coefficients that were cut."""
        return self._unshuffle(np.stack([dct.inverse(row, self.padded) for row in message.reshape(self.parts, -1)]))

    def _unshuffle(self, chunks: NDArray[np.float32]) -> Vector:
        order = _order(self.dim, self.parts, self.shared_seed)
        real = order < self.dim
        update = np.empty(self.dim, np.float32)
        update[order[real]] = chunks[:, : order.shape[1]][real]
        return update

    @property
    def paper_values(self) -> tuple[float, float]:
        """Count r * n up."""
        return (self.ratio * self.dim, self.dim)


@lru_cache(maxsize=2)
def _order(dim: int, parts: int, seed: int) -> NDArray[np.uint32]:
    """Return which coordinate lies where in the chunks; `dim` marks the end of a chunk that is one shorter.

    The shuffled coordinates are dealt like cards, so that no chunk is empty however many there are.
    """
    order = np.full(-(-dim // parts) * parts, dim, np.uint32)
    order[:dim] = shuffled(dim, seed)
    return np.ascontiguousarray(order.reshape(-1, parts).T)


def _gather(update: Vector, order: NDArray[np.uint32], chunks: NDArray[np.float32]) -> None:
    """Fill chunks with shuffled coordinates and pad with zeros."""
    rows, size = order.shape
    update = np.ascontiguousarray(update, np.float32)
    if (library := native.library()) is None:
        chunks[:, :size] = np.append(update, np.float32(0))[order]
        chunks[:, size:] = 0
        return
    places = native.place(update), update.size, native.place(order)
    library.gather(*places, rows, size, native.place(chunks), chunks.shape[1])
