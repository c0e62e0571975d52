"""B7: a page that says how to report, and hashes for everything that a node's image installs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_a_security_page_says_what_is_promised_how_to_report_and_what_is_supported() -> None:
    text = (Path(__file__).parents[2] / "SECURITY.md").read_text()

    for heading in ("## What is promised", "## How to report", "## Supported versions"):
        assert heading in text


@pytest.mark.parametrize(("name", "fewest"), [("requirements.txt", 10), ("build-requirements.txt", 1)])
def test_the_image_of_a_node_installs_nothing_without_a_hash(name: str, fewest: int) -> None:
    deploy = Path(__file__).parents[2] / "deploy"
    lines = (deploy / name).read_text().replace("\\\n", " ").splitlines()
    pinned = [line for line in lines if line and not line.startswith("#")]

    assert len(pinned) >= fewest
    assert all("==" in line and "--hash=sha256:" in line for line in pinned)
    assert "://" not in "".join(lines)
    installs = [line for line in (deploy / "Containerfile").read_text().splitlines() if "pip install" in line]
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    assert any(f"{name}" in line for line in installs)


def test_every_package_that_the_project_needs_has_a_hash() -> None:
    """An image that installs by hash installs nothing that is missing here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["node"]]
    names = {re.split(r"[<>=!~; \[]", each)[0].lower().replace("_", "-") for each in needed}
    pinned = set(re.findall(r"^([a-z0-9.-]+)==", (ROOT / "deploy" / "requirements.txt").read_text(), re.MULTILINE))
    assert names <= pinned, sorted(names - pinned)
