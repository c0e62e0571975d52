"""Mutants of the thin client: other bits on other processors, and memory or packages that it should do without.

C is compiled again by the test on ARM alone, so what is wrong in C must show there.
"""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

ARM = "tests/models/test_arm.py"
NATIVE = "tests/core/test_native.py"
TORCH = "tests/models/test_with_torch.py"

MUTANTS = (
    of(
        "compiled-without-a-trial",
        "a module that fx reads wrongly trains as another function, and nothing says so",
        ("models/torch_compile.py", "return trained if _agrees(model, trained) else None", "return trained"),
        tests="tests/models/test_compile.py",
    ),
    of(
        "compiled-pixels-in-another-order",
        "the columns behind an image belong to other pixels than in the module",
        ("models/compiled.py", "if self.turned and len(below) == 3", "if len(below) == 4"),
        tests="tests/models/test_compile.py",
    ),
    of(
        "diverged-unit-is-encoded",
        "what a scheme makes of a diverged unit is summed",
        ("models/units.py", "for update in chunk[np.isfinite(chunk).all(axis=1)]:", "for update in chunk:"),
        tests="tests/models/test_units.py",
    ),
    of(
        "unit-weighs-more-in-numpy",
        "a machine without a compiler clips units to another norm",
        ("models/units.py", "if squares <= grid.limit:", "if squares <= 2 * grid.limit:"),
        tests="tests/models/test_units.py",
    ),
    of(
        "neon-rounds-twice",
        "a model from ARM is another one",
        ("models/kernels_vector.h", "return vfmaq_f32(c, a, b);", "return a * b + c;"),
        tests=ARM,
    ),
    of(
        "sum-in-another-order",
        "a dot product depends on the processor",
        ("models/kernels_vector.h", "(Places){2, 3, 2, 3}", "(Places){1, 0, 3, 2}"),
        tests=ARM,
    ),
    of(
        "pool-takes-the-last",
        "equal values of a pool learn at another place",
        ("models/kernels_conv.h", "(Mask)(next > best)", "(Mask)(next >= best)"),
        tests=ARM,
    ),
    of(
        "rounding-decides-ties",
        "Winograd's rounding chooses among equal outputs of a pool, and clients learn something else",
        ("models/kernels_winograd.h", "#define CLOSE 2e-6f", "#define CLOSE 0.0f"),
        tests=ARM,
    ),
    of(
        "negative-floats-the-wrong-way",
        "negative values sort in reverse",
        ("core/native_rows.h", "return bits ^ (bits >> 31 & 0x7FFFFFFF);", "return bits;"),
        tests=ARM,
    ),
    of(
        "centres-cut-off",
        "what is rounded towards zero is not what was clipped",
        ("core/native_noise.h", "rint((double)message[index] * scale)", "trunc((double)message[index] * scale)"),
        tests=ARM,
    ),
    of(
        "plain-ties-look-once",
        "without a compiler, a draw that 64 bits do not decide is always the lower one",
        ("privacy/noise/sampler.py", "            outcome += 1\n", "            break\n"),
        tests=NATIVE,
    ),
    of(
        "plain-fma-rounds-twice",
        "without a compiler, fl-freq sends other bytes",
        ("schemes/dct.py", "(error != 0) & even, odd, total", "False, odd, total"),
        tests=NATIVE,
    ),
    of(
        "plan-solved-here",
        "a node keeps the accountant in memory",
        ("privacy/plan/process.py", "before = _APART.set(True)", "before = _APART.set(False)"),
        tests="tests/privacy/test_process.py",
    ),
    of(
        "torch-asked-for-late",
        "a run begins that nobody can train",
        ("core/packages.py", "    if missing:\n", "    if False:\n"),
        tests=TORCH,
    ),
    of(
        "plain-forgets-dropout",
        "without torch the medical models train with all units",
        ("models/plain.py", "                x = x * factors[number]\n", "                pass\n"),
        tests="tests/models/test_plain.py",
    ),
)
