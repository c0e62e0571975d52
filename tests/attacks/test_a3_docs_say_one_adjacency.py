"""Docs, plans and runs print one definition of neighbouring runs, that of `privacy.adjacency`."""

from __future__ import annotations

from pathlib import Path

from sottovoce.planning.plan import plan
from sottovoce.privacy.adjacency import ADJACENCY
from tests.runs.small import small


def test_docs_and_outputs_say_one_adjacency() -> None:
    page = (Path(__file__).parents[2] / "docs/privacy.md").read_text(encoding="utf-8")
    told = plan(small(privacy={"epsilon": 8.0, "delta": 1e-2, "clip_norm": 0.5}))

    assert ADJACENCY.sentence in " ".join(page.split())
    assert told["privacy"]["adjacency"] == ADJACENCY.sentence
