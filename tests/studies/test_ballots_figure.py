"""The picture of docs/ballots.md is the table of that page."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_the_picture_is_read_off_the_page_and_a_page_without_its_table_is_refused() -> None:
    script = runpy.run_path(str(DOCS / "results" / "ballots.py"))
    page = (DOCS / "ballots.md").read_text(encoding="utf-8")
    measured = script["read"](page)

    assert measured.bytes_up == {"shares": 1081, "ballots": 226} and list(measured.rows) == [1, 2, 5, 10, 20]
    assert measured.rows[10]["ascent, shares"] == (script["CHANCE"], None)
    assert measured.rows[10]["backdoor, ballots"] == (0.882, 0.07)
    assert "](ballots.png)" in page and (DOCS / "ballots.png").stat().st_size < 200_000
    with pytest.raises(ValueError, match="no table of three arms"):
        script["read"](page.replace("| malicious |", "| bad |"))
