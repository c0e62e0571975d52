"""B7: a page that says how to report, and hashes for everything that a node's image installs."""

from __future__ import annotations

from pathlib import Path

import pytest


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
