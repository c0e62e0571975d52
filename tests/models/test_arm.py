"""The compiled functions on a 64-bit ARM processor: cross-compiled, run by qemu, fed with what was recorded here.

What is recorded here is compared with numpy twins in tests/core/test_native.py and tests/models/test_fast.py.
"""

from __future__ import annotations

import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce
from sottovoce.core import native, wire
from sottovoce.federation.sums import FloatSum
from sottovoce.models import LocalTraining, Shard, batches, network
from sottovoce.models.fast import FastTrainer, unavailable
from sottovoce.models.fronts.hashed import Hashed
from sottovoce.models.fronts.projection import Projection
from sottovoce.models.fronts.scattering import Scattering
from sottovoce.privacy.noise.path import protect_floats, protect_rows
from sottovoce.privacy.noise.randomness import Randomness
from sottovoce.schemes import dct
from sottovoce.schemes.compressive import Compressive
from sottovoce.schemes.packed_signs import Tally, pack_signs, step
from sottovoce.schemes.reconstruct import reconstruct
from sottovoce.secagg.masks import add_packed, new_sum
from sottovoce.secagg.ot import extension as bits
from sottovoce.studies.mechanisms.sgd import fit_sgd
from sottovoce.threats.defences import columns, rows
from tests.models.replay import KernelSpy, NativeSpy, Tape

COMPILER, RUNNER = "aarch64-linux-gnu-gcc", "qemu-aarch64-static"
LACKING = [tool for tool in (COMPILER, RUNNER) if shutil.which(tool) is None]
HOME = Path(sottovoce.__file__).parent
KERNELS = ["pack", "scores", "train", "updates"]

pytestmark = [
    pytest.mark.skipif(bool(LACKING), reason=f"not installed here: {', '.join(LACKING)}"),
    pytest.mark.skipif(native.library() is None or unavailable() is not None, reason="nothing is compiled here"),
]


def _replay(folder: Path, tape: Tape, names: list[str], sources: list[Path], *options: str) -> list[str]:
    """Return what a 64-bit ARM processor computes otherwise."""
    functions = [f"sottovoce_{name}_0" for name in names]
    lines = [f"extern void {name}(void);" for name in functions]
    lines.append(f"static void (*const FUNCTIONS[])(void) = {{{', '.join(functions)}}};")
    (folder / "arm_functions.h").write_text("\n".join(lines))
    driver = Path(__file__).with_name("arm_driver.c")
    command = [COMPILER, "-O3", "-std=c11", "-static", "-fno-math-errno", "-ffp-contract=off", *options, f"-I{folder}"]
    subprocess.run([*command, str(driver), *map(str, sources), "-lm", "-o", str(folder / "driver")], check=True)
    (folder / "tape").write_bytes(tape.write(names))
    subprocess.run([RUNNER, *(str(folder / name) for name in ("driver", "tape", "told"))], check=True)
    return tape.differences((folder / "told").read_bytes())


def _play_native() -> None:
    """Call every function of core/native at least once."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal(1003).astype(np.float32)
    for wide in (5, 13, 19, 31):
        words = rng.integers(0, 1 << wide, 501).astype(np.uint32)
        packed = wire.pack_bits(words, wide)
        wire.unpack_bits(packed, wide, 501)
        add_packed(new_sum(501, wide, words), packed.tobytes(), wide)
    fold, tally = FloatSum(1003, 3), Tally(1003)
    fold.add(fold.empty(), wire.pack(values))
    for seed in range(16):
        tally.add(pack_signs(rng.standard_normal(1003).astype(np.float32), np.random.default_rng(seed)))
    tally.total()
    step(values, pack_signs(values, rng), 0.1)
    noise = Randomness.simulated(bytes(32)).bits()
    keys = {"clip_norm": 1.0, "radius": 50.0, "precision": 4, "extra": (), "bits": 17}
    protect_floats(values, share_variance=Fraction(9), randomness=noise, **keys)  # type: ignore[arg-type]
    del keys["extra"]
    rows_of = np.stack([values, 1e3 * values])
    words, _ = protect_rows(rows_of, share_variance=Fraction(9), randomness=[noise, noise], **keys)  # type: ignore[arg-type]
    total = np.zeros(1003, np.uint32)
    for frame in wire.pack_rows(words, 17):
        wire.add_words(total, frame, 17)
    update = rng.standard_normal(17_000).astype(np.float32)
    batches(30, LocalTraining(), rng)
    dct.first(update, dct.fast_length(17_000), 400)
    Compressive(ratio=0.1, chunks=3, dim=1003).encode(values, 0, rng)
    Hashed((30,), dims=64, ngrams=3).features(rng.integers(0, 50, (5, 30)).astype(np.uint16))
    coefficients = Scattering((12, 12, 1), 1 / 255).coefficients(rng.integers(0, 256, (16, 12, 12, 1)).astype(np.uint8))
    Projection.fit(coefficients, 5).features(coefficients)
    measured = dct.forward((rng.standard_normal((1, 90)) ** 3).astype(np.float32))[:, :19].copy()
    reconstruct(measured, 90, 0.05)
    reconstruct(measured, 90, 0.05, tolerance=1e-6)
    updates = rng.standard_normal((9, 333)).astype(np.float32)
    used = rows.finite_rows(updates)[1:]
    rows.pairwise(updates, used), rows.products(updates, used)
    rows.squared_distances(updates, used, np.full(333, 0.1)), rows.weighted_sum(updates, used, np.linspace(0, 1, 8))
    columns.middle_mean(updates, used, 2, 6), columns.closest_mean(updates, used, 5)
    bits.transpose(rng.integers(0, 1 << 63, (128, 4)).astype(np.uint64))
    bits.column_hashes(rng.integers(0, 1 << 63, (3, 8)).astype(np.uint64), bytes(range(16)))
    for dtype in (np.float32, np.float64):
        fit_sgd(updates.astype(dtype), np.arange(9) % 3, 3, None, rng, epochs=1)


def test_every_function_of_the_library_gives_the_same_bits_on_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = Tape()
    spy = NativeSpy(native.library(), native.SIGNATURES, tape)
    monkeypatch.setattr(native, "place", spy.place)
    monkeypatch.setattr(native, "library", lambda: spy)

    _play_native()

    names = sorted(native.SIGNATURES)
    assert {call.name for call in tape.calls} == set(names)
    assert _replay(tmp_path, tape, names, [HOME / "core/native_base.c"], "-fno-trapping-math") == []


def _play_kernels(tape: Tape, name: str, shape: tuple[int, ...], kept: float | None, tied: bool) -> None:
    net, rng = network(name, shape, 10), np.random.default_rng(0)
    training = LocalTraining(local_steps=3, batch_size=6, client_lr=0.1)
    shards = [Shard(rng.integers(0, 256, (6, *shape)).astype(np.uint8), rng.integers(0, 10, 6)) for _ in range(2)]
    trainer: Any = FastTrainer(net, training)
    trainer._kernels = KernelSpy(trainer._kernels, net.dim, int(np.prod(shape)), 6, 10, tape)
    start = net.initialise(np.random.default_rng(1))
    if tied:  # all outputs of the first convolution are equal, inner ones of the second too: pools must choose
        start[net.layout.span("0.kernel")], start[net.layout.span("0.bias")] = 0, 1
    mask = None if kept is None else rng.random(net.dim) < kept
    for _ in trainer.updates(start, shards, [np.random.default_rng(k) for k in range(2)], mask):
        pass
    trainer.scores(start, shards[0].x)


def test_training_and_scores_have_the_same_bits_on_arm_as_with_avx2(tmp_path: Path) -> None:
    tape = Tape()
    for name, shape, kept, tied in (
        ("cnn", (8, 8, 1), None, False),
        ("cnn", (16, 16, 1), None, True),
        ("cnn", (8, 8, 1), 0.4, False),
        ("cnn", (8, 8, 1), 0.01, False),
        ("mlp", (9, 9, 1), None, False),
        ("mlp", (9, 9, 1), 0.05, False),
        ("logistic", (9, 9, 1), None, False),
    ):
        _play_kernels(tape, name, shape, kept, tied)

    assert _replay(tmp_path, tape, KERNELS, [HOME / "models/kernels.c"]) == []
