"""What is written in C gives the bits of the numpy beside it, on every level of processors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from fractions import Fraction
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from sottovoce.core import native, wire
from sottovoce.core.errors import InputError, WireError
from sottovoce.federation.sums import FloatSum
from sottovoce.models.fronts.hashed import Hashed
from sottovoce.models.fronts.projection import Projection
from sottovoce.models.fronts.scattering import Scattering
from sottovoce.models.trainer import LocalTraining, batches_of
from sottovoce.privacy.noise.clipping import norm
from sottovoce.privacy.noise.path import protect_floats, protect_rows
from sottovoce.privacy.noise.randomness import Randomness
from sottovoce.privacy.noise.sampler import invert
from sottovoce.privacy.noise.table import fraction_tables
from sottovoce.schemes import dct
from sottovoce.schemes.compressive import Compressive
from sottovoce.schemes.dct import BLOCK, dots, fma
from sottovoce.schemes.packed_signs import Tally, pack_signs, step
from sottovoce.schemes.reconstruct import reconstruct
from sottovoce.secagg.masks import add_packed, new_sum

SIZES = (1, 3, 8, 31, 32, 33, 255, 1000)
needs_library = pytest.mark.skipif(native.library() is None, reason="there was no C compiler")


def _levels() -> Iterator[Any]:
    spec = find_spec("sottovoce.core._native")
    assert spec is not None and spec.origin is not None
    loaded = ctypes.CDLL(spec.origin)
    for level in range(loaded.sottovoce_native_level() + 1):
        yield native.Functions(loaded, level)


def _everywhere(monkeypatch: pytest.MonkeyPatch, work: Callable[[], list[Any]], *, plain: bool = True) -> None:
    """Compare what `work` returns on every level, and in numpy."""
    found = []
    for library in [*_levels(), *([None] if plain else [])]:
        monkeypatch.setattr(native, "library", lambda library=library: library)
        found.append([np.ascontiguousarray(part).tobytes() for part in work()])

    assert len(found) > 1
    for other in found[1:]:
        assert other == found[0]


def _values(size: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    values[::5] = 0
    return values


@needs_library
@pytest.mark.parametrize("bits", [1, 5, 7, 8, 13, 14, 19, 28, 29, 32])
def test_words_are_packed_unpacked_and_added_alike(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> list[Any]:
        told: list[Any] = []
        for size in SIZES:
            words = np.random.default_rng(size).integers(0, 1 << bits, size).astype(np.uint32)
            packed = wire.pack_bits(words, bits)
            total = new_sum(size, bits, words)
            add_packed(total, packed.tobytes(), bits)
            assert (wire.unpack_bits(packed, bits, size) == words).all()
            assert (total == (2 * words.astype(np.uint64)).astype(total.dtype)).all()
            told += [packed, total, wire.frame(packed, length=size, bits=bits)]
        return told

    _everywhere(monkeypatch, work)


@needs_library
def test_a_message_is_clipped_rounded_and_noised_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> list[Any]:
        told: list[Any] = []
        for size in SIZES:
            message = _values(size)
            told.append(np.float64(norm(message)))
            bits = Randomness.simulated(bytes(32)).bits()
            told.append(
                protect_floats(
                    message, clip_norm=1.0, radius=50.0, precision=4, extra=(0.5,), share_variance=Fraction(9), bits=17,
                    randomness=bits,
                )
            )  # fmt: skip
        return told

    _everywhere(monkeypatch, work)


@needs_library
@pytest.mark.parametrize("bits", [1, 7, 13, 28, 32])
def test_rows_are_framed_and_added_as_single_frames_are(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> list[Any]:
        told: list[Any] = []
        for size in SIZES:
            rows = np.random.default_rng(size).integers(0, 1 << bits, (3, size)).astype(np.uint32)
            frames, total = wire.pack_rows(rows, bits), np.zeros(size, np.uint32)
            assert frames == [wire.pack(row, bits) for row in rows]
            for frame in frames:
                wire.add_words(total, frame, bits)
            assert (total == rows.astype(np.uint64).sum(axis=0).astype(np.uint32)).all()
            told += [np.frombuffer(b"".join(frames), np.uint8), total]
        return told

    _everywhere(monkeypatch, work)


@needs_library
def test_a_wrong_frame_is_refused_and_adds_nothing() -> None:
    words = np.random.default_rng(0).integers(0, 1 << 13, (1, 101)).astype(np.uint32)
    (frame,) = wire.pack_rows(words, 13)
    wrong = [frame[:-1], frame + b"\0", frame[:-1] + bytes([frame[-1] ^ 128])]
    wrong += [frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :] for at in range(len(frame))]
    total = np.zeros(101, np.uint32)
    for payload in wrong:
        with pytest.raises(WireError):
            wire.add_words(total, payload, 13)

    assert not total.any()


@needs_library
def test_messages_are_protected_together_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> list[Any]:
        told: list[Any] = []
        for size, precision in ((1, 4), (33, 4), (1000, 8)):
            messages = np.stack([_values(size, seed) * scale for seed, scale in enumerate((1e-6, 0.3, 1, 40, 1e30, 1))])
            messages[5, size // 2] = np.nan
            keys = {"clip_norm": 1.0, "radius": 50.0, "precision": precision, "share_variance": Fraction(9), "bits": 17}
            streams = [Randomness.simulated(bytes([number] * 32)) for number in range(len(messages))]
            words, lost = protect_rows(messages, **keys, randomness=[key.bits() for key in streams])  # type: ignore[arg-type]
            messages[5] = 0
            alone = [
                protect_floats(row, **keys, extra=(), randomness=key.bits())  # type: ignore[arg-type]
                for row, key in zip(messages, streams, strict=True)
            ]
            assert lost == 1 and words.tobytes() == np.stack(alone).tobytes()
            told.append(words)
        return told

    _everywhere(monkeypatch, work)


@needs_library
def test_batches_are_drawn_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> list[Any]:
        rngs = [np.random.default_rng(number) for number in range(4)]
        return list(batches_of([30, 4, 1000, 5], LocalTraining(batch_size=4), rngs))

    _everywhere(monkeypatch, work)


@needs_library
def test_draws_that_64_bits_do_not_decide_take_the_next_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = fraction_tables(Fraction(3), 2)
    centres = np.array([0, 1, -7, 5, 3, 2], np.int32)
    middle = tables.high.shape[1] // 2
    numbers = tables.high[centres & 3, middle].copy()
    numbers[1] += 1
    spare = np.array([0, 2**63, 2**64 - 1, 5, 0, 0], np.uint64)

    def work() -> list[Any]:
        words = np.empty(6, np.uint32)
        used = invert(tables, centres, numbers, spare, 0, words)
        assert used == 5
        return [words]

    _everywhere(monkeypatch, work)


@needs_library
def test_sums_and_votes_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> list[Any]:
        told: list[Any] = []
        for size in SIZES:
            fold, tally = FloatSum(size, 40), Tally(size)
            total = fold.empty()
            for seed in range(33):
                values = _values(size, seed)
                fold.add(total, wire.pack(values))
                tally.add(pack_signs(values, np.random.default_rng(seed)))
            signs = pack_signs(values, np.random.default_rng(1))
            told += [total, tally.total(), step(values, signs, 0.1)]
        return told

    _everywhere(monkeypatch, work)


@needs_library
def test_transforms_on_a_client_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> list[Any]:
        update, scheme = _values(20_000), Compressive(ratio=0.1, chunks=3, dim=20_000)
        return [
            dct.first(update, dct.fast_length(20_000), 500),
            scheme.encode(update, 0, np.random.default_rng(0)),
        ]

    _everywhere(monkeypatch, work)


@needs_library
def test_features_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 50, (20, 30)).astype(np.uint16)
    images = rng.integers(0, 256, (20, 12, 12, 1)).astype(np.uint8)

    def work() -> list[Any]:
        coefficients = Scattering((12, 12, 1), 1 / 255).coefficients(images)
        projection = Projection.fit(coefficients[:15].copy(), 12) if not fitted else fitted[0]
        fitted.append(projection)
        return [Hashed((30,), dims=64, ngrams=3).features(tokens), coefficients, projection.features(coefficients)]

    fitted: list[Projection] = []
    _everywhere(monkeypatch, work)


@needs_library
def test_the_solver_is_alike_on_every_level(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    measured = dct.forward((rng.standard_normal((3, 300)) ** 5).astype(np.float32))[:, :41].copy()

    _everywhere(
        monkeypatch,
        lambda: [reconstruct(measured, 300, 0.05), reconstruct(measured, 300, 0.05, tolerance=1e-6)],
        plain=False,
    )


def test_fma_rounds_once() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 2000)).astype(np.float32)
    near = (a.astype(np.float64) * b).astype(np.float32)
    c = np.where(np.arange(2000) % 2, -near, rng.standard_normal(2000).astype(np.float32) * np.float32(2.0) ** 24)

    found = fma(a, b, c.astype(np.float32))

    for x, y, z, got in zip(a, b, c, found, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        around = [
            float(got),
            float(np.nextafter(got, np.float32(-np.inf))),
            float(np.nextafter(got, np.float32(np.inf))),
        ]
        assert min(abs(Fraction(other) - exact) for other in around) == abs(Fraction(float(got)) - exact)


def test_fma_does_not_round_to_a_tie_first() -> None:
    a, b, c = (np.array([value], np.float32) for value in (8 * (1 + 2**-23), 8 * (1 - 2**-23), 2**30 + 128))

    assert fma(a, b, c).item() == 2**30 + 128  # the sum is 2^-40 below the middle of two floats


def test_an_inner_product_is_close_to_numpys() -> None:
    rng = np.random.default_rng(0)
    rows, right = (
        rng.standard_normal((5, 3 * BLOCK)).astype(np.float32),
        rng.standard_normal(3 * BLOCK).astype(np.float32),
    )

    np.testing.assert_allclose(dots(rows, right), rows.astype(float) @ right, atol=1e-5)


def test_what_has_no_twin_says_so_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)

    with pytest.raises(InputError, match=r"^the reconstruction of fl-cs on the server needs the part .* written in C"):
        reconstruct(np.ones((1, 4), np.float32), 8, 0.01)


@pytest.mark.parametrize("asked", ["0", "none"])
@needs_library
def test_a_lower_level_can_be_asked_for(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.LEVEL, asked)

    found = native.library.__wrapped__()

    assert (found is None) == (asked == "none")
