"""A federation of three nodes, made once: making keys is cheap, but tests are many."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federation") / "fed"
    init_federation(folder)
    add_nodes(folder, ["lyon", "oslo", "turin"])
    sign_roster(folder)
    return folder


@pytest.fixture
def fed(_made: Path, tmp_path: Path) -> Path:
    """Return a copy that a test may change."""
    return Path(shutil.copytree(_made, tmp_path / "fed"))
