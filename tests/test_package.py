from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import sottovoce

ROOT = Path(__file__).parents[1]


def test_all_is_sorted_and_every_name_is_there() -> None:
    assert sorted(sottovoce.__all__) == sottovoce.__all__
    assert all(getattr(sottovoce, name) is not None for name in sottovoce.__all__)
    assert all(callable(getattr(sottovoce, name)) for name in (*sottovoce.__all__, *sottovoce.__all__)), "asked twice"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = sottovoce.nothing


def test_a_class_name_means_one_thing_in_the_whole_package() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in ROOT.glob("src/sottovoce/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")

    assert len(places) > 400, "the package is elsewhere"
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_python_example_of_the_readme_runs(tmp_path: Path) -> None:
    """Run it as a script without an `if __name__` guard, as a reader would."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    (tmp_path / "example.py").write_text(found.group(1), encoding="utf-8")

    told = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.split()

    accuracy, bytes_up, epsilon = map(float, told)
    assert accuracy > 0.5
    assert 1000 < bytes_up < 2000
    assert 7.9 < epsilon <= 8


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))

    files = [page.parent / link for link in links if "://" not in link]
    # Notebooks are made for the site, by .ci/notebooks.py, from a script of the same name.
    files = [file.with_suffix(".py") if file.suffix == ".ipynb" else file for file in files]
    assert [str(file) for file in files if not file.exists()] == []


def test_nothing_is_printed_when_a_config_is_read() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import sottovoce; sottovoce.parse({})"], capture_output=True, text=True, check=True
    )

    assert told.stdout + told.stderr == ""
