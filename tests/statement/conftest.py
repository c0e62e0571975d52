"""Real runs that the tests of this room share, and copies to tamper with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sottovoce.privacy.plan.plan import PrivacyPlan
from sottovoce.runs.loop import run
from tests.runs.small import small

PRIVATE = {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 0.5}


@pytest.fixture(scope="session")
def private_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("statement") / "private"
    run(small(privacy=PRIVATE), folder)
    return folder


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("statement") / "plain"
    run(small(), folder)
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    def copied(folder: Path) -> Path:
        return Path(shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True))

    return copied


@pytest.fixture(autouse=True, scope="module")
def _solved_once() -> Any:
    """Solve each request once: hundreds of tampered copies ask for the same plan."""
    solve, kept = PrivacyPlan.solve.__func__, {}  # type: ignore[attr-defined]

    def remembered(cls: type[PrivacyPlan], **keys: Any) -> PrivacyPlan:
        key = json.dumps(keys, sort_keys=True, default=str)
        if key not in kept:
            kept[key] = solve(cls, **keys)
        return kept[key]

    PrivacyPlan.solve = classmethod(remembered)  # type: ignore[method-assign,assignment]
    yield
    PrivacyPlan.solve = classmethod(solve)  # type: ignore[method-assign]
