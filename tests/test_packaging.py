from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "sottovoce"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Extras that a test environment need not have, where the module is not called like its distribution.
ELSEWHERE = {"paho": "paho-mqtt"}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _declared() -> set[str]:
    """Return what a user can ask for: the dependencies and every extra but the developers' own."""
    optional = PROJECT.get("optional-dependencies", {})
    extras = [needed for name, needed in optional.items() if name not in ("dev", "docs", "release")]
    lines = [*PROJECT["dependencies"], *(line for needed in extras for line in needed)]
    return {_normal(re.split(r"[\s<>=!~;\[(]", line.strip(), maxsplit=1)[0]) for line in lines}


def _imported(tree: ast.AST) -> set[str]:
    """Return the top-level modules that a file imports, also inside its functions."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names - {"sottovoce"}


def test_every_import_of_src_is_declared() -> None:
    homes = packages_distributions()
    declared = _declared()

    undeclared = {
        f"{file.relative_to(SOURCES)} imports {module}"
        for file in SOURCES.rglob("*.py")
        for module in _imported(ast.parse(file.read_text(encoding="utf-8")))
        if not declared & {_normal(home) for home in [*homes.get(module, ()), ELSEWHERE.get(module, module)]}
    }

    assert undeclared == set()


def test_imports_inside_functions_are_seen() -> None:
    tree = ast.parse("import os\ndef f():\n    from absl import logging\n    import numpy.random\nfrom . import x\n")

    assert _imported(tree) == {"absl", "numpy"}


def test_the_citation_names_the_version_and_licence_of_the_package() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")

    assert f"\nversion: {PROJECT['version']}\n" in citation
    assert f"\nlicense: {PROJECT['license']}\n" in citation
