"""The front door: what the README shows is what the commands print."""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from pathlib import Path

import pytest

from sottovoce.cli import main

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_first_run_prints_what_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Run the block as a reader would, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    block = re.search(r"```sh\n(sottovoce examples.*?)```", README, re.DOTALL)
    shown = re.search(r"in part:\n\n((?:    .*\n)+)", README)
    assert block is not None and shown is not None
    commands = [shlex.split(line)[1:] for line in block.group(1).splitlines()]
    assert [command[0] for command in commands] == ["examples", "run", "run", "report"]

    printed = []
    for command in commands:
        assert main(command) == 0
        printed.append(capfd.readouterr().out)

    assert [line for line in shown.group(1).splitlines() if line.strip() not in printed[2]] == []
    plain = re.search(r"accuracy: final +(\S+)", printed[1])
    assert plain is not None and f"{plain.group(1)} without privacy" in README
    assert re.search(r"private messages are smaller", README) and "14.4 kB" in printed[3]


def test_commands_of_the_docs_stand_where_the_wheel_is_tried_on_them() -> None:
    """`make wheel-check` runs them; here it is seen that none hides from it, and none needs the checkout."""
    script = runpy.run_path(str(ROOT / ".ci" / "shell_blocks.py"))
    found = [
        (page, block)
        for page in script["pages"]()
        for _, language, block in script["blocks"](page)  # raises where a command stands in no ```sh block
        if language == "sh"
    ]

    left_out = {entry for page, block in found if (entry := script["reason"](page, block))}
    assert left_out == set(script["NOT_RUN"])
    assert sum(not script["reason"](page, block) for page, block in found) >= 30
    assert [block for _, block in found if re.search(r"\b(experiments|tests)/", block)] == []


@pytest.mark.parametrize("name", ["round", "ballots"])
def test_pictures_are_what_their_source_draws(name: str) -> None:
    drawn = runpy.run_path(str(ROOT / "docs" / "pictures" / "draw.py"))["PICTURES"][name]()

    assert (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8") == drawn
    assert "prefers-color-scheme: dark" in drawn


def test_the_site_names_pages_that_are_there_and_one_address_of_the_source() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r": (\S+\.md)$", site, re.MULTILINE)

    assert len(listed) > 30
    assert [page for page in listed if not (ROOT / "docs" / page).is_file()] == []
    homes = {"pyproject.toml", "SECURITY.md"}  # addresses of the project, which are placeholders, stand here alone
    others = [*ROOT.glob("*.*"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".ci").iterdir()]
    assert {path.name for path in others if path.is_file() and "sottovoce.invalid" in path.read_text("utf-8")} == homes
