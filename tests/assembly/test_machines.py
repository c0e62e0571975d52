"""The bits of the compressed schemes on processors other than this one, which compilers and libraries can pretend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sottovoce.models.kernels import unavailable

ROOT = Path(__file__).parents[2]
PROBE = """
import hashlib
from pathlib import Path
import numpy as np
from scipy.fft import dct
from sottovoce.schemes.dct import fast_length, first
from sottovoce.schemes.reconstruct import reconstruct
from sottovoce.runs.loop import run
from tests.runs.small import small

def told(name, values):
    print(name, hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest())

rng = np.random.default_rng(0)
chunks = rng.choice([-1, 1], (6, 500)) * rng.exponential(size=(6, 500)) ** 3
measured = np.asarray(dct(chunks, norm="ortho", axis=1)[:, :50], np.float32)
told("float32", reconstruct(measured, 500, 0.05))
told("float64", reconstruct(measured, 500, 0.05, tolerance=1e-6))
update = rng.standard_normal(20_000).astype(np.float32)
told("filter", first(update, fast_length(20_000), 500))
for name, private in (("open", {}), ("private", {"privacy": {"delta": 1e-3, "epsilon": 8.0, "clipping": "adaptive"}})):
    tables = {"experiment": {"name": name, "rounds": 2}, "engine": {"workers": 1}, "client": {"trainer": "fast"}}
    scheme = {"name": "fl-cs", "ratio": 0.2, "chunks": 2}
    run(small(scheme=scheme, **tables, **private), Path(name))
    with np.load(f"{name}/model.npz") as model:
        told(name, np.concatenate([model[key].ravel() for key in model.files]))
"""
# Each without the vectors and the fused multiply-add that every processor of the last ten years has.
PLAIN = {
    "SOTTOVOCE_NATIVE": "0",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Prescott",
    "OPENBLAS_NUM_THREADS": "1",
}


def _told(folder: Path, settings: dict[str, str]) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in PLAIN}
    environment |= settings
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    folder.mkdir()
    command = [sys.executable, "-c", PROBE]
    ran = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.skipif(unavailable() is not None, reason="torch, which trains then, rounds as the processor likes")
def test_solver_filter_and_runs_of_fl_cs_have_the_same_bits_with_and_without_vectors(tmp_path: Path) -> None:
    here, plain = _told(tmp_path / "here", {}), _told(tmp_path / "plain", PLAIN)

    assert here == plain
    assert len(here.splitlines()) == 5
