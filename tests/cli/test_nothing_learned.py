"""`run` and `serve` end with exit code 4 when nothing was learned."""

from __future__ import annotations

from pathlib import Path

from .conftest import Shell

SILENT = ["--set=devices.profile=phone-lte", "--set=devices.dropout=0.9", "--set=aggregation.secure=real"]


def test_a_run_without_answers_ends_with_exit_code_4_also_when_it_is_asked_again(shell: Shell, tmp_path: Path) -> None:
    file, out = tmp_path / "silent.toml", str(tmp_path / "out")
    file.write_text('[data]\nsource = "digits"\nclients = 12\n[cohort]\nsample_rate = 1\n[experiment]\nrounds = 2\n')

    first = shell("run", str(file), "--out", out, *SILENT)
    again = shell("run", str(file), "--out", out, "--resume", *SILENT)

    assert first.code == again.code == 4
    assert "warning: round 1 taught the model nothing" in first.err
    assert "nothing was learned: none of 2 rounds" in first.err
    assert "nothing was learned" in again.err
