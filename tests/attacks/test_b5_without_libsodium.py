"""An environment that was made before ballots needed PyNaCl called its absence a bug in sottovoce."""

from __future__ import annotations

import subprocess
import sys

_WITHOUT = """
import sys
sys.modules["nacl"] = None
from sottovoce.cli.app import main
sys.exit(main(["plan", "experiment.toml"]))
"""


def test_a_missing_libsodium_is_one_sentence_and_no_bug() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr == "error: sottovoce needs PyNaCl, which is not installed here; install it: pip install PyNaCl\n"
