"""Measure the schemes at the size of the papers' network: CPU time on one core, and bytes as they are serialised."""

from __future__ import annotations

from benchmarks.measure import quiet_threads

quiet_threads()

import importlib.util  # noqa: E402
import sys  # noqa: E402

import numpy as np  # noqa: E402
import scipy.fft  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from benchmarks.table import Row, beside, missed, show  # noqa: E402
from sottovoce.core import wire  # noqa: E402
from sottovoce.schemes import Scheme, known, make  # noqa: E402
from sottovoce.schemes.packed_signs import Tally, pack_signs  # noqa: E402

DIM = 1_663_370
HEADER = 64  # what a payload may take besides its values
RATIO = {"fl-top": 0.005, "fl-top-bis": 0.005, "fl-bas-3": 0.005, "fl-bas-4": 0.005}  # 5 % for the others
ASKED = {"fl-std": 6_653_480, "fl-sign": 207_922, "sign-sgd": 207_922, "fl-top": 33_268}  # up
ASKED_DOWN = {"sign-sgd": 207_922, "fl-top": 33_268}


def ballots(rng: np.random.Generator) -> list[Row]:
    update = rng.standard_normal(DIM, np.float32)
    half = np.where(rng.random(DIM) < 0.5, update, np.float32(0))
    votes = [rng.integers(0, 256, (DIM + 7) // 8, np.uint8) for _ in range(100)]
    for vote in votes:
        vote[-1] &= (1 << (DIM % 8)) - 1

    def tally() -> NDArray[np.int32]:
        counted = Tally(DIM)
        for vote in votes:
            counted.add(vote)
        return counted.total()

    def unpack_and_add() -> NDArray[np.int32]:
        total = np.zeros(DIM, np.uint8)
        for vote in votes:
            total += np.unpackbits(vote, count=DIM, bitorder="little")
        return 2 * total.astype(np.int32) - len(votes)

    if not np.array_equal(tally(), unpack_and_add()):
        raise SystemExit("the vote differs from its peer's")
    return [
        beside(
            "sign and pack",
            lambda: pack_signs(update, rng),
            limit=1,
            peer="numpy packbits(x > 0): no zeros, no NaN",
            theirs=lambda: np.packbits(update > 0, bitorder="little"),
            repeats=50,
        ),
        beside("sign and pack, half of it zeros", lambda: pack_signs(half, rng), limit=1, repeats=50),
        beside("vote of 100 clients", tally, limit=15, peer="numpy unpackbits, add", theirs=unpack_and_add),
    ]


def subsets(rng: np.random.Generator) -> list[Row]:
    scheme = make("fl-top", ratio=0.005).bind(DIM, importance=rng.random(DIM, np.float32))
    update = rng.standard_normal(DIM, np.float32)
    params = update.copy()
    mask = np.asarray(scheme.trainable(0))
    chosen = np.flatnonzero(mask)
    values = scheme.encode(update, 0, rng)

    def scatter() -> None:
        params[chosen] += values

    def scatter_by_mask() -> None:
        params[mask] += values

    return [
        beside(
            "gather of the top 8,317",
            lambda: scheme.encode(update, 0, rng),
            limit=0.1,
            peer="numpy boolean mask",
            theirs=lambda: update[mask],
            repeats=50,
        ),
        beside(
            "scatter of the top 8,317",
            scatter,
            limit=0.1,
            peer="numpy boolean mask",
            theirs=scatter_by_mask,
            repeats=50,
        ),
    ]


def transforms(rng: np.random.Generator) -> list[Row]:
    update = rng.standard_normal(DIM, np.float32)
    compressive, frequency = (make(name).bind(DIM) for name in ("fl-cs", "fl-freq"))
    order = rng.permutation(DIM)
    chunks = np.zeros((200, 8317), np.float32)

    def plain() -> NDArray[np.float32]:
        chunks.reshape(-1)[:DIM] = update[order]
        return np.asarray(scipy.fft.dct(chunks, norm="ortho"))

    return [
        beside(
            "shuffle and chunked DCT of fl-cs",
            lambda: compressive.encode(update, 0, rng),
            limit=8,
            peer="numpy gather, scipy DCT of 200 x 8317",
            theirs=plain,
            repeats=40,
            peer_repeats=5,
        ),
        beside(
            "DCT of fl-freq",
            lambda: frequency.encode(update, 0, rng),
            peer="scipy DCT of 1,663,370",
            theirs=lambda: scipy.fft.dct(update, norm="ortho"),
            peer_repeats=3,
        ),
    ]


def encoding(rng: np.random.Generator) -> list[Row]:
    """What a scheme adds to a client's work; a round of W trains for about 33 ms of CPU a client."""
    update = rng.standard_normal(DIM, np.float32)
    rows = []
    for name in known():
        scheme = make(name).bind(DIM)
        seed = scheme.round_seed(1)
        rows.append(beside(f"encode of {name}", lambda s=scheme, z=seed: s.encode(update, z, rng)))  # type: ignore[misc]
    return rows


def sizes(rng: np.random.Generator) -> list[Row]:
    rows = []
    for name in known():
        keys = {"ratio": RATIO.get(name, 0.05)} if "ratio" in make(name).own_keys() else {}
        scheme = make(name, **keys).bind(DIM, importance=rng.random(DIM, np.float32))
        up, down = payloads(scheme, rng)
        paper_up, paper_down = (4 * values for values in scheme.paper_values)
        label = f"{name} r = {keys['ratio']:.1%}" if keys else name
        for way, size, paper, asked in ((" up", up, paper_up, ASKED), (" down", down, paper_down, ASKED_DOWN)):
            limit = asked[name] + HEADER if name in asked else None
            rows.append(Row(label + way, size, "B", limit, f"the papers' formula: {paper:,.0f}", paper / size))
        if scheme.setup():
            rows.append(Row(f"{label} set-up, once", len(scheme.setup()), "B"))
    return rows


def payloads(scheme: Scheme, rng: np.random.Generator) -> tuple[int, int]:
    update = rng.standard_normal(DIM, np.float32)
    seed = scheme.round_seed(2)
    message = scheme.encode(update, seed, rng)
    if scheme.form == "signs":
        up = wire.frame(message, length=scheme.length, bits=1)
    else:
        up = wire.pack(message)
    state = scheme.init(update)
    if scheme.form == "signs":
        state = scheme.decode(update, state, seed, rng)  # a first vote, so that there is one to send down
    return len(up), len(scheme.downlink(state, seed))


def solver() -> list[Row]:
    """The reconstruction of fl-cs is measured in a file of its own."""
    if importlib.util.find_spec("benchmarks.reconstruct") is None:
        return []
    rows: list[Row] = importlib.import_module("benchmarks.reconstruct").rows()
    return rows


def main() -> int:
    rng = np.random.default_rng(0)
    rows = [*ballots(rng), *subsets(rng), *transforms(rng), *solver(), *encoding(rng), *sizes(rng)]
    print(f"n = {DIM:,}; one core, best CPU time; ratio: peer over ours")
    show(rows)
    return 1 if missed(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
