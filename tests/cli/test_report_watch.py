from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Shell


@pytest.mark.parametrize("other", [("--html", "page.html"), ("--png", "matrix.png"), ("--json",)])
def test_watching_writes_nothing_so_what_would_be_written_is_refused(
    shell: Shell, finished: Path, here: Path, other: tuple[str, ...]
) -> None:
    outcome = shell("report", str(finished), "--watch", *other)

    assert outcome.code == 2 and "--watch serves the page and writes nothing" in outcome.err
    assert "--json" in other or outcome.out == ""
    assert not (here / "page.html").exists()


def test_what_is_no_run_is_not_watched(shell: Shell) -> None:
    outcome = shell("report", "nothing", "--watch")

    assert (outcome.code, outcome.out) == (2, "") and "there is no run folder nothing" in outcome.err
